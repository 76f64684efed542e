"""What happened in a span of a run of the twin."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats


@dataclass(frozen=True)
class TwinSpan:
    """A stretch of virtual time; T tasks in task-graph order, M machines, E edges in the order of `Instance.edges`.

    A mean of nothing is not a number.
    """

    start: float
    end: float
    offered: int  # source tuples that fell due
    emitted: int  # those that sources gave
    completed: int  # those whose whole tree ended
    lost: int  # those of which a part was lost with a machine
    in_flight: int  # given and not ended, when the span ends
    waiting: int  # due and not given, when the span ends
    hops: int  # tuples that operators and sinks processed
    latencies: Floats  # [completed] s from due to the end of the whole tree, in the order of ends
    processed: Longs  # [T] tuples
    given: Longs  # [T] tuples put into out-queues
    busy_s: Floats  # [T] in service, of what was processed
    waited_s: Floats  # [T] between arrival and being taken up, of what was taken up
    taken: Longs  # [T] tuples taken up
    blocked_s: Floats  # [T] in which it could not go on as an out-queue was full
    queue: Longs  # [T] tuples waiting before each task, when the span ends; of a source those due and not given
    waiting_out: Longs  # [T] tuples in its out-queues, when the span ends
    machine_cpu: Floats  # [M] share of its cores in use
    edge_tuples: Longs  # [E] tuples taken up
    edge_transfer_s: Floats  # [E] sum over them from the entry into the out-queue until taken up
    component_processing_s: dict[str, float]  # mean from taking up to the end of processing, by component
    stream_tuples: dict[str, int]  # by label, `source->target`
    stream_transfer_s: dict[str, float]  # mean from the entry into the out-queue until taken up, by label

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start

    @property
    def throughput_tps(self) -> float:
        """Source tuples per second whose whole tree ended."""
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
        """Mean time of every task from taking a tuple up to the end of its processing. [T]"""
        return _ratio(self.busy_s, self.processed)

    @property
    def wait_s(self) -> Floats:
        """Mean time that tuples waited before every task. [T]"""
        return _ratio(self.waited_s, self.taken)


def _ratio(total: Floats, number: Longs) -> Floats:
    mean: Floats = np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)
    return mean
