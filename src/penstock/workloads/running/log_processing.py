"""Log processing: rules parse every line; an index stores its terms, and a counter counts its type."""

import hashlib
import re
from typing import Any

import msgspec

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.model.topology import Application
from penstock.workloads.running.blueprint import Blueprint
from penstock.workloads.running.counts import Count, LatestCounts, RunningCounts
from penstock.workloads.running.feed import Feed
from penstock.workloads.running.log_rules import LogEntry, parse
from penstock.workloads.running.logs import LogLines

_TERM = re.compile(r"\d+(?:\.\d+)+|\w{2,}")  # addresses and versions are single terms


class Posting(msgspec.Struct, frozen=True):
    """The input of an inverted index for one entry: its terms."""

    entry: str  # hash of the line; equal for equal lines
    terms: tuple[str, ...]  # in order, each once


def postings(entry: LogEntry) -> Posting:
    """Return the terms of an entry's message and source, with an id that is the same in every task."""
    text = "\n".join((entry.time, entry.source, entry.message))
    terms = set(_TERM.findall(f"{entry.source} {entry.message}".lower()))
    return Posting(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest(), tuple(sorted(terms)))


class CountTypes(RunningCounts[LogEntry]):
    """The number of entries of each type."""

    def process(self, value: LogEntry) -> tuple[Count]:
        """Count an entry's type."""
        return self.add(value.entry_type)


def log_processing_flow(application: Application, feed: Feed, output: bool = True) -> Dataflow:
    """Return the dataflow of a log-processing topology: source, rules, then index and count with one database each.

    Lines are generated, or those of `feed.input`. In the run's folder, `output/index` contains the postings as lines of
    JSON, and `output/counts` the latest count of each type.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    [(name, own)] = feed.split(model.shares()).items()
    lines = flow.source(name, own.source(LogLines(own.seed)), emits=str, **model.costs(name))
    entries = flow.map("rules", parse, model.outlet(lines, "rules"), **model.costs("rules"))
    index = flow.map("index", postings, model.outlet(entries, "index"), **model.costs("index"))
    counts = flow.operator("count", CountTypes, model.outlet(entries, "count", "entry_type"), **model.costs("count"))
    databases: dict[str, Sink[Any]] = {
        "index-database": JsonLines("output/index") if output else Discard(),
        "count-database": LatestCounts() if output else Discard(),
    }
    for outlet, (name, database) in zip((index, counts), databases.items(), strict=True):
        flow.sink(name, database, model.outlet(outlet, name), **model.costs(name))
    return flow
