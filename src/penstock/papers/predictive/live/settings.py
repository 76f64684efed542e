"""Applications of the live experiments: word count and log processing at Li's sizes on Li's machines, 150 × slower.

Service times, distances and the time per byte on the wire are scaled alike (`experiments.slow_motion`).

The machines are those of the experiments on the twin alone, including delays. The load is 30 % of what the default
placement carries: few machines have room for it, so placements differ in all relevant respects.
"""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.estimate.evaluator import Evaluator
from penstock.experiments.slow_motion import Phases, Workload, slowed, slowed_cluster
from penstock.model.cluster import Cluster
from penstock.model.errors import UnknownName, choices
from penstock.model.placement import Placement
from penstock.model.topology import Application
from penstock.papers.predictive.settings import li_cluster
from penstock.planning.planner import Planner
from penstock.workloads.running.blueprint import Feed
from penstock.workloads.running.log_processing import log_processing_flow
from penstock.workloads.running.word_count import word_count_flow
from penstock.workloads.storm_applications import log_processing, word_count

SLOWER = 150.0
MACHINES = 10
LOAD = 0.3  # of what the default placement carries
DEFAULT = "round-robin"


APPLICATIONS = {
    "word-count": Workload(word_count, word_count_flow),
    "log-processing": Workload(log_processing, log_processing_flow),
}


@dataclass(frozen=True)
class SlowedApplication:
    """An application under a load, relative to what the default placement carries."""

    name: str
    load: float = LOAD
    machines: int = MACHINES

    def flow(self, phases: Phases | None = None, seed: int = 0) -> Dataflow:
        """Return the application; without phases, under its constant load."""
        feed = Feed(arrivals=phases or Phases(self.rate_tps), seed=seed)
        return self._workload.flow(self._slowed, feed, False)

    @cached_property
    def application(self) -> Application:
        """The application as a model, with its load."""
        application = self.flow().application
        [source] = application.sources
        return msgspec.structs.replace(application, rate_tps={source.name: self.rate_tps})

    @cached_property
    def cluster(self) -> Cluster:
        """The machines, slowed down."""
        return slowed_cluster(li_cluster(self.machines), SLOWER)

    @cached_property
    def default(self) -> Placement:
        """The default placement."""
        found = Planner(self._slowed, self.cluster).decide(DEFAULT).result
        assert isinstance(found, Placement), "there is room for all tasks"
        return found

    @cached_property
    def maximum_tps(self) -> float:
        """Maximum rate of source tuples that the default placement carries if streams split evenly."""
        return Evaluator(self._slowed, self.cluster).evaluate(self.default).even_tps

    @property
    def rate_tps(self) -> float:
        """Offered source tuples per second."""
        return self.load * self.maximum_tps

    @property
    def _workload(self) -> Workload:
        if self.name not in APPLICATIONS:
            raise UnknownName("application", f"none is named {self.name!r}; there are {choices(APPLICATIONS)}")
        return APPLICATIONS[self.name]

    @cached_property
    def _slowed(self) -> Application:
        return slowed(self._workload.model(), SLOWER)
