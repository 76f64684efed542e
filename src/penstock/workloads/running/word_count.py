"""Word count: how often every word of a stream of sentences has come so far."""

import re

from penstock.api.dataflow import Dataflow
from penstock.api.keys import Named
from penstock.api.sinks.discard import Discard
from penstock.model.topology import Application
from penstock.workloads.running.blueprint import Blueprint
from penstock.workloads.running.counts import Count, LatestCounts, RunningCounts
from penstock.workloads.running.feed import Feed
from penstock.workloads.running.text import Sentences

QUEUE = "queue-source"  # of two sources, the one that does not read files

_WORD = re.compile(r"[^\W\d_]+")


def split(sentence: str) -> list[str]:
    """Return the words of a sentence: runs of letters, in lower case."""
    return _WORD.findall(sentence.lower())


class CountWords(RunningCounts[str]):
    """How often each word has come."""

    def process(self, value: str) -> tuple[Count]:
        """Count a word."""
        return self.add(value)


def word_count_flow(application: Application, feed: Feed, output: bool = True) -> Dataflow:
    """Return the dataflow of a word-count topology: source, split, count, database.

    Sentences are generated, or lines of `feed.input`; with two sources only the second reads it, as its name says. The
    database keeps the latest count of each word in `output/counts` of the run's folder.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    sources = [
        flow.source(name, own.source(Sentences(own.seed), generated=name == QUEUE), gives=str, **model.costs(name))
        for name, own in feed.split(model.shares()).items()
    ]
    words = flow.flat_map("split", split, *(model.way(source, "split") for source in sources), **model.costs("split"))
    counts = flow.operator("count", CountWords, model.way(words, "count", Named("word")), **model.costs("count"))
    database = LatestCounts() if output else Discard()
    flow.sink("database", database, model.way(counts, "database"), **model.costs("database"))
    return flow
