"""Word count as a Penstock dataflow on embedded Spark, not emulated: one component per worker, or all in one.

The counter's counts go to a sink in the same slot. Telemetry and sampled tracing are off by default, because the other
systems have none; `benchmarks.tracking` measures their cost.
"""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from benchmarks.streaming.work import Measured, Recorder, Schedule, load, now, paced, unpaced
from penstock.model.plan import digest
from penstock.runtime.config import Checkpointing, Execution, RunConfig, Telemetry
from penstock.startup.start import start

BATCH = 1_000

Sentence = tuple[int, float, str]  # number, due time, text
Word = tuple[str, int, float]  # the word; number and due time of its sentence
Count = tuple[str, int, int, float]  # the word; its count; number and due time of the sentence


class Sentences(ps.Source[Sentence]):
    """Sentences as they become due."""

    rewinds = True

    def __init__(self, rate: float | None, seconds: float) -> None:
        self._schedule = Schedule(rate, seconds)

    def poll(self, now: float, limit: int) -> list[Sentence] | None:
        """Return the sentences that are due."""
        if self._schedule.ended(now):
            return None
        return [tuple(sentence) for sentence in self._schedule.take(now, min(limit, BATCH))]  # type: ignore[misc]

    def next_due(self, now: float) -> float:
        """Return when the next sentence is due."""
        return self._schedule.next_due(now)

    def position(self) -> tuple[int, float]:
        """Return the number of sentences so far, and the start time."""
        return self._schedule.taken, self._schedule.start

    def seek(self, position: tuple[int, float]) -> None:
        """Continue after a number of sentences."""
        self._schedule.taken, self._schedule.start = position


def split(sentence: Sentence) -> list[Word]:
    """Split a sentence into words."""
    number, due, text = sentence
    return [(word, number, due) for word in text.split()]


class Counter(ps.Operator[Word, Count]):
    """Counts words and emits every new count."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, value: Word) -> Iterable[Count]:
        """Count one word."""
        word, number, due = value
        count = self.counts[word] = self.counts.get(word, 0) + 1
        return ((word, count, number, due),)

    def snapshot(self) -> dict[str, int]:
        """Return the counts."""
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        """Continue from restored counts."""
        self.counts = state


class Arrivals(ps.Sink[Count]):
    """Records the words that arrive."""

    def __init__(self, path: Path, paced: bool) -> None:
        self._path = path
        self._paced = paced
        self._seen = Recorder()

    def write(self, values: Sequence[Count]) -> None:
        """Record words that have arrived."""
        time, counts = now(), self._seen.counts
        if self._paced:
            for word, count, number, due in values:
                counts[word] = count
                self._seen.see(number, due, time)
        else:
            for word, count, _, _ in values:
                counts[word] = count
            self._seen.see_many(len(values), time)

    def snapshot(self) -> None:
        """Return nothing: recorded words stay here, in a run without failures."""

    def close(self) -> None:
        """Save the recorded words."""
        self._seen.save(self._path)


def measure(
    rate: float | None, seconds: float, workers: int = 3, sample: float = 0.0, checkpoint_s: float = 0.0
) -> Measured:
    """Run once.

    sample: source tuples traced per second, with telemetry; below 0: all of them.
    checkpoint_s: seconds between checkpoints; 0: only one, at the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seen.npz"
        flow = ps.Dataflow("words")
        sentences = flow.source("sentences", lambda: Sentences(rate, seconds), emits=Sentence)
        words = flow.flat_map("split", split, sentences, emits=Word)
        counts = flow.operator("count", Counter, words.fields(0), emits=Count)
        flow.sink("arrivals", lambda: Arrivals(path, rate is not None), counts)
        run = start(
            flow,
            plan=_plan(flow, workers),
            config=RunConfig(
                execution=Execution(slots=workers),
                checkpointing=Checkpointing(interval_s=checkpoint_s),
                telemetry=Telemetry(enabled=bool(sample), sample_tps=-1.0 if sample < 0 else sample),
            ),
            runs=folder,
        )
        run.wait()
        if error := run.status().error:
            raise RuntimeError(error)
        seen = load([path])
    return unpaced(seen.times, seen.words, seen.counted) if rate is None else paced(seen, rate, seconds)


def _plan(flow: ps.Dataflow, workers: int) -> ps.Plan:
    """Put each component into a slot of its own, as far as there are slots; the sink stays with the counter."""
    from penstock.startup.executor_discovery import discover

    cluster = discover([], local=True, slots=workers)
    slot = {name: min(number, workers - 1) for number, name in enumerate(("sentences", "split", "count"))}
    slot["arrivals"] = slot["count"]
    made: dict[str, Any] = {
        "application": flow.name,
        "cluster": cluster.name,
        "application_digest": digest(flow.application),
        "cluster_digest": digest(cluster),
        "policy": "one component per slot" if workers > 1 else "all in one slot",
        "objective": "throughput",
    }
    return ps.Plan(**made, tasks={name: (f"local/{slot[name]}",) for name in slot})
