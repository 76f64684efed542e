"""A controller, its workers and a clock in one process: what `penstock.testing` offers to tests of applications."""

import math
import random
import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from penstock.api.contracts import Operator, Sink
from penstock.api.dataflow import Dataflow
from penstock.api.on_error import DeadLetter
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, PenstockError
from penstock.model.limits import Limits, update_limits
from penstock.model.plan import Plan, to_placement
from penstock.model.status import Status
from penstock.model.telemetry import Record
from penstock.model.topology import Kind
from penstock.model.tuples import TuplePolicies, over
from penstock.runtime.config import Checkpointing, Execution, FlowControl, RunConfig, Telemetry
from penstock.runtime.controller.operations import Operation
from penstock.runtime.controller.run_spec import RunSpec, Site, check_placement, routes_of, run_folders
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.handle import LogLine, MovedTask
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.storage.disk import Disk, Posix, StorageJob
from penstock.runtime.worker.state_machine import Worker
from penstock.testing.disk import MemoryDisk

START = 1000.0  # not zero, so that a time that was never set is noticed
CONTROLLER = -1
EARLY_CHECKPOINTS = (0, 5, 10, 20, 50, 100, 500)  # number of steps before each of the first checkpoints


class ManualClock:
    """A clock that advances only on request."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds


class Captured(Sink[Any]):
    """A sink that appends its tuples to a list of the test."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def write(self, values: Sequence[Any]) -> None:
        """Append the tuples."""
        self._values.extend(values)

    def snapshot(self) -> None:
        """Return nothing: the list is not part of the state."""


def tiny_cluster(machines: int = 2, slots: int = 1) -> Cluster:
    """Return machines with different speeds, for tests."""
    return Cluster(
        name="tiny",
        machines=tuple(Machine(name=f"m{n}", slots=slots, cores=slots, speed=1.0 + n) for n in range(machines)),
    )


@dataclass(frozen=True)
class Result:
    """The outcome of a run, and the tuples of its sinks."""

    outputs: Mapping[str, list[Any]]  # by sink, in the order in which its tasks received them
    status: Status
    records: Sequence[Record]
    log: Sequence[LogLine]
    letters: Mapping[str, list[DeadLetter]]  # by component: tuples that raised and were skipped

    def __getitem__(self, sink: str) -> list[Any]:
        return self.outputs[sink]


