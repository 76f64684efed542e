"""A trial: one application on emulated machines, in one run whose tuple policies are switched repeatedly."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np

from penstock.experiments.live_cases import Report, looks_late, measured_run
from penstock.model.tuples import TuplePolicies
from penstock.papers.hone.live.episodes import Episodes
from penstock.papers.hone.live.settings import EmulatedWordCount
from penstock.runtime.run import Run

LOOK_S = 0.25  # between two checks of the emulation's lag
AHEAD_S = 0.15  # by which policies are set before an episode starts
ENDED_S = 0.02  # after the last arrival of an episode, when its policies are reset
DRAIN_S = 30.0


class Choice(NamedTuple):
    """The tuple policies of an episode."""

    routing: str
    sending: str

    @property
    def text(self) -> str:
        """Both, for people."""
        return f"{self.routing} + {self.sending}"


PLAIN = Choice("round-robin", "fifo")
"""In force between episodes, so that all tuples of a choice complete before the next one starts."""


@dataclass(frozen=True)
class Trial:
    """A run, and the choices that are compared in it."""

    setting: EmulatedWordCount
    episodes: Episodes
    choices: Sequence[Choice]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The choice of every episode, by number; every round has each once, in a random order of its own."""
        rng = np.random.default_rng([self.episodes.seed, len(self.choices)])
        rounds = [rng.permutation(len(self.choices)).tolist() for _ in range(self.episodes.rounds)]
        first = [rounds[0][0]]
        return tuple(first + [place for one in rounds for place in one])


class Conducted(NamedTuple):
    """Observations of the driver during a trial."""

    telemetry: Path
    late: tuple[float, ...]  # share of checks at which the emulation lagged, by episode


def conduct(trial: Trial, folder: Path, report: Report) -> Conducted:
    """Run a trial and return the observations; its telemetry is below a folder."""
    trial.episodes.whole  # noqa: B018  drawn here, not in the workers
    setting, episodes = trial.setting, trial.episodes
    policies = TuplePolicies(routing=PLAIN.routing, sending=PLAIN.sending)
    running = measured_run(
        setting.flow(episodes), setting.cluster, folder, episodes.seed, policy=setting.policy, tuples=policies
    )
    with running as run:
        begun = monotonic() - run.status().seconds
        late = [_episode(run, trial, number, begun, report) for number in range(episodes.number)]
        _wait_for_all(run, episodes.number * episodes.size)
        run.drain(DRAIN_S)
    return Conducted(run.info.telemetry_path, tuple(late))


def _episode(run: Run, trial: Trial, number: int, begun: float, report: Report) -> float:
    """Set the policies of an episode while its tuples arrive; return the share of checks with a lagging emulation."""
    episodes, choice = trial.episodes, trial.choices[trial.order[number]]
    lengths, begin = episodes.lengths, begun + episodes.begin(number)
    which = f"round {episodes.round_of(number) + 1} of {episodes.rounds}" if number else "warming up"
    report(f"{which}: {choice.text}")
    _until(begin - AHEAD_S)
    _switch(run, choice)
    _until(begin + lengths.settle)
    late = looks_late(run, begin + lengths.busy, LOOK_S)
    _until(begin + lengths.busy + ENDED_S)
    _switch(run, PLAIN)
    return late


def _wait_for_all(run: Run, tuples: int) -> None:
    """Wait until sources have emitted all tuples; in overload they are behind."""
    deadline = monotonic() + DRAIN_S
    while run.status().emitted < tuples and monotonic() < deadline:
        sleep(LOOK_S)


def _switch(run: Run, choice: Choice) -> None:
    run.switch(routing=choice.routing, sending=choice.sending)


def _until(when: float) -> None:
    sleep(max(0.0, when - monotonic()))
