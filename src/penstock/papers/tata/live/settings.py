"""Machines and applications of the live figures: the paper's, in slow motion.

The machines are TATA's: 1, 2 and 4 cores of 2.5, 2.0 and 2.6 GHz, 2, 4 and 8 GB, two slots each. Each application is
slowed down until all machines together, fully busy, process 600 tuples per second, which two cores of a host can
emulate. Distances are 1 to 4 ms as in the paper: in slow motion, this is what the network of a data centre takes.

The paper does not state the numbers of tasks (its text has lost them with Figure 5); here they are between one task and
four per component. Its sinks count or do nothing, so they cost little here.
"""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.experiments.slow_motion import Phases, Workload, slowed
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Application, Kind
from penstock.workloads.clusters import tata
from penstock.workloads.flink_applications import (
    CLUSTER_CPU,
    synthetic_communication,
    throughput_test,
    top_speed_windowing,
)
from penstock.workloads.running.blueprint import Feed
from penstock.workloads.running.log_processing import log_processing_flow
from penstock.workloads.running.random_text import synthetic_communication_flow, throughput_test_flow
from penstock.workloads.running.top_speed import top_speed_flow
from penstock.workloads.running.word_count import word_count_flow
from penstock.workloads.storm_applications import log_processing, word_count

BUSY_TPS = 600.0  # tuples that all tasks together process per second if every core is busy
SINK_CPU = 1e-6  # of a sink that counts, in s
WINDOW = 4  # tuples in flight per channel; few, so that senders soon see which tasks have no room
LATE = 0.25  # maximum share of checks at which the emulation lags
OVER = 1.05  # arrivals relative to what the twin says that a placement carries


def _counting(application: Application) -> Application:
    """Return an application whose sinks only count."""
    components = tuple(
        msgspec.structs.replace(one, cpu=SINK_CPU) if one.kind is Kind.SINK else one for one in application.components
    )
    return msgspec.structs.replace(application, components=components)


APPLICATIONS = {
    "throughput-test": Workload(throughput_test, throughput_test_flow),
    "word-count": Workload(lambda: _counting(word_count(2, 4, 4, 2)), word_count_flow),
    "top-speed-windowing": Workload(top_speed_windowing, top_speed_flow),
    "log-processing": Workload(lambda: _counting(log_processing(2, 4, 4, 4, 2)), log_processing_flow),
    "synthetic-communication": Workload(synthetic_communication, synthetic_communication_flow),
}


@dataclass(frozen=True)
class EmulatedApplication:
    """One of the applications in slow motion, on the emulated machines."""

    name: str

    def flow(self, phases: Phases, seed: int) -> Dataflow:
        """Return the application as code, with its arrivals."""
        return APPLICATIONS[self.name].flow(self.application, Feed(arrivals=phases, seed=seed), False)

    @cached_property
    def cluster(self) -> Cluster:
        """The machines."""
        return tata()

    @cached_property
    def slower(self) -> float:
        """The factor between the application's speed and ours."""
        tasks = expand_tasks(APPLICATIONS[self.name].model())
        return float(CLUSTER_CPU / (tasks.cpu @ tasks.gain) * tasks.gain.sum() / BUSY_TPS)

    @cached_property
    def application(self) -> Application:
        """The application as a model."""
        return slowed(APPLICATIONS[self.name].model(), self.slower)
