"""Cost of a tuple in a worker: processor time through source, map and sink, without sockets.

Workers run in this process, on its clock. Their frames are passed on as bytes. Every case is measured five times.
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import penstock as ps
from penstock.api.contracts import Sink, Source, TaskContext
from penstock.runtime.protocol import controller_messages
from penstock.runtime.worker.state_machine import Worker
from penstock.testing import TestCluster

ROUNDS = 5
MANY = 10**6


@dataclass(frozen=True)
class Case:
    """One setting: slots of tasks, maximum number of tuples per poll, and number of tuples to process."""

    name: str
    placement: tuple[str, ...]
    polled: int
    tuples: int
    sample_tps: float = 0.0


CASES = (
    Case("one worker, batches", ("w0/0", "w0/0", "w0/0"), MANY, 1_000_000),
    Case("two workers, batches", ("w0/0", "w1/0", "w0/0"), MANY, 300_000),
    Case("two workers, by key, two tasks each", ("w0/0", "w1/0") * 3, MANY, 150_000),
    Case("one worker, tuple by tuple", ("w0/0", "w0/0", "w0/0"), 1, 40_000),
    Case("two workers, tuple by tuple", ("w0/0", "w1/0", "w0/0"), 1, 20_000),
    Case("one worker, every tuple traced", ("w0/0", "w0/0", "w0/0"), MANY, 20_000, -1.0),
)


class Numbers(Source[int]):
    """Consecutive numbers, always due."""

    def __init__(self, most: int) -> None:
        self.most = most

    def open(self, context: TaskContext) -> None:
        """Start at zero."""
        self.at = 0

    def poll(self, now: float, limit: int) -> list[int]:
        """Return the next numbers."""
        first = self.at
        self.at += min(limit, self.most)
        return list(range(first, self.at))


class Counting(Sink[int]):
    """Counts the tuples of all tasks."""

    taken = 0

    def write(self, values: Sequence[int]) -> None:
        """Count tuples."""
        Counting.taken += len(values)


def started(case: Case, folder: str) -> list[Worker]:
    """Return workers that run the application, with the assignments that a controller sends."""
    tasks, flow = len(case.placement) // 3, ps.Dataflow("tuples")
    numbers = flow.source("numbers", Numbers(case.polled), emits=int, parallelism=tasks)
    plus = flow.map(
        "plus", lambda value: value + 1, numbers.fields() if tasks > 1 else numbers, emits=int, parallelism=tasks
    )
    flow.sink("out", Counting(), plus.fields() if tasks > 1 else plus, parallelism=tasks)
    count = len({*case.placement})
    options: dict[str, Any] = {"sample_tps": case.sample_tps, "window": 1024, "telemetry": case.sample_tps != 0.0}
    cluster = TestCluster(
        flow, workers=count, placement=case.placement, capture=False, folder=folder, **options
    ).start()
    workers = [Worker(flow, "test", time.monotonic) for _ in range(count)]
    for worker, assigned in zip(workers, cluster.workers, strict=True):
        worker.command(assigned.assigned)
        worker.command(controller_messages.Start(worker.epoch))
    return workers


def process(workers: list[Worker], tuples: int) -> int:
    """Let workers take turns until tuples have reached the sinks; return their number."""
    first = Counting.taken
    while Counting.taken < first + tuples:
        for worker in workers:
            worker.turn()
            for target, frames in worker.outbox.take_frames().items():
                for frame in frames:
                    workers[target].frame(frame)
            worker.outbox.take_messages()
            worker.take_records()
    return Counting.taken - first


def measure(case: Case) -> list[float]:
    """Return the microseconds of processor time per source tuple, of every round."""
    with tempfile.TemporaryDirectory() as folder:
        workers = started(case, folder)
        process(workers, case.tuples // 5)
        times = []
        for _ in range(ROUNDS):
            gc.collect()
            began = time.process_time()
            count = process(workers, case.tuples)
            times.append(1e6 * (time.process_time() - began) / count)
        for worker in workers:
            worker.command(controller_messages.Stop())
    return times


def main() -> None:
    """Print the cost of a tuple in every case."""
    for case in CASES:
        times = measure(case)
        print(f"{case.name:<36} {statistics.median(times):7.3f} µs per tuple ({min(times):.3f} to {max(times):.3f})")


if __name__ == "__main__":
    main()
