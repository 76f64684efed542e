"""A simulated run: it has a folder, a control socket and figures, but no Spark and no tuples.

As a program it is the `penstock` command with such a run in place of a real one: python -m tests.fake_run run …
The environment controls the run: FAKE_DRAIN=never, FAKE_FAILS=1, FAKE_ENDS=seconds.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock
from types import ModuleType
from typing import Any

from penstock.api.contracts import Sink, Source
from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits, update_limits
from penstock.model.plan import Plan
from penstock.model.status import ComponentStatus, Latency, MachineStatus, PilotStatus, SavingStatus, Status
from penstock.model.tuples import TuplePolicies
from penstock.policies.streams import changed
from penstock.runtime.config import Changes, RunConfig
from penstock.runtime.control_socket import ControlServer
from penstock.runtime.handle import LogLine, MovedTask
from penstock.runtime.storage.run_folder import LogFile, RunInfo, create
from tests.settings import config


class FakeSource(Source[int]):
    """Emits nothing."""


class FakeSink(Sink[int]):
    """Ignores its input."""


def flow(rate: float = 1.0) -> Dataflow:
    """Return a dataflow that is never run."""
    made = Dataflow("fake")
    made.sink("out", FakeSink(), made.map("split", abs, made.source("in", FakeSource()), parallelism=4, cpu=1 / rate))
    return made


PLACEMENT = {
    "in[0]": "m0/0",
    **{f"split[{number}]": f"m{number % 2}/{number // 2}" for number in range(4)},
    "out[0]": "m1/0",
}


class FakeHandle:
    """A handle whose run continues until it receives a request to end."""

    def __init__(self, info: RunInfo, *, drains: bool = True) -> None:
        self.folder = info.path
        self.info = info
        self.application = flow().application
        self.cluster = Cluster(name="fake", machines=(Machine(name="m0", slots=4), Machine(name="m1", slots=4)))
        self.placement = dict(PLACEMENT)
        self.tuples = TuplePolicies()
        self.limits: dict[str, float] = {}
        self.phase = "running"
        self.error = ""
        self.autopilot = ""
        self.saving: SavingStatus | None = None
        self.applied: list[Plan] = []
        self.steered: list[tuple[str | None, bool | None, str | None]] = []
        self.caution = ""  # of its autopilot
        self.moving = Event()  # set while a move is in progress
        self.may_move = Event()  # cleared: moves wait
        self.may_move.set()
        self._drains = drains
        self._ended = Event()
        self._lock = Lock()
        self._listeners: list[Callable[[LogLine], None]] = []

    def status(self) -> Status:
        """Return figures that never change, and the placement, which does."""
        tasks = {name: sum(slot.startswith(name) for slot in self.placement.values()) for name in ("m0", "m1", "m2")}
        return Status(
            run=self.info.run,
            application=self.info.application,
            phase=self.phase,
            seconds=65.0,
            emulated="trio",
            master="local[4]",
            policy="round-robin",
            tuples=self.tuples,
            limits=dict(self.limits),
            components=[
                ComponentStatus(name="in", kind="source", tasks=1, machines=1, rate_tps=1234.0, queue=0, waiting_out=7),
                ComponentStatus(
                    name="split", kind="operator", tasks=4, machines=2, rate_tps=1233.0, queue=56, processing_ms=0.789,
                    p50_ms=1.5, p99_ms=9.25, blocked=0.23,
                ),
                ComponentStatus(name="out", kind="sink", tasks=1, machines=1, rate_tps=4321.0, queue=2),
            ],
            machines=[
                MachineStatus(
                    name=name, host="here", tasks=count, cpu=cpu, lag_ms=0.4, slots=(f"{name}/0", f"{name}/1")
                )
                for (name, count), cpu in zip(tasks.items(), (0.62, 0.97, 0.0), strict=True)
            ],
            latency=Latency(count=512, p50_ms=4.2, p99_ms=12.3, mean_ms=5.1, worst_ms=31.0),
            placement=dict(self.placement),
            emitted=80_210,
            written=280_865,
            in_flight=32,
            warnings=["2 cores are few for 3 machines"],
            error=self.error,
            autopilot=self.autopilot,
            saving=self.saving,
        )  # fmt: skip

    def move(self, task: str, slot: str) -> MovedTask:
        """Move a task, as soon as moves are allowed."""
        self.moving.set()
        self.may_move.wait()
        self.moving.clear()
        if slot not in ("m0/0", "m0/1", "m1/0", "m1/1", "m2/0", "m2/1"):
            raise PenstockError(f"slot: none is named {slot!r};\nthere are six")
        if task not in self.placement:
            raise KeyError(task)
        with self._lock:
            before, self.placement[task] = self.placement[task], slot
        return MovedTask(task, before, slot, 0.0012)

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks that differ."""
        self.applied.append(plan)
        self.tuples = self.tuples if plan.tuples == TuplePolicies() else plan.tuples
        wanted = {f"{name}[{number}]": slot for name, slots in plan.tasks.items() for number, slot in enumerate(slots)}
        return [self.move(task, slot) for task, slot in wanted.items() if self.placement[task] != slot]

    def switch(
        self,
        tuples: TuplePolicies | None = None,
        *,
        routing: str | Sequence[str] | None = None,
        sending: str | None = None,
        slot_ms: float | None = None,
    ) -> TuplePolicies:
        """Change tuple policies."""
        self.tuples = changed(tuples or self.tuples, routing, sending, slot_ms)
        return self.tuples

    def limit(self, limits: Limits) -> dict[str, float]:
        """Change the limits of sources."""
        self.limits = update_limits(self.limits, limits, flow().application)
        return self.limits

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Record the request for the autopilot."""
        self.steered.append((policy, shadow, model))
        chosen = None if policy == "off" else policy
        state = "observing" if chosen else "off"
        return PilotStatus(policy=chosen, shadow=bool(shadow), state=state, caution=self.caution)

    def drain(self, timeout: float | None = None) -> None:
        """End if it can drain; otherwise wait until it is stopped."""
        self.phase = "draining"
        if self._drains:
            self._end("stopped")
        self._ended.wait(timeout)

    def stop(self) -> None:
        """End."""
        self._end("stopped")

    def fail(self, error: str) -> None:
        """End as after an exception in an operator."""
        self.error = error
        self._end("failed")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end."""
        return self._ended.wait(timeout)

    def on_log(self, listener: Callable[[LogLine], None]) -> None:
        """Register a listener."""
        self._listeners.append(listener)

    def say(self, text: str, level: str = "info") -> None:
        """Log a line of an operator."""
        for listener in self._listeners:
            listener(LogLine(at=time.time(), level=level, component="split", task=2, worker="m0", text=text))

    def _end(self, phase: str) -> None:
        if not self._ended.is_set():
            self.phase = phase
            self._ended.set()


