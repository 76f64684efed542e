"""The handle of a running application, for the program that started it and for other processes; see `Run`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.model.limits import Limits
from penstock.model.plan import Plan
from penstock.model.status import PilotStatus, Status
from penstock.model.tuples import TuplePolicies


class MovedTask(msgspec.Struct, frozen=True):
    """A task that was moved."""

    task: str
    before: str  # slot
    after: str  # slot
    seconds: float  # from when it left its old slot until the last forwarded tuple arrived


class LogLine(msgspec.Struct, frozen=True):
    """One line of the log: of an operator, a worker or the controller."""

    at: float  # seconds since 1970
    level: str  # debug, info, warning, error
    component: str  # empty: the worker itself
    task: int | None
    worker: str
    text: str

    @property
    def speaker(self) -> str:
        """The origin: `component[task]`, or the worker."""
        if not self.component:
            return self.worker
        return self.component if self.task is None else f"{self.component}[{self.task}]"


class AutopilotHandle(Protocol):
    """The autopilot of a run. Its methods may be called from any thread."""

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Change the policy, `off` disables the autopilot, and return its status; None: no change.

        `model` is a file of latency models for its predictions.
        """

    def status(self) -> PilotStatus:
        """Return the status."""


class Handle(Protocol):
    """A running application. Every method may be called from any thread; invalid input raises `PenstockError`."""

    @property
    def folder(self) -> Path:
        """The run's folder."""

    def status(self) -> Status:
        """Return the status; after the end, the last one."""

    def move(self, task: str, slot: str) -> MovedTask:
        """Move a task, and return when it runs there."""

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan, and switch to its tuple policies."""

    def switch(
        self,
        tuples: TuplePolicies | None = None,
        *,
        routing: str | Sequence[str] | None = None,
        sending: str | None = None,
        slot_ms: float | None = None,
    ) -> TuplePolicies:
        """Change tuple policies and return those in force."""

    def limit(self, limits: Limits) -> dict[str, float]:
        """Limit the rates of sources in tuples per second, and return all limits in force."""

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Change the policy of the autopilot, and return its status."""

    def drain(self, timeout: float | None = None) -> None:
        """End the sources, process and publish what is in flight, and stop; return at the end, or after `timeout` s."""

    def stop(self) -> None:
        """Stop at once: output since the last checkpoint is not published; a resumed run produces it again."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether the run has ended."""

    def on_log(self, listener: Callable[[LogLine], None]) -> None:
        """Call a function for every log line, in a thread of the run."""
