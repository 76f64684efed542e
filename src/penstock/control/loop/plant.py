"""The plant: an application that runs, as far as the control loop sees it.

Time is the plant's own: seconds since it began, real ones of a run, virtual ones of the twin. Only `wait` lets it pass.
"""

from typing import Protocol

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.topology import Application
from penstock.runtime.handle import Outcome


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen of a plant from one reading to the next."""

    at: float  # its end, on the plant's clock
    seconds: float  # that it covers
    count: int = 0  # source tuples whose latency was seen
    mean_s: float | None = None  # their latency; None: there were none
    p99_s: float | None = None
    rates: dict[str, float] = {}  # tuples a second that each component processed; sources: gave
    cpu: dict[str, float] = {}  # share of each machine's cores in use
    queue: int = 0  # tuples that wait, anywhere
    blocked: float = 0.0  # share of the time in which the most blocked source task could not give what was due
    epoch: int = 0  # changes when the plant has failed, recovered or lost a machine
    steady: bool = True  # it ran all the time, and nobody moved anything
    gone: tuple[str, ...] = ()  # machines that do not answer


class Ended(Exception):
    """The plant has ended, or is about to: nothing can be changed any more."""


class Plant(Protocol):
    """An application that runs. Methods are called by one thread; a mistake raises `PenstockError`."""

    @property
    def application(self) -> Application:
        """What runs."""
        ...

    @property
    def cluster(self) -> Cluster:
        """What it runs on now."""
        ...

    @property
    def policy(self) -> str:
        """What decided where its tasks are."""
        ...

    def now(self) -> float:
        """Return the seconds since it began."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass; raise `Ended` where the plant ends meanwhile."""
        ...

    def placement(self) -> dict[str, str]:
        """Return the slot of every task, in the order of the task graph."""
        ...

    def reading(self) -> Reading:
        """Return what was seen since the last reading."""
        ...

    def apply(self, plan: Plan) -> list[Outcome]:
        """Move the tasks that a plan puts elsewhere, and return when they run there; raise `Ended` if it has ended."""
        ...
