"""A small word count whose right answer is known, for tests that really run it."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import penstock as ps
from penstock.model.errors import InvalidInput

WORDS = 23


def sentence(number: int) -> str:
    """Return five words, of which some are frequent and some rare."""
    return " ".join(f"w{(number * 7 + place * place * (number % 5)) % WORDS}" for place in range(5))


def split(text: str) -> list[str]:
    """Return the words of a sentence."""
    return text.split()


def truth(sentences: int) -> dict[str, int]:
    """Return the count of each word in a number of sentences."""
    return dict(Counter(word for number in range(sentences) for word in split(sentence(number))))


class Count(ps.Operator[str, tuple[str, int]]):
    """Gives every word with how often it has come."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, value: str) -> list[tuple[str, int]]:
        """Count one word."""
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]

    def snapshot(self) -> dict[str, int]:
        """Return the counts so far."""
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        """Restore counts."""
        self.counts = state


class InOrder(ps.Sink[tuple[str, int]]):
    """Refuses a count that does not follow the last one of its word; its last counts are left in a file a task."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}

    def open(self, context: ps.TaskContext) -> None:
        """Note where to leave them."""
        self.path = Path(context.folder, "output", f"last-{context.task}.json")

    def write(self, values: Sequence[tuple[str, int]]) -> None:
        """Look at the counts of a batch."""
        for word, count in values:
            before = self.last.get(word, 0)
            if count != before + 1:
                raise InvalidInput(word, f"expected {before + 1} after {before}, got {count}")
            self.last[word] = count

    def snapshot(self) -> dict[str, int]:
        """Return the last counts."""
        return self.last

    def restore(self, state: dict[str, int]) -> None:
        """Restore counts."""
        self.last = state

    def close(self) -> None:
        """Leave the last counts, in place of those left where the task was before."""
        temporary = self.path.with_name(f"_{self.path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(self.last))
        os.replace(temporary, self.path)


def words(
    count: int | None = None,
    rate: float | None = None,
    sink: ps.Sink[tuple[str, int]] | None = None,
    operator: type[ps.Operator[str, tuple[str, int]]] = Count,
) -> ps.Dataflow:
    """Return the application: one source, and two tasks of everything else."""
    flow = ps.Dataflow("words")
    sentences = flow.source("lines", ps.Generated(sentence, rate=rate, count=count))
    word = flow.flat_map("split", split, sentences, parallelism=2)
    counts = flow.operator("count", operator, word.fields(ps.Named("word")), parallelism=2)
    flow.sink("out", sink or InOrder(), counts.fields(0), parallelism=2)
    return flow


def last_counts(folder: Path) -> dict[str, int]:
    """Return what the sinks of a run have left."""
    found: dict[str, int] = {}
    for path in sorted((folder / "output").glob("last-*.json")):
        reported = json.loads(path.read_text())
        assert not found.keys() & reported.keys()
        found |= reported
    return found
