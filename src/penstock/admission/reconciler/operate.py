"""Operating a cluster's book on embedded Spark: one session, one set of emulated machines, a run a path."""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread

from penstock.admission.book.file import BookFile
from penstock.admission.reconciler.launch import Flows, Launch, PathRun, Start, workers_of
from penstock.admission.reconciler.outcomes import REST_S
from penstock.admission.reconciler.reconciler import DRAIN_S, Operator, Scale
from penstock.admission.reconciler.state import OperatorState, logs_folder, state_file
from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.startup.sessions import session

STEP_S = 0.1  # between two steps of the operator
ROOM = 16  # workers that an embedded session has at least, for applications that are admitted later


class Operating:
    """An operator at work, in a thread of its own. Used as a context, everything is drained at the end."""

    def __init__(self, operator: Operator, stack: ExitStack) -> None:
        self.operator = operator
        self._stack = stack
        self._leaving = Event()
        self._hurry = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="penstock operator", daemon=True)
        self._thread.start()

    def state(self) -> OperatorState:
        """Return what runs."""
        return self.operator.state()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def leave(self, now: bool = False) -> None:
        """Have everything drained, or stopped at once; returns before that is done."""
        if now:
            self._hurry.set()
        self._leaving.set()

    def close(self, now: bool = False) -> None:
        """Drain or stop everything, and let go of Spark."""
        self.leave(now)
        self._thread.join()
        self._stack.close()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> "Operating":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close(now=raised[0] is not None)

    def _run(self) -> None:
        try:
            while not self._leaving.is_set():
                self.operator.step()
                self._leaving.wait(STEP_S)
            self._end()
        except BaseException as failure:  # a defect, for who closes it
            self._failure = failure

    def _end(self) -> None:
        hurried = self._hurry.is_set()
        self.operator.end(now=hurried)
        while not self.operator.idle:
            if self._hurry.is_set() and not hurried:
                hurried = True
                self.operator.end(now=True)
            self.operator.step()
            time.sleep(STEP_S)
        self.operator.step()  # for the file to say so


def operate(
    book: Path | str,
    flows: Flows,
    *,
    runs: Path | str = "runs",
    workers: int | None = None,
    checkpoint_s: float | None = None,
    drain_s: float = DRAIN_S,
    rest_s: float = REST_S,
    telemetry: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Operating:
    """Run what is admitted in a book, on emulated machines in an embedded Spark session, and follow its changes.

        with ps.operate("book.json", {"alpha": alpha, "beta": beta}) as operating:
            time.sleep(60)
            print(operating.state().paths)

    book: the file. flows: the dataflow of each application, by its name in the book, or a function that finds it.
    runs: where run folders are made, one each time that a path is started.
    workers: worker processes that the session has room for, a machine of a path each; None: for twice what is booked.
    checkpoint_s: seconds between checkpoints of a path, 5 unless said. What came after the last one is done again by
    other paths when the path is given up.
    drain_s: for a path that is released to process what is in flight. rest_s: until a run that failed is started again.
    telemetry: whether runs keep it. tell: called with a line for all that happens.
    """
    from penstock.runtime.storage.run_folder import refuse_unwritable

    path, say = Path(book), tell or (lambda _: None)
    found = BookFile(path).load()
    needed = workers_of(found)
    room = _room(needed, workers)
    refuse_unwritable(Path(runs), "runs")
    with ExitStack() as stack:
        _lock(path, stack)
        machines = _shared_folder(path, stack)
        say("starting Spark")
        stack.enter_context(session(room))
        start = _starter(Path(runs), machines, checkpoint_s, telemetry)
        scale = _scaler(machines)
        operator = Operator(path, flows, start, tell=say, scale=scale, drain_s=drain_s, rest_s=rest_s)
        return Operating(operator, stack.pop_all())
    raise AssertionError("the stack holds nothing that hides an exception")


def _room(needed: int, workers: int | None) -> int:
    if workers is None:
        return max(2 * needed, ROOM)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInput("workers", f"expected a whole number ≥ 1, got {workers!r}")
    if workers < needed:
        problem = f"the paths in the book need {needed}, a machine of a path each, got {workers}"
        raise InvalidInput("workers", f"{problem}; give at least {needed}, or leave it out")
    return workers


def _lock(book: Path, stack: ExitStack) -> None:
    """See that no other operator follows the book, until this one has ended or its process has."""
    try:
        lock = stack.enter_context(book.with_name(f".{state_file(book).stem}.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PenstockError(f"book: another operator follows {book}; stop it first, or give another book") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise FileProblem(f"{book.parent}: cannot be written, {why}; keep the book elsewhere") from None


def _shared_folder(book: Path, stack: ExitStack) -> Path:
    """Make the folder by which all runs share the emulated machines, a new one for every operator."""
    parent = logs_folder(book.absolute())
    try:
        parent.mkdir(exist_ok=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise FileProblem(f"{parent}: cannot be made, {why}; keep the book elsewhere") from None
    made = Path(tempfile.mkdtemp(prefix="machines-", dir=parent))
    stack.callback(shutil.rmtree, made, ignore_errors=True)
    return made


def _starter(runs: Path, machines: Path, checkpoint_s: float | None, telemetry: bool) -> Start:
    """Return what starts a path's run, one at a time: two that start at once only slow each other down."""
    from penstock.startup.start import start

    turn = Lock()
    begin = partial(start, runs=runs, share=machines, checkpoint_s=checkpoint_s, telemetry=None if telemetry else False)

    def started(launch: Launch) -> PathRun:
        with turn:
            return begin(
                launch.flow,
                emulate=launch.cluster,
                plan=launch.plan,
                limits=launch.limits,
                noted=lambda info: launch.noted(info.path),
            )

    return started


def _scaler(machines: Path) -> Scale:
    """Return what has the emulated machines and links of all runs give more or less than they are described to."""
    from penstock.runtime.emulation import scale_links, scale_machines

    def scale(cluster: Cluster, factors: Mapping[str, float]) -> None:
        known = cluster.machine_index
        scale_machines(machines, {name: each for name, each in factors.items() if name in known}, time.monotonic())
        scale_links(machines, {name: each for name, each in factors.items() if name not in known})

    return scale
