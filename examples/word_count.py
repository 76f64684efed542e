"""Word count: the number of occurrences of each word in a text, split by two tasks and counted by three.

python word_count.py                                          in this process, without Spark
penstock run word_count:flow --emulate hetero-small           on Spark, over emulated machines
"""

import penstock as ps
from penstock import testing

TEXT = """water comes down the pipe
the gate at the end of the pipe is open
the wheel turns as long as water comes
the gate is shut and the wheel stands
no water is lost"""


def line(number: int) -> str:
    """Return a line of the text."""
    lines = TEXT.splitlines()
    return lines[number % len(lines)]


class Count(ps.Operator[str, tuple[str, int]]):
    """Counts words and emits each new count; the counts move with the task."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process(self, value: str) -> list[tuple[str, int]]:
        """Count a word."""
        self.counts[value] = self.counts.get(value, 0) + 1
        return [(value, self.counts[value])]

    def snapshot(self) -> dict[str, int]:
        """Return the counts."""
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        """Restore the counts."""
        self.counts = state


flow = ps.Dataflow("word-count-example")
lines = flow.source("lines", ps.Generated(line, rate=100, count=1000), cpu=0.00001)
words = flow.flat_map("split", str.split, lines, emits=str, parallelism=2, cpu=0.0004)
counts = flow.operator("count", Count, words.costing(selectivity=7).fields(), parallelism=3, cpu=0.0001)
flow.sink("store", ps.JsonLines("output/counts"), counts, cpu=0.0001)


if __name__ == "__main__":
    result = testing.run(flow, workers=3)
    totals: dict[str, int] = {}
    for word, count in result["store"]:
        totals[word] = max(count, totals.get(word, 0))
    for word, count in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0])):
        print(f"{count:5} {word}")
