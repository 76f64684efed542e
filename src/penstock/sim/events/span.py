"""The results of a span of a run of the twin."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats


@dataclass(frozen=True)
class TwinSpan:
    """A span of virtual time; T tasks in task-graph order, M machines, E edges in the order of `Instance.edges`.

    A mean of no values is NaN.
    """

    start: float
    end: float
    offered: int  # source tuples that fell due
    emitted: int  # those emitted by sources
    completed: int  # those whose whole tree completed
    lost: int  # those of which a part was lost with a machine
    in_flight: int  # emitted and not completed, at the end of the span
    waiting: int  # due and not emitted, at the end of the span
    hops: int  # tuples that operators and sinks processed
    latencies: Floats  # [completed] s from due to the completion of the whole tree, in order of completion
    processed: Longs  # [T] tuples
    given: Longs  # [T] tuples put into out-queues
    busy_s: Floats  # [T] in service, of the processed tuples
    waited_s: Floats  # [T] between arrival and start of service, of the started tuples
    taken: Longs  # [T] tuples whose service started
    blocked_s: Floats  # [T] blocked by a full out-queue
    queue: Longs  # [T] tuples waiting in front of each task, at the end of the span; sources: due and not emitted
    waiting_out: Longs  # [T] tuples in its out-queues, at the end of the span
    machine_cpu: Floats  # [M] fraction of its cores in use
    edge_tuples: Longs  # [E] tuples whose service started
    edge_transfer_s: Floats  # [E] sum over them from entering the out-queue to start of service
    component_processing_s: dict[str, float]  # mean from start to end of service, by component
    stream_tuples: dict[str, int]  # by label, `source->target`
    stream_transfer_s: dict[str, float]  # mean from entering the out-queue to start of service, by label

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start

    @property
    def throughput_tps(self) -> float:
        """Source tuples per second whose whole tree completed."""
        return self.completed / self.seconds if self.seconds > 0 else float("nan")

    @cached_property
    def mean_s(self) -> float:
        """Mean latency."""
        return float(self.latencies.mean()) if len(self.latencies) else float("nan")

    @property
    def p50_s(self) -> float:
        """The latency that half of the tuples do not exceed."""
        return self._percentiles[0]

    @property
    def p95_s(self) -> float:
        """The latency that 95 % of the tuples do not exceed."""
        return self._percentiles[1]

    @property
    def p99_s(self) -> float:
        """The latency that 99 % of the tuples do not exceed."""
        return self._percentiles[2]

    @cached_property
    def _percentiles(self) -> tuple[float, float, float]:
        if not len(self.latencies):
            return float("nan"), float("nan"), float("nan")
        p50, p95, p99 = np.percentile(self.latencies, (50, 95, 99))
        return float(p50), float(p95), float(p99)

    @property
    def processing_s(self) -> Floats:
        """Mean time of every task from start to end of the service of a tuple. [T]"""
        return _ratio(self.busy_s, self.processed)

    @property
    def wait_s(self) -> Floats:
        """Mean time that tuples waited in front of every task. [T]"""
        return _ratio(self.waited_s, self.taken)


def _ratio(total: Floats, number: Longs) -> Floats:
    mean: Floats = np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)
    return mean
