"""Runs that faults are done to, and what must be true of them in the end.

Each fault may come in the middle of a checkpoint or of a move: one worker is stopped for a moment, so that these cannot
come to their end.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.counted import Verdict, check, counted, given
from benchmarks.faults import MOMENTS, amid, wait_until

import penstock as ps
from penstock.model.errors import PenstockError
from penstock.runtime.config import Recovery
from penstock.runtime.controller import membership as members
from penstock.runtime.handle import LogLine
from penstock.runtime.run import Run
from tests.patience import IMPATIENT, wait_as
from tests.settings import arguments

CHECKPOINT_S = 0.5


class Trial:
    """A run, faults that are done to it, and what must be true in the end."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rng = random.Random(11)
        self.heard: list[LogLine] = []
        run.on_log(self.heard.append)
        self.wait_for_checkpoint()

    @property
    def recoveries(self) -> tuple[int, int]:
        """How many were begun, and how many have ended."""
        recovery = self.run._driver.controller.recovery
        return self.run._driver.ask(lambda _: (recovery.count, len(recovery.times)))

    def alive(self) -> dict[str, int]:
        """Return the processes of the workers, by site."""
        members = self.run._driver.controller.members.all
        return self.run._driver.ask(lambda _: {member.site.name: member.pid for member in members if member.alive})

    def checkpoint(self) -> int:
        latest = self.run._driver.controller.checkpointing.latest
        return 0 if latest is None else latest.number

    def wait_for_checkpoint(self) -> None:
        """Wait until tuples have gone all the way, and a checkpoint says so."""
        wait_until(partial(self.has_completed, self.checkpoint()), what="a checkpoint")

    def has_completed(self, before: int) -> bool:
        """Whether there is a later checkpoint."""
        return self._failed() or self.checkpoint() > before

    def has_written_more(self, than: int) -> bool:
        return self.run.status().written > than

    def has_problem(self) -> bool:
        """Whether the last checkpoint was not completed."""
        latest = self.run.status().checkpoint
        return latest is not None and latest.problem != ""

    def _failed(self) -> bool:
        assert self.run.status().error == ""
        return False

    def do(self, fault: Callable[[], None], moment: str = MOMENTS[0], spared: int | None = None) -> None:
        """Inject a fault, and wait until the run has recovered from it."""
        before, _ = self.recoveries
        with self.at(moment, spared):
            fault()
            wait_until(lambda: self._failed() or self.recoveries[0] > before, what="noticing the fault")

        def recovered() -> bool:
            begun, ended = self.recoveries
            return begun == ended and self.run.status().phase == "running"

        wait_until(lambda: self._failed() or recovered(), what="recovery")
        self.wait_for_checkpoint()

    def at(self, moment: str, spared: int | None) -> AbstractContextManager[None]:
        """Return a context with a checkpoint or a move in progress."""
        return amid(moment, spared or 0, self.run.status, self._move)

    def _move(self, task: str, slot: str) -> None:
        with suppress(PenstockError):  # its slot may have been lost for good
            self.run.move(task, slot)

    def drawn(self) -> tuple[int, int, int]:
        """Return the processes of three workers, in random order."""
        found: list[int] = []

        def there() -> bool:
            found[:] = sorted(self.alive().values())
            return len(found) == 3 and self.is_home()

        wait_until(there, what="three workers, with tasks each")
        one, two, three = self.rng.sample(found, 3)
        return one, two, three

    def is_home(self) -> bool:
        """Whether tuples flow and every worker has a task: only then the loss of any one starts a recovery."""
        status = self.run.status()
        return status.phase == "running" and set(self.alive()) <= set(status.placement.values())

    def end(self) -> None:
        """Drain the run, and check that everything was committed exactly once."""
        self.run.drain()
        status = self.run.status()
        assert (status.phase, status.error) == ("stopped", "")
        sentences = given(self.run.folder)
        assert sentences > 0
        assert check(self.run.folder, sentences) == Verdict(lost=0, doubled=0)


@contextmanager
def trials(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trial]]:
    """Yield a function that starts a run for faults; it is stopped at the end."""
    monkeypatch.setattr(members, "MAX_FAILURES", math.inf)  # no site is excluded, though all of them keep failing
    monkeypatch.setattr(members, "MAX_LATE", math.inf)
    started: list[Run] = []

    def start(cpu: float | None = None, patience: Recovery = IMPATIENT, **settings: Any) -> Trial:
        wait_as(patience, monkeypatch)
        settings = {"interval_s": CHECKPOINT_S, "max_restarts": 10_000, **settings}
        started.append(ps.run(counted(rate=300, cpu=cpu), runs=folder / "runs", **arguments(**settings)))
        return Trial(started[-1])

    try:
        yield start
    finally:
        for run in started:
            run.stop()
