"""Run a book's applications on embedded Spark: one session, one set of emulated machines, one run per path."""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock, Thread

from msgspec.structs import replace

from penstock.admission.book.file import BookFile
from penstock.admission.reconciler.launch import Flows, Launch, PathRun, Start, count_workers
from penstock.admission.reconciler.reconciler import BookReconciler, Scale
from penstock.admission.reconciler.state import ReconcilerState, logs_folder, state_file
from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.model.files import make_folder
from penstock.runtime.config import Checkpointing, Execution, RunConfig, Telemetry
from penstock.runtime.emulation import scale_links, scale_machines
from penstock.runtime.storage.run_folder import refuse_unwritable
from penstock.startup.prepared_run import StartCallbacks
from penstock.startup.sessions import session
from penstock.startup.start import start

STEP_S = 0.1  # between two steps of the reconciler
ROOM = 16  # minimum number of workers of an embedded session, for applications that are admitted later


class BookService:
    """A reconciler in a thread of its own. As a context manager, it drains everything at the end."""

    def __init__(self, reconciler: BookReconciler, stack: ExitStack) -> None:
        self.reconciler = reconciler
        self._stack = stack
        self._leaving = Event()
        self._hurry = Event()
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="penstock operator", daemon=True)
        self._thread.start()

    def state(self) -> ReconcilerState:
        """Return the current state of all paths."""
        return self.reconciler.state()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def leave(self, now: bool = False) -> None:
        """Start to drain, or stop, everything; returns immediately."""
        if now:
            self._hurry.set()
        self._leaving.set()

    def close(self, now: bool = False) -> None:
        """Drain or stop everything, and release Spark."""
        self.leave(now)
        self._thread.join()
        self._stack.close()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> "BookService":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close(now=raised[0] is not None)

    def _run(self) -> None:
        try:
            while not self._leaving.is_set():
                self.reconciler.step()
                self._leaving.wait(STEP_S)
            self._end()
        except BaseException as failure:  # a defect, raised again by `close`
            self._failure = failure

    def _end(self) -> None:
        hurried = self._hurry.is_set()
        self.reconciler.end(now=hurried)
        while not self.reconciler.idle:
            if self._hurry.is_set() and not hurried:
                hurried = True
                self.reconciler.end(now=True)
            self.reconciler.step()
            time.sleep(STEP_S)
        self.reconciler.step()  # writes the final state to the file


def serve(
    book: Path | str,
    flows: Flows,
    *,
    runs: Path | str = "runs",
    workers: int | None = None,
    checkpoint_s: float | None = None,
    telemetry: bool = True,
    report: Callable[[str], None] | None = None,
) -> BookService:
    """Run the applications admitted in a book, on emulated machines in an embedded Spark session, and follow changes.

        with ps.serve("book.json", {"alpha": alpha, "beta": beta}) as service:
            time.sleep(60)
            print(service.state().paths)

    book: its file. flows: the dataflow of each application, by its name in the book, or a function that returns it.
    runs: parent of the run folders; a path has a new one at each start.
    workers: worker processes of the session, one per machine of a path. Default: twice what the book needs now.
    checkpoint_s: seconds between checkpoints of a path. Default: that of a run. When a path is given up, other paths
    process again what came after its last checkpoint.
    telemetry: whether runs write it. report: called with a line for every event.
    """
    path, say = Path(book), report or (lambda _: None)
    found = BookFile(path).load()
    needed = count_workers(found)
    room = _room(needed, workers)
    refuse_unwritable(Path(runs), "runs")
    with ExitStack() as stack:
        _lock(path, stack)
        machines = _shared_folder(path, stack)
        say("starting Spark")
        stack.enter_context(session(room))
        start = _starter(Path(runs), machines, checkpoint_s, telemetry)
        scale = _scaler(machines)
        reconciler = BookReconciler(path, flows, start, report=say, scale=scale)
        return BookService(reconciler, stack.pop_all())
    raise AssertionError("the stack holds nothing that hides an exception")


def _room(needed: int, workers: int | None) -> int:
    if workers is None:
        return max(2 * needed, ROOM)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInput("workers", f"expected a whole number ≥ 1, got {workers!r}")
    if workers < needed:
        problem = f"the paths in the book need {needed}, one per machine of a path, got {workers}"
        raise InvalidInput("workers", f"{problem}; use at least {needed}, or omit it")
    return workers


def _lock(book: Path, stack: ExitStack) -> None:
    """Lock the book against other reconcilers until this one or its process has ended."""
    try:
        lock = stack.enter_context(book.with_name(f".{state_file(book).stem}.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PenstockError(f"book: another reconciler runs {book}; stop it first, or use another book") from None
    except OSError as error:
        raise FileProblem.of(error, book.parent, "cannot be written", "move the book to another folder") from None


def _shared_folder(book: Path, stack: ExitStack) -> Path:
    """Create the folder through which all runs share the emulated machines, a new one for every reconciler."""
    parent = logs_folder(book.absolute())
    make_folder(parent, "move the book to another folder")
    made = Path(tempfile.mkdtemp(prefix="machines-", dir=parent))
    stack.callback(shutil.rmtree, made, ignore_errors=True)
    return made


def _starter(runs: Path, machines: Path, checkpoint_s: float | None, telemetry: bool) -> Start:
    """Return a function that starts a path's run; starts are serialised, because they only slow each other down."""
    turn = Lock()
    interval_s = Checkpointing().interval_s if checkpoint_s is None else checkpoint_s
    config = RunConfig(
        execution=Execution(share=str(machines)),
        checkpointing=Checkpointing(interval_s=interval_s),
        telemetry=Telemetry(enabled=telemetry),
    )

    def started(launch: Launch) -> PathRun:
        with turn:
            return start(
                launch.flow,
                config=replace(config, limits=dict(launch.limits)),
                emulate=launch.cluster,
                plan=launch.plan,
                runs=runs,
                callbacks=StartCallbacks(created=lambda info: launch.note_folder(info.path)),
            )

    return started


def _scaler(machines: Path) -> Scale:
    """Return a function that scales the capacities of emulated machines and links for all runs."""

    def scale(cluster: Cluster, factors: Mapping[str, float]) -> None:
        known = cluster.machine_index
        scale_machines(machines, {name: each for name, each in factors.items() if name in known}, time.monotonic())
        scale_links(machines, {name: each for name, each in factors.items() if name not in known})

    return scale
