"""Word count as a bytewax dataflow; runs in bytewax's own environment, started by `bytewax_cluster`.

Following bytewax's guide on performance: every worker reads a share of the source, processes instead of threads for
parallelism, `next_awake` instead of sleeping, and no exchange other than the one by word. The project's own environment
has no bytewax, so its base classes have no types there.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.streaming.work import Recorder, Schedule, Sentence, now

BATCH = 1_000
"""Maximum number of sentences per batch; the default of bytewax's Kafka source."""

Word = tuple[str, tuple[int, float]]  # the word; number and due time of its sentence
Count = tuple[str, tuple[int, int, float]]  # the word; its count; number and due time of the sentence


class Sentences(StatelessSourcePartition[Sentence]):  # type: ignore[misc]
    """Sentences as they become due."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def next_batch(self) -> list[Sentence]:
        """Return the sentences that are due."""
        time = now()
        if self.schedule.ended(time):
            raise StopIteration
        return self.schedule.take(time, BATCH)

    def next_awake(self) -> datetime | None:
        """Return when the next sentence is due; bytewax needs it on the wall clock."""
        time = now()
        due = self.schedule.next_due(time)
        return datetime.now(UTC) + timedelta(seconds=due - time) if due > time else None


class SentenceSource(DynamicSource[Sentence]):  # type: ignore[misc]
    """A share of the sentences for every worker."""

    def __init__(self, rate: float | None, seconds: float) -> None:
        self.rate = rate
        self.seconds = seconds

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Sentences:
        """Return one worker's share."""
        return Sentences(Schedule(self.rate, self.seconds, worker_index, worker_count))


class PacedSink(StatelessSinkPartition[Count]):  # type: ignore[misc]
    """Records every word."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen = Recorder()

    def write_batch(self, items: list[Count]) -> None:
        """Record words that have arrived."""
        time, see, counts = now(), self.seen.see, self.seen.counts
        for word, (count, number, due) in items:
            counts[word] = count
            see(number, due, time)

    def close(self) -> None:
        """Save the recorded words."""
        self.seen.save(self.path)


class UnpacedSink(PacedSink):
    """Records the number of words that arrive."""

    def write_batch(self, items: list[Count]) -> None:
        """Record words that have arrived."""
        counts = self.seen.counts
        for word, (count, _, _) in items:
            counts[word] = count
        self.seen.see_many(len(items), now())


class RecordingSink(DynamicSink[Count]):  # type: ignore[misc]
    """A sink for every worker, with a file of what it recorded."""

    def __init__(self, folder: Path, *, paced: bool) -> None:
        self.folder = folder
        self.kind = PacedSink if paced else UnpacedSink

    def build(self, step_id: str, worker_index: int, worker_count: int) -> PacedSink:
        """Return one worker's sink."""
        return self.kind(self.folder / f"{worker_index}.npz")


def split(sentence: Sentence) -> list[Word]:
    """Return the words of a sentence, each with the fields that time it."""
    origin = (sentence.number, sentence.due)
    return [(word, origin) for word in sentence.text.split()]


def count(state: int | None, origin: tuple[int, float]) -> tuple[int, tuple[int, int, float]]:
    """Return the new count of a word, as state and as output."""
    number = (state or 0) + 1
    return number, (number, *origin)


def flow() -> Dataflow:
    """Return the dataflow configured by environment variables."""
    rate = float(os.environ["BENCH_RATE"]) or None
    folder = Path(os.environ["BENCH_FOLDER"])
    dataflow = Dataflow("word_count")
    sentences = op.input("sentences", dataflow, SentenceSource(rate, float(os.environ["BENCH_SECONDS"])))
    counts = op.stateful_map("count", op.flat_map("split", sentences, split), count)
    op.output("sink", counts, RecordingSink(folder, paced=rate is not None))
    return dataflow
