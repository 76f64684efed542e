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


def count(before: int, word: str) -> tuple[int, tuple[str, int]]:
    """Count a word: return the state of the word, and what to emit."""
    return before + 1, (word, before + 1)


flow = ps.Dataflow("word-count-example")
lines = flow.source("lines", ps.Generated(line, rate=100, count=1000), cpu=0.00001)
words = flow.flat_map("split", str.split, lines, emits=str, parallelism=2, cpu=0.0004)
counts = flow.stateful_map("count", count, words.costing(selectivity=7).fields(), initial=0, parallelism=3, cpu=0.0001)
flow.sink("store", ps.JsonLines("output/counts"), counts, cpu=0.0001)


if __name__ == "__main__":
    result = testing.run(flow, workers=3)
    totals: dict[str, int] = {}
    for word, count in result["store"]:
        totals[word] = max(count, totals.get(word, 0))
    for word, count in sorted(totals.items(), key=lambda pair: (-pair[1], pair[0])):
        print(f"{count:5} {word}")