class Served:
    """A fake run with its folder, log and socket, as a program that starts a run would have it."""

    def __init__(
        self, runs: Path, *, application: str = "fake", telemetry: Path | None = None, drains: bool = True
    ) -> None:
        folder = None if telemetry is None else str(telemetry)
        info = create(
            application, runs, config=config(master="local[4]", folder=folder), emulated="trio", policy="round-robin"
        )
        self.handle = FakeHandle(info, drains=drains)
        self._log = LogFile(info)
        self.handle.on_log(self._log)
        self.server = ControlServer(self.handle)

    @property
    def info(self) -> RunInfo:
        """Return the current content of its folder."""
        return self.server.info

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.stop()
        self.server.close()
        self._log.close()


def start(flow: Dataflow, *, config: Changes, runs: Path = Path("runs"), **arguments: Any) -> FakeHandle:
    """Start a fake run in place of a real one."""
    folder = RunConfig().changed(config).telemetry.folder
    telemetry = None if folder is None else Path(folder)
    served = Served(runs, application=flow.name, telemetry=telemetry, drains=os.environ.get("FAKE_DRAIN") != "never")
    handle = served.handle
    handle.application = flow.application
    STARTED.append(served)
    SETTINGS.append({"config": config, **arguments})
    arguments["callbacks"].progress("starting nothing at all")
    if os.environ.get("FAKE_FAILS"):
        handle.fail("split[2]: ValueError: no number; tuple 'x'")
    elif seconds := os.environ.get("FAKE_ENDS"):
        handle.drain(float(seconds))
    return handle


STARTED: list[Served] = []
SETTINGS: list[dict[str, Any]] = []


def stand_in() -> ModuleType:
    """Return a module that replaces the one that starts runs."""
    module = ModuleType("penstock.startup.start")
    module.start = start  # type: ignore[attr-defined]
    return module


if __name__ == "__main__":
    from penstock.cli import main

    sys.modules["penstock.startup.start"] = stand_in()
    try:
        main()
    finally:
        for each in STARTED:
            each.__exit__()
