"""Runs that measure what a placement carries: a little more arrives than that, and tuples are counted at the sinks.

Out-queues of emulated machines hold thousands of tuples, so that back-pressure would not reach the sources within a
run. They emit what arrives; it must be little more than is carried, as they take their share of the cores, too. (A
limit of the tuples in flight is no way out: its markers divide waiting tuples evenly among the receivers.)

Workers report their counts several times per second, each when it likes. A rate is therefore taken from one report of a
task to another, not from the beginning of a measurement to its end.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from penstock.api.dataflow import Dataflow
from penstock.experiments.live_cases import measured_run
from penstock.model.cluster import Cluster
from penstock.model.placement import Placement
from penstock.model.plan import to_plan
from penstock.model.status import Status
from penstock.model.topology import Kind, Topology
from penstock.papers.tata.live.settings import WINDOW
from penstock.runtime.controller.state_machine import RunFailed
from penstock.runtime.run import Run

LOOK_S = 0.1  # between two readings of the counts
MOST_LOAD = 3.0  # of the host, per core; beyond it, no run was seen to keep pace


class Placed(NamedTuple):
    """An application as code, where it runs, and whether its tuples are traced."""

    flow: Dataflow
    cluster: Cluster
    placement: Placement
    seed: int
    sample_tps: float


def host_is_busy() -> bool:
    """Return whether too many processes want a core for an emulation to keep pace."""
    return os.getloadavg()[0] > MOST_LOAD * (os.cpu_count() or 1)


class Carried(NamedTuple):
    """What was counted over some seconds."""

    emitted_tps: float  # source tuples emitted
    received_tps: float  # tuples that arrived at the sinks
    late: float  # share of checks at which the emulation lagged


@dataclass
class Counts:
    """Counts of tasks, with the times of the first and the last report that was seen of each."""

    first: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    last: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict)
    known: dict[tuple[str, int], int] = field(default_factory=dict)

    def see(self, now: float, counts: Mapping[tuple[str, int], int]) -> None:
        """Take the current counts; one that has not changed since the last call was not reported again."""
        for task, count in counts.items():
            if self.known.setdefault(task, count) != count:
                self.known[task] = count
                self.first.setdefault(task, (now, count))
                self.last[task] = (now, count)

    def rate(self, component: str) -> float:
        """Return the tuples per second of all tasks of a component; 0 for a task that was seen less than twice."""
        total = 0.0
        for task, (since, before) in self.first.items():
            until, after = self.last[task]
            if task[0] == component and until > since:
                total += (after - before) / (until - since)
        return total


def running(what: Placed, folder: Path) -> AbstractContextManager[Run]:
    """Start a run on emulated machines, and stop it at the end; an error of the run is raised."""
    plan = to_plan(what.flow.application, what.cluster, what.placement, policy="given", objective="throughput")
    return measured_run(
        what.flow, what.cluster, folder, what.seed, plan=plan, sample_tps=what.sample_tps, window=WINDOW
    )


def carried(run: Run, until: float) -> Carried:
    """Count until a time."""
    counts, late = Counts(), []
    while (now := monotonic()) < until:
        status = run.status()
        if status.error:
            raise RunFailed(status.error)
        counts.see(now, processed(status))
        late.append(any("emulation" in warning for warning in status.warnings))
        sleep(LOOK_S)
    return carried_tps(counts, run.application, sum(late) / max(1, len(late)))


def carried_tps(counts: Counts, application: Topology, late: float) -> Carried:
    """Return the rates of all sources and of all sinks."""
    emitted, received = (
        sum(counts.rate(component.name) for component in application.components if component.kind is wanted)
        for wanted in (Kind.SOURCE, Kind.SINK)
    )
    return Carried(emitted, received, late)


def processed(status: Status) -> dict[tuple[str, int], int]:
    """Return how many tuples every task has processed so far; a source: emitted."""
    return {(one.name, task): count for one in status.components for task, count in enumerate(one.processed)}
