"""A word count that writes every single count, as JSON and as Parquet, so that lost and doubled tuples are detected.

Each word occurs a known number of times, and each time its running count goes to both sinks. The committed output is
correct if every word has every count from 1 to its last exactly once, whatever happened during the run.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

import penstock as ps
from penstock.runtime.storage.checkpoints import find_latest
from penstock.runtime.storage.disk import Posix

WORDS = 101
LENGTH = 5  # words per sentence


class Counted(msgspec.Struct, frozen=True):
    """A word, and the number of its occurrences so far."""

    word: str
    count: int


def sentence(number: int) -> str:
    """Return a sentence with known words."""
    return " ".join(f"w{(number * 7 + place * place * (number % 5)) % WORDS}" for place in range(LENGTH))


def split(text: str) -> list[str]:
    """Return the words of a sentence."""
    return text.split()


def truth(sentences: int) -> dict[str, int]:
    """Return the number of occurrences of each word in a number of sentences, which repeat."""
    turn = WORDS * LENGTH
    whole, rest = divmod(sentences, turn)
    counts = Counter(word for number in range(rest) for word in split(sentence(number)))
    if whole:
        for word, count in Counter(word for number in range(turn) for word in split(sentence(number))).items():
            counts[word] += whole * count
    return dict(counts)


class Count(ps.Operator[str, Counted]):
    """Counts words. Each word may have ballast, which determines the size of the state."""

    def __init__(self, ballast: int = 0) -> None:
        self._ballast = ballast
        self._counts: dict[str, int] = {}

    def process(self, value: str) -> list[Counted]:
        """Count one word."""
        self._counts[value] = self._counts.get(value, 0) + 1
        return [Counted(value, self._counts[value])]

    def snapshot(self) -> tuple[dict[str, int], bytes]:
        """Return the counts so far."""
        return self._counts, bytes(self._ballast)

    def restore(self, state: tuple[dict[str, int], bytes]) -> None:
        """Continue from restored counts."""
        self._counts = state[0]


def counted(count: int | None = None, rate: float | None = None, cpu: float | None = None) -> ps.Dataflow:
    """Return the application; count None: it never ends by itself. `cpu` is the cost per tuple, for planning."""
    flow = ps.Dataflow("counted")
    costs: dict[str, Any] = {} if cpu is None else {"cpu": cpu}
    lines = flow.source("lines", ps.Generated(sentence, rate=rate, count=count))
    words = flow.flat_map("split", split, lines, parallelism=2, **costs)
    counts = flow.operator("count", Count, words.fields(ps.Named("word")), parallelism=2, emits=Counted, **costs)
    flow.sink("lines-out", ps.JsonLines("output/lines"), counts.fields("word"), parallelism=2, **costs)
    flow.sink("table-out", ps.Parquet("output/table", schema=Counted), counts)
    return flow


class Verdict(NamedTuple):
    """Number of missing counts, and of counts that are duplicated or wrong."""

    lost: int
    doubled: int


def given(folder: Path) -> int:
    """Return the number of sentences that a run had read at its end, from its last checkpoint."""
    last, problems = find_latest(Posix(), str(folder / "checkpoints"))
    assert last is not None, problems
    assert last.last, f"the run has not ended, checkpoint {last.number} is not its last"
    return sum(task.counted for task in last.tasks if task.task.startswith("lines["))


def check(folder: Path, sentences: int) -> Verdict:
    """Compare the committed output of both sinks of a run with the expected one."""
    wanted = truth(sentences)
    lost = doubled = 0
    for rows in (_lines(folder / "output/lines"), _table(folder / "output/table")):
        seen = {word: np.zeros(most + 1, dtype=np.int64) for word, most in wanted.items()}
        for word, count in rows:
            if word in seen and 0 < count < len(seen[word]):
                seen[word][count] += 1
            else:
                doubled += 1
        for times in seen.values():
            lost += int(np.count_nonzero(times[1:] == 0))
            doubled += int((times[times > 1] - 1).sum())
    return Verdict(lost, doubled)


def _lines(folder: Path) -> Iterator[tuple[str, int]]:
    decoder = msgspec.json.Decoder(Counted)
    for path in sorted(folder.glob("part-*.jsonl")):
        for row in decoder.decode_lines(path.read_bytes()):
            yield row.word, row.count


def _table(folder: Path) -> Iterator[tuple[str, int]]:
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(path)
        yield from zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True)
