"""Controllers that tests drive by hand: tests send the messages of workers, and read the commands."""

from collections import deque
from typing import Any

from penstock.api.dataflow import Dataflow
from penstock.runtime.config import Checkpointing, RunConfig
from penstock.runtime.controller.operations import Operation
from penstock.runtime.controller.run_spec import RunSpec, Site, run_folders
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import worker_messages
from penstock.runtime.storage.checkpoints import CheckpointManifest
from penstock.testing import Captured, MemoryDisk
from tests.runtime.flows import Given

ONLY_LAST = Checkpointing(interval_s=0.0)


def layout() -> Layout:
    flow = Dataflow("small")
    numbers = flow.source("numbers", Given(range(5)), emits=int)
    same = flow.map("same", int, numbers, parallelism=2)
    flow.sink("out", Captured([]), same)
    return Layout(flow)


class Prompt(Controller):
    """A controller whose disk does every job at once."""

    def __init__(self, resumed: CheckpointManifest | None = None, epoch: int = 0, **sections: Any) -> None:
        sites = tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(2))
        placement = ("w0/0", "w0/0", "w1/0", "w1/0")
        config = RunConfig(**{"checkpointing": ONLY_LAST, **sections})
        folders = run_folders(telemetry="kept", checkpoints="checkpoints")
        spec = RunSpec("r", sites, placement, config, folders, resumed=resumed, epoch=epoch)
        super().__init__(layout(), spec, 0.0)
        self.disk = MemoryDisk()
        self.now = 0.0

    def store(self, now: float) -> None:
        self.now = now
        while self.outbox.jobs:
            job = self.outbox.jobs.pop(0)
            job.then(*job.run(self.disk), now)

    def receive(self, worker: int, message: worker_messages.WorkerMessage, now: float) -> None:
        super().receive(worker, message, now)
        self.store(now)

    def register(self, message: worker_messages.Register, now: float) -> int | None:
        number = super().register(message, now)
        self.store(now)
        return number

    def lose(self, worker: int, reason: str, now: float) -> None:
        super().lose(worker, reason, now)
        self.store(now)

    def end_process(self, worker: int, now: float) -> None:
        super().end_process(worker, now)
        self.store(now)

    def tick(self, now: float) -> None:
        super().tick(now)
        self.store(now)


class Many(Prompt):
    """A controller with many workers, the first of which have a task each."""

    def __init__(self, workers: int) -> None:
        sites = tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(workers))
        Controller.__init__(
            self,
            layout(),
            RunSpec("r", sites, tuple(f"w{n}/0" for n in range(4)), RunConfig(checkpointing=ONLY_LAST)),
            0.0,
        )
        self.disk = MemoryDisk()
        for number in range(workers):
            register(self, f"w{number}")
        for number in range(workers):
            self.receive(number, worker_messages.Ready(self.epoch), 1.0)


def controller(**settings: Any) -> Prompt:
    return Prompt(**settings)


def register(one: Controller, name: str, now: float = 0.0) -> int | None:
    return one.register(worker_messages.Register(name, "host", 1, 42), now)


def running(**settings: Any) -> Prompt:
    one = controller(**settings)
    for name in ("w0", "w1"):
        register(one, name)
    for number in range(2):
        one.receive(number, worker_messages.Ready(one.epoch), 1.0)
    assert one.phase == "running"
    one.outbox.commands.clear()
    return one


def of_kind(one: Controller, kind: type) -> list[tuple[int, Any]]:
    return [(number, command) for number, command in one.outbox.commands if isinstance(command, kind)]


def saved(one: Controller, worker: int, number: int, ended: bool) -> None:
    entries = tuple(worker_messages.TaskEntry(task, 0, 0, 0, ended, 5, "", ()) for task in (2 * worker, 2 * worker + 1))
    one.receive(worker, worker_messages.CheckpointSaved(1, number, f"w{worker}.e1", 0, entries), 3.0)


def moving(one: Prompt, *moves: tuple[int, str]) -> list[Operation]:
    ended: list[Operation] = []
    one.operations.request(Operation(deque(moves), ended.append, "move"), one.now)
    return ended
