"""The handle of a running application: what can be asked of it, by the program that started it and from outside."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.model.limits import Limits
from penstock.model.plan import Plan
from penstock.model.status import PilotStatus, Status
from penstock.model.tuples import TuplePolicies


class Outcome(msgspec.Struct, frozen=True):
    """A task that was moved."""

    task: str
    before: str  # slot
    after: str  # slot
    seconds: float  # from when it left its old slot to the last tuple that came over it


class LogLine(msgspec.Struct, frozen=True):
    """One line that an operator, or the worker around it, had to say."""

    at: float  # seconds since 1970
    level: str  # debug, info, warning, error
    component: str  # empty: the worker itself
    task: int | None
    worker: str
    text: str

    @property
    def speaker(self) -> str:
        """Who says it: `component[task]`, or the worker."""
        if not self.component:
            return self.worker
        return self.component if self.task is None else f"{self.component}[{self.task}]"


class Steered(Protocol):
    """What moves the tasks of a run by itself, and can be told how. Its methods may be called from any thread."""

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Have another policy decide, `off` for none, and return how it stands; None leaves it.

        `model` is a file of latency models that it goes by.
        """
        ...

    def status(self) -> PilotStatus:
        """Return how it stands."""
        ...


class Handle(Protocol):
    """A running application. Every method may be called from any thread; a mistake raises `PenstockError`."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        ...

    def status(self) -> Status:
        """Return how it is going; after the end, how it went."""
        ...

    def move(self, task: str, slot: str) -> Outcome:
        """Move one task, and return when it runs there."""
        ...

    def apply(self, plan: Plan) -> list[Outcome]:
        """Move the tasks that a plan puts elsewhere, switch to its tuple policies, and return when all is done.

        Tuple policies that the plan does not name stay in force.
        """
        ...

    def switch(
        self,
        tuples: TuplePolicies | None = None,
        *,
        routing: str | Sequence[str] | None = None,
        sending: str | None = None,
        slot_ms: float | None = None,
    ) -> TuplePolicies:
        """Change tuple policies and return all that are in force then.

        tuples: all of them; None: those in force. routing, sending, slot_ms: some of these, over them. A routing is
        `POLICY` for the application or `STREAM=POLICY` for a stream, or several of these; `none`: no policy.
        """
        ...

    def limit(self, limits: Limits) -> dict[str, float]:
        """Let sources give so many tuples a second from now on, and return all limits in force.

        By source component, all its tasks together; None lifts a limit, 0 pauses the source, those not named keep
        theirs. One number is for all sources together, None alone lifts all. A tuple that waits is late.
        """
        ...

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Have another policy of its autopilot decide, `off` for none, and return how it stands; None leaves it.

        `model` is a file of latency models that it goes by.
        """
        ...

    def drain(self, timeout: float | None = None) -> None:
        """Stop the sources, process and publish everything in flight, end; return at the end, or after `timeout` s."""
        ...

    def stop(self) -> None:
        """End at once: what came after the last checkpoint is not published, and comes again where it is resumed."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it has come."""
        ...

    def on_log(self, listener: Callable[[LogLine], None]) -> None:
        """Have a function called for every log line, from a thread of the run's own."""
        ...
