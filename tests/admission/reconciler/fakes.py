"""Shared by the reconciler's tests: a small network, its book, and fake runs."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from zlib import crc32

import msgspec

from penstock.admission import Admitted, BookFile, admit
from penstock.admission.reconciler.launch import Flows, Launch
from penstock.admission.reconciler.reconciler import BookReconciler
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sources.generated import Generated
from penstock.api.sources.split_log import SplitLog
from penstock.model.book import Book
from penstock.model.cluster import NEAR, Cluster, Link, Machine
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from penstock.model.status import ComponentStatus, Status
from penstock.model.topology import Application
from penstock.runtime.config import RunConfig
from penstock.runtime.protocol.worker_messages import TaskEntry
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import create
from penstock.testing.cluster import ManualClock


def two_ways() -> Cluster:
    """Return a network with two alternative worker machines between those of a source and a sink."""
    ends = [("src", "w1"), ("src", "w2"), ("w1", "dst"), ("w2", "dst")]
    return Cluster(
        name="two-ways",
        machines=(
            Machine(name="src"),
            Machine(name="w1", failure_probability=0.1),
            Machine(name="w2", failure_probability=0.1),
            Machine(name="dst"),
        ),
        links=tuple(Link(source=a, target=b, bandwidth_mbps=100.0) for a, b in ends),
        distances=NEAR,
    )


def flow(name: str, rate: float = 300.0, count: int | None = None, cpu: float = 0.02) -> Dataflow:
    """Return an application whose source and sink are pinned, and cost next to nothing."""
    made = Dataflow(name)
    numbers = made.source("in", Generated(int, rate=rate, count=count), cpu=1e-5, pinned="src")
    made.sink("out", Discard(), made.map("work", abs, numbers, cpu=cpu), cpu=1e-5, pinned="dst")
    return made


def admitted(book: Book, application: Application, paths: int = 2, **promised: float) -> Book:
    """Return a book with an application in it, which is promised something."""
    result = admit(book, msgspec.structs.replace(application, **promised), paths=paths)
    assert isinstance(result, Admitted), result.reason
    return result.book


class FakeRun:
    """A run that continues until it is ended; it has only a folder."""

    def __init__(self, launch: Launch, runs: Path) -> None:
        self.info = create(launch.flow.name, runs, config=RunConfig())
        self.launch = launch
        self.folder = self.info.path
        launch.note_folder(self.folder)
        self.limits = dict(launch.limits)
        self.limited: list[dict[str, float]] = []
        self.calls: list[str] = []
        self.may_end = Event()  # cleared: draining and stopping wait
        self.may_end.set()
        self.error = ""
        self._ended = Event()

    def status(self) -> Status:
        """Return a status whose rates equal the limits."""
        rate = sum(self.limits.values())
        parts = [("in", "source"), ("work", "operator"), ("out", "sink")]
        return Status(
            run=self.folder.name,
            application=self.launch.flow.name,
            phase="stopped" if self._ended.is_set() else "running",
            seconds=1.0,
            emulated=self.launch.cluster.name,
            master="local",
            policy=self.launch.plan.policy,
            components=[
                ComponentStatus(name=name, kind=kind, tasks=1, machines=1, rate_tps=rate, queue=0)
                for name, kind in parts
            ],
            machines=[],
            latency=None,
            placement={},
            error=self.error,
            limits=dict(self.limits),
        )

    def limit(self, limits: Limits) -> dict[str, float]:
        """Remember the limits."""
        assert isinstance(limits, dict)
        self.limits = dict(limits)
        self.limited.append(self.limits)
        return self.limits

    def drain(self, timeout: float | None = None) -> None:
        """End, if it may."""
        self.calls.append("drain")
        if self.may_end.wait(timeout):
            self._ended.set()

    def stop(self) -> None:
        """End, once it may."""
        self.calls.append("stop")
        self.may_end.wait()
        self._ended.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end."""
        return self._ended.wait(timeout)

    def end(self, error: str = "") -> None:
        """End by itself."""
        self.error = error
        self._ended.set()


class Bench:
    """A reconciler with fake runs, a manual clock, and threads that are called by the test."""

    def __init__(self, folder: Path, *flows: Dataflow) -> None:
        self.book = folder / "book.json"
        self.folder = folder
        self.flows = {each.name: each for each in flows}
        self.clock = ManualClock()
        self.reported: list[str] = []
        self.runs: list[FakeRun] = []
        self.work: list[Callable[[], None]] = []  # of other threads
        self.refusal = ""  # of the next starts
        self.broken: Callable[[FakeRun], None] = lambda _: None  # called with a new run; may raise
        self.capacities: dict[str, float] = {}  # set on runs
        self.reconciler = self.new_reconciler()

    def new_reconciler(self, book: Path | None = None, flows: Flows | None = None) -> BookReconciler:
        """Return a reconciler whose only state is on disk."""
        return BookReconciler(
            book or self.book,
            flows or self.flows,
            self._start,
            report=self.reported.append,
            clock=self.clock,
            spawn=self.work.append,
            scale=self._scale,
            stop_s=0.05,
        )

    def save(self, book: Book) -> Book:
        """Save a book like another process."""
        file = BookFile(self.book)
        file.save(book, file.load().version if file.exists() else None)
        return book

    def settle(self) -> None:
        """Run the reconciler and its started actions until nothing is left to do."""
        for _ in range(20):
            self.reconciler.step()
            if not self.work:
                return
            work = list(self.work)
            self.work.clear()
            for each in work:
                each()
        raise AssertionError("it never settles")

    def phases(self) -> dict[str, str]:
        """Return the phase of every path."""
        return {f"{path.application}/{path.path or path.number}": path.phase for path in self.reconciler.state().paths}

    def log(self, application: str) -> SplitLog:
        """Return the split log of an application's source."""
        found = SplitLog(self.folder / "book.operator" / f"{application}-1" / "in.jsonl")
        found.look()
        return found

    def _start(self, launch: Launch) -> FakeRun:
        if self.refusal:
            raise PenstockError(self.refusal)
        run = FakeRun(launch, self.folder / "runs")
        self.broken(run)
        self.runs.append(run)
        return run

    def _scale(self, cluster: Cluster, factors: Mapping[str, float]) -> None:
        assert cluster == two_ways()
        self.capacities |= factors


def checkpointed(run: FakeRun, counted: int, position: object) -> None:
    """Write a complete checkpoint of a run, as its controller would."""
    disk, place = Posix(), str(run.folder / "checkpoints")
    logic = b"" if position is None else msgspec.msgpack.encode(position)
    state = checkpoints.TaskState(position is None, counted, (), (), (), len(logic))
    data = b"".join(bytes(piece) for piece in checkpoints.pack_state(state, [logic]))
    entry = TaskEntry(0, 0, len(data), crc32(data), position is None, counted, "", ())
    disk.write(str(Path(checkpoints.folder_of(place, 1)) / "w0.e1"), [data])
    saved = checkpoints.manifest_entry(entry, "in[0]", "w0.e1")
    application = run.launch.flow.application
    manifest = checkpoints.CheckpointManifest(
        run="run",
        number=1,
        epoch=1,
        at=time.time(),
        seconds=0.1,
        version="1",
        shape=checkpoints.shape_of(application),
        placement={},
        files={"w0.e1": len(data)},
        tasks=(saved,),
    )
    checkpoints.write_manifest(disk, place, manifest)