class TestCluster:
    """A controller and its workers.

    Create one, `start` it, `advance` the time, `move` tasks, `drain`. Workers are named `w0`, `w1`, … with one slot
    each, or are the machines of the emulated cluster. `placement` is the slot of each task, in the plan's order.
    """

    __test__ = False

    def __init__(
        self,
        flow: Dataflow,
        *,
        workers: int = 2,
        placement: Sequence[str] | None = None,
        plan: Plan | None = None,
        emulate: Cluster | None = None,
        capture: bool = True,
        seed: int = 0,
        folder: str | None = None,
        telemetry: bool = True,
        sample_tps: float = -1.0,
        window: int = 64,
        in_flight: int = 0,
        checkpoint_s: float = 0.0,
        tuples: TuplePolicies | None = None,
        limits: Limits = None,
        share: str = "",
    ) -> None:
        self.outputs: dict[str, list[Any]] = {}
        self.letters: dict[str, list[DeadLetter]] = {}
        self.clock = ManualClock()
        self.flow = self._captured(flow, checkpoint_s > 0) if capture else flow
        self.layout = Layout(self.flow)
        self.rng = random.Random(seed)  # noqa: S311  not for secrets
        self.records: list[Record] = []
        sites = _sites(workers, emulate)
        check_placement(self.layout, sites, chosen := self._placement(sites, placement, plan, emulate))
        config = RunConfig(
            execution=Execution(seed=seed, share=share or None),
            checkpointing=Checkpointing(interval_s=checkpoint_s),
            flow_control=FlowControl(window=window, in_flight=in_flight or None),
            telemetry=Telemetry(sample_tps=sample_tps),
            tuple_policies=tuples or over(TuplePolicies(), TuplePolicies() if plan is None else plan.tuples),
            limits=update_limits({}, limits, self.layout.application),
        )
        checkpoints = str(Path(folder or ("/" if capture else self._scratch()), "checkpoints").absolute())
        spec = RunSpec(
            run="test",
            sites=sites,
            placement=tuple(chosen),
            config=config,
            folders=run_folders(folder or ".", "kept" if telemetry else "", checkpoints),
            emulated=emulate,
            routes=() if plan is None else routes_of(plan),
        )
        self.controller = Controller(self.layout, spec, self.clock())
        self.workers = [Worker(self.flow, "test", self.clock) for _ in sites]
        self.disk: Disk = MemoryDisk() if capture else Posix()
        self._jobs: dict[int, deque[StorageJob]] = {}  # for the disk, in order, by owner
        self._sites = sites
        self._wires: dict[tuple[int, int], deque[bytes]] = {}  # messages in transit, by sender and receiver
        self._awake = dict.fromkeys(range(len(sites)))  # workers with pending work
        self._due = [math.inf] * len(sites)  # when each has work without further messages

    def start(self) -> "TestCluster":
        """Register every worker and open its tasks."""
        for number, site in enumerate(self._sites):
            self.controller.register(worker_messages.Register(site.name, "test", 1, number), self.clock())
        self.settle(lambda: self.controller.phase != "starting")
        self._raise()
        return self

    def advance(self, seconds: float) -> None:
        """Advance the time, and handle what becomes due; an operator may spend time by advancing the clock itself."""
        end = self.clock() + seconds
        while True:
            before = self.clock()
            self.settle(lambda before=before: self.clock() > before)  # type: ignore[misc]
            if self.controller.phase in ("stopped", "failed"):
                return
            settled = self.clock() == before
            if not settled and self.clock() >= end:
                return
            if not self._pass_time(end, settled):
                return

    def _pass_time(self, end: float, settled: bool = True) -> bool:
        """Handle due work, setting the clock to the next work or `end` if settled; return whether there was any."""
        if settled:
            due = min(self.controller.wakeup(), *self._due)
            if due > end:
                self.clock.now = max(self.clock.now, end)
                return False
            self.clock.now = max(self.clock.now, due)
        self._awake |= dict.fromkeys(number for number, at in enumerate(self._due) if at <= self.clock())
        if self.controller.wakeup() <= self.clock():
            self.controller.tick(self.clock())
        return True

    def settle(self, until: Callable[[], bool] = lambda: False, steps: int = 10_000_000) -> None:
        """Do everything possible without time passing, in a random order."""
        for _ in range(steps):
            if until() or not self.step():
                return
        raise RuntimeError(f"not settled after {steps} steps")

    def proceed(self, steps: int, end: float) -> None:
        """Take some steps, advancing the time, at most to `end`, whenever nothing else can be done."""
        for _ in range(steps):
            if self.controller.phase in ("stopped", "failed") or not (self.step() or self._pass_time(end)):
                return

    def checkpoint(self) -> None:
        """Start a checkpoint at every worker, unless one is in progress, without waiting."""
        if self.controller.phase == "running":
            self.controller.checkpointing.request(self.clock())
            self.controller.tick(self.clock())
            self._take_commands()
            for sender, receiver in [wire for wire in self._wires if wire[0] == CONTROLLER]:
                while (sender, receiver) in self._wires:
                    self._deliver(sender, receiver)
                self._awake[receiver] = None
                self._collect(receiver)

    def move(self, task: str, slot: str) -> MovedTask:
        """Move a task, and return when it runs in the new slot."""
        done = self.apply([(task, slot)])
        return done[0] if done else MovedTask(task, slot, slot, 0.0)

    def apply(
        self,
        moves: Sequence[tuple[str, str]],
        routes: tuple[controller_messages.Route, ...] | None = None,
        tuples: TuplePolicies | None = None,
    ) -> list[MovedTask]:
        """Move tasks one after another; `routes` and `tuples` replace those of the plan."""
        ended: list[Operation] = []
        self.request(moves, ended.append, routes, tuples)
        for _ in range(1000):
            self.settle(lambda: bool(ended))
            if ended:
                break
            self.advance(0.001)
        if not ended:
            raise RuntimeError("the moves did not end")
        if ended[0].error is not None:
            raise ended[0].error
        return ended[0].done

    def request(
        self,
        moves: Sequence[tuple[str, str]],
        then: Callable[[Operation], None],
        routes: tuple[controller_messages.Route, ...] | None = None,
        tuples: TuplePolicies | None = None,
    ) -> None:
        """Request moves, without waiting."""
        self.controller.operate(moves, "move", then, self.clock(), routes=routes, tuples=tuples)

    def limit(self, limits: Limits) -> dict[str, float]:
        """Set the maximum number of tuples per second of sources."""
        return self.controller.limit(limits, self.clock())

    def drain(self, seconds: float = 3600.0) -> Result:
        """End the sources, and let all tuples in flight be processed."""
        self.controller.drain(self.clock())
        return self.finish(seconds)

    def finish(self, seconds: float = 600.0) -> Result:
        """Continue until the sources have ended; use `drain` for sources that never end."""
        end = self.clock() + seconds
        while self.controller.phase not in ("stopped", "failed") and self.clock() < end:
            self.advance(min(1.0, end - self.clock()))
        self._raise()
        if self.controller.phase != "stopped":
            going = [task.name for worker in self.workers for task in worker.tasks.values() if not task.ended]
            problem = f"not ended after {seconds:g} s of its clock: {', '.join(going)} are still running"
            raise RuntimeError(f"{problem}; use drain() for sources that never end")
        self.settle()
        return self.result()

    def result(self) -> Result:
        """Return the output so far."""
        self.records += self.controller.take_records()
        status, lines = self.controller.status(self.clock()), self.controller.outbox.lines
        return Result(self.outputs, status, self.records, lines, self.letters)

    def _captured(self, flow: Dataflow, checkpoints: bool) -> Dataflow:
        parts = {}
        for name, part in flow.parts.items():
            if part.component.kind is Kind.SINK:
                values = self.outputs.setdefault(name, [])
                part = replace(part, logic=lambda values=values: Captured(values))  # type: ignore[misc]
            elif part.component.kind is Kind.OPERATOR and checkpoints:
                part = replace(part, logic=partial(_saved_at_end, part.logic))
            if part.letters is not None:
                letters = self.letters.setdefault(name, [])
                part = replace(part, letters=lambda letters=letters: Captured(letters))  # type: ignore[misc]
            parts[name] = part
        return Dataflow(flow.name, parts)

    def _scratch(self) -> str:
        """Create a temporary folder for checkpoints, deleted with the cluster."""
        made = tempfile.mkdtemp(prefix="penstock-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return made

    def _placement(
        self, sites: Sequence[Site], placement: Sequence[str] | None, plan: Plan | None, emulate: Cluster | None
    ) -> Sequence[str]:
        if placement is not None:
            return placement
        if plan is not None:
            if emulate is None:
                raise InvalidInput("plan", "expected the plan's cluster as well; pass emulate")
            return [emulate.slot_names[slot] for slot in to_placement(plan, self.layout.application, emulate).slots]
        slots = [slot for site in sites for slot in site.slots]
        return [slots[task % len(slots)] for task in range(len(self.layout.components))]

    def step(self) -> bool:
        """Take one random step among those possible; return whether there was any.

        A frame or a command arrives, or a worker takes a turn.
        """
        self._take_commands()
        choices: list[tuple[int, int] | int | str] = [*self._wires, *self._awake, *(["disk"] if self._jobs else [])]
        if not choices:
            return False
        chosen = self.rng.choice(choices)
        if isinstance(chosen, str):
            self._store()
            return True
        number = chosen if isinstance(chosen, int) else chosen[1]
        worker = self.workers[number]
        busy = worker.turn() if isinstance(chosen, int) else self._deliver(*chosen)
        self._due[number] = worker.wakeup()
        if busy or self._due[number] <= self.clock():
            self._awake[number] = None
        else:
            self._awake.pop(number, None)
        self._collect(number)
        return True

    def _deliver(self, sender: int, receiver: int) -> bool:
        """Deliver the first message in transit between two parties, and mark the receiver as having work."""
        wire = self._wires[sender, receiver]
        arrived = wire.popleft()
        if not wire:
            del self._wires[sender, receiver]
        if sender == CONTROLLER:
            self.workers[receiver].command(controller_messages.decode_command(arrived))
        else:
            self.workers[receiver].frame(arrived)
        return True

    def _store(self) -> None:
        """Perform one disk operation."""
        owner = self.rng.choice(list(self._jobs))
        jobs = self._jobs[owner]
        job = jobs.popleft()
        if not jobs:
            del self._jobs[owner]
        job.then(*job.run(self.disk), self.clock())
        if owner != CONTROLLER:
            self._awake[owner] = None
            self._collect(owner)

    def _keep_jobs(self, owner: int, jobs: list[StorageJob]) -> None:
        if jobs:
            self._jobs.setdefault(owner, deque()).extend(jobs)

    def _take_commands(self) -> None:
        self._keep_jobs(CONTROLLER, self.controller.outbox.take_jobs())
        for number, command in self.controller.outbox.take_commands():
            self._put(CONTROLLER, number, encode(command))

    def _collect(self, number: int) -> None:
        """Send the messages in a worker's outbox."""
        worker, outbox = self.workers[number], self.workers[number].outbox
        for target, frames in outbox.take_frames().items():
            for frame in frames:
                self._put(number, target, frame)
        for message in outbox.take_messages():
            self.controller.receive(number, worker_messages.decode_worker_message(encode(message)), self.clock())
        self._keep_jobs(number, outbox.take_jobs())
        self.records += worker.take_records()

    def _put(self, sender: int, receiver: int, message: bytes) -> None:
        wire = self._wires.get((sender, receiver))
        if wire is None:
            wire = self._wires[sender, receiver] = deque()
        wire.append(message)

    def _raise(self) -> None:
        if self.controller.phase == "failed":
            raise ApplicationFailed(self.controller.error + "\n" + self.controller.traceback)


class ApplicationFailed(PenstockError):
    """An operator raised, or a rule of the runtime was violated; the text ends with the traceback."""


def run(flow: Dataflow, *, seconds: float = 3600.0, checkpoint_s: float = 5.0, **options: Any) -> Result:
    """Run an application until its sources have ended, or for a number of seconds of its clock.

    Checkpoints are taken by the code of production, every `checkpoint_s` of its clock, and additionally among the first
    tuples and at the end, so that a short test saves every operator; 0: none. Other options are those of `TestCluster`.
    """
    cluster = TestCluster(flow, checkpoint_s=checkpoint_s, **options).start()
    end = cluster.clock() + seconds
    for steps in EARLY_CHECKPOINTS if checkpoint_s else ():
        cluster.proceed(steps, end)
        cluster.checkpoint()
    while cluster.controller.phase == "running" and cluster.clock() < end:
        cluster.advance(min(1.0, end - cluster.clock()))
    return cluster.drain() if cluster.controller.phase == "running" else cluster.finish()


def _saved_at_end(make: Callable[[], Any]) -> Any:
    """Return a factory of operators that are saved again before they finish: a short run may have had no checkpoint."""
    made = make()
    if isinstance(made, Operator) and type(made).snapshot is not Operator.snapshot:
        finish = made.finish

        def finish_saved() -> Any:
            msgspec.msgpack.encode(made.snapshot())
            return finish()

        with suppress(AttributeError):  # a class with slots does not allow it
            made.finish = finish_saved  # type: ignore[method-assign]
    return made


def _sites(workers: int, emulate: Cluster | None) -> tuple[Site, ...]:
    if emulate is None:
        return tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(workers))
    return tuple(
        Site(machine.name, tuple(f"{machine.name}/{number}" for number in range(machine.slots)))
        for machine in emulate.machines
    )
