"""Log processing: every line is taken apart by rules, then put into an index of its terms and counted by its type."""

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

_TERM = re.compile(r"\d+(?:\.\d+)+|\w{2,}")  # addresses and versions stay whole


class Posting(msgspec.Struct, frozen=True):
    """What an inverted index takes in of one entry: under which terms it is to be found."""

    entry: str  # its id, which equal lines share
    terms: tuple[str, ...]  # in order, each once


def postings(entry: LogEntry) -> Posting:
    """Return the terms of an entry's message and source, under an id that any task would give it."""
    text = "\n".join((entry.time, entry.source, entry.message))
    terms = set(_TERM.findall(f"{entry.source} {entry.message}".lower()))
    return Posting(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest(), tuple(sorted(terms)))


class CountTypes(RunningCounts[LogEntry]):
    """How often each type of entry has come."""

    def process(self, value: LogEntry) -> tuple[Count]:
        """Count an entry's type."""
        return self.add(value.entry_type)


def log_processing_flow(application: Application, feed: Feed, output: bool = True) -> Dataflow:
    """Return the dataflow of a log-processing topology: source, rules, then index and count with a database each.

    Lines are generated, or those of `feed.input`. In the run's folder, `output/index` holds the postings as lines of
    JSON, and `output/counts` the latest count of each type.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    [(name, own)] = feed.split(model.shares()).items()
    lines = flow.source(name, own.source(LogLines(own.seed)), gives=str, **model.costs(name))
    entries = flow.map("rules", parse, model.way(lines, "rules"), **model.costs("rules"))
    index = flow.map("index", postings, model.way(entries, "index"), **model.costs("index"))
    counts = flow.operator("count", CountTypes, model.way(entries, "count", "entry_type"), **model.costs("count"))
    databases: dict[str, Sink[Any]] = {
        "index-database": JsonLines("output/index") if output else Discard(),
        "count-database": LatestCounts() if output else Discard(),
    }
    for outlet, (name, database) in zip((index, counts), databases.items(), strict=True):
        flow.sink(name, database, model.way(outlet, name), **model.costs(name))
    return flow
