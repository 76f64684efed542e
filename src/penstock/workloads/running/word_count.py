"""Word count: the number of occurrences of every word in a stream of sentences."""

import re

from penstock.api.dataflow import Dataflow
from penstock.api.keys import Named
from penstock.api.sinks.discard import Discard
from penstock.model.topology import Application
from penstock.workloads.running.blueprint import Blueprint, Feed
from penstock.workloads.running.counts import LatestCounts, count_name
from penstock.workloads.running.text import Sentences

QUEUE = "queue-source"  # of two sources, the one that does not read files

_WORD = re.compile(r"[^\W\d_]+")


def split(sentence: str) -> list[str]:
    """Return the words of a sentence: runs of letters, in lower case."""
    return _WORD.findall(sentence.lower())


def word_count_flow(application: Application, feed: Feed, output: bool = True) -> Dataflow:
    """Return the dataflow of a word-count topology: source, split, count, database.

    Sentences are generated, or lines of `feed.input`; with two sources only the second one, the file source, reads it.
    The database stores the latest count of each word in `output/counts` of the run's folder.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    sources = [
        flow.source(name, own.source(Sentences(own.seed), generated=name == QUEUE), emits=str, **model.costs(name))
        for name, own in feed.split(model.shares()).items()
    ]
    words = flow.flat_map(
        "split", split, *(model.outlet(source, "split") for source in sources), **model.costs("split")
    )
    grouped = model.outlet(words, "count", Named("word"))
    counts = flow.stateful_map("count", count_name, grouped, initial=0, **model.costs("count"))
    database = LatestCounts() if output else Discard()
    flow.sink("database", database, model.outlet(counts, "database"), **model.costs("database"))
    return flow
