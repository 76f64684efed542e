"""Scenarios of the measurements: two applications share a machine, one floods, one of two paths is lost.

Sources and sinks are on one machine, workers on one or two others, slow enough to emulate.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from penstock.admission import fail, release
from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.generated import Generated
from penstock.experiments.figure import Row
from penstock.experiments.live_cases import Tell
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.decoding import decode_json
from penstock.papers.sparcle.live.operated import Watched, booked, operated

SERVICE_S = 0.1  # per tuple; long, so that a host with two cores can emulate it
CAPACITY = 1 / SERVICE_S  # tuples per second of a machine
OUTPUT = "output/numbers"
SETTLE_S = 3.0
LOOKS_S = 2.0  # interval of single rates, to measure when a condition becomes true
FLOOD = 60.0  # offered tuples per second of the flooding application
FIRM = 6.0  # guaranteed rate while another floods
KEPT, OFTEN = 5.0, 0.98  # guaranteed rate and its availability, if machines fail
FAILS = 0.1


def star(*workers: str, fails: float = 0.0) -> Cluster:
    """Join worker machines with a failure probability to one that sources and sinks are pinned to."""
    machines = (Machine(name="ends"), *(Machine(name=name, failure_probability=fails) for name in workers))
    links = tuple(Link(source="hub", target=machine.name, bandwidth_mbps=100.0) for machine in machines)
    return Cluster(name="star", machines=machines, switches=("hub",), links=links)


def flow(name: str, offered_tps: float, pinned: str | None = None, keeps: bool = False) -> Dataflow:
    """Return an application with a small cost per number; `keeps`: its sink writes the numbers to files."""
    made = Dataflow(name)
    numbers = made.source("in", Generated(int, rate=offered_tps), cpu=1e-4, pinned="ends")
    work = made.map("work", abs, numbers, cpu=SERVICE_S, pinned=pinned)
    sink: Sink[int] = JsonLines(OUTPUT) if keeps else Discard()
    made.sink("out", sink, work, cpu=1e-4, pinned="ends")
    return made


def shares(seconds: float, folder: Path, tell: Tell) -> Iterator[Row]:
    """Two best-effort applications, priorities 2 to 1, each offered three times the capacity; then one leaves."""
    flows = {name: flow(name, 3 * CAPACITY, "middle") for name in ("alpha", "beta")}
    book = booked(Book(cluster=star("middle")), flows["alpha"], priority=2.0)
    book = booked(book, flows["beta"], priority=1.0)
    with operated(book, flows, folder, tell) as watched:
        watched.until_running(2)
        watched.wait(SETTLE_S)
        yield from _rows("both", watched, watched.rates(seconds))
        watched.change(release(book, "beta"))
        began, looks = monotonic(), []
        while monotonic() - began < max(seconds, 10 * LOOKS_S):
            looks.append((monotonic() - began, watched.rates(LOOKS_S)["alpha"]))
        alone = [rate for _, rate in looks[len(looks) // 2 :]]
        yield from _rows("alone", watched, {"alpha": sum(alone) / len(alone)}, took_s=_since(looks))


def flood(seconds: float, folder: Path, tell: Tell) -> Iterator[Row]:
    """A guaranteed application alone, then with one that is offered ten times the remaining capacity."""
    flows = {"firm": flow("firm", FIRM, "middle"), "flood": flow("flood", FLOOD, "middle")}
    book = booked(Book(cluster=star("middle")), flows["firm"], guaranteed_tps=FIRM)
    with operated(book, flows, folder, tell) as watched:
        watched.until_running(1)
        watched.wait(SETTLE_S)
        yield from _rows("alone", watched, watched.rates(seconds))
        watched.change(booked(book, flows["flood"]))
        watched.until_running(2)
        watched.wait(SETTLE_S)
        yield from _rows("flooded", watched, watched.rates(seconds))


def paths(seconds: float, folder: Path, tell: Tell) -> Iterator[Row]:
    """A guaranteed application on two paths; the process of one machine is killed and marked failed in the book."""
    kept = flow("firm", KEPT, keeps=True)
    book = booked(Book(cluster=star("w1", "w2", fails=FAILS)), kept, 4, guaranteed_tps=KEPT, availability=OFTEN)
    with operated(book, {"firm": kept}, folder, tell) as watched:
        watched.until_running(2)
        watched.wait(SETTLE_S)
        yield from _rows("both", watched, watched.rates(seconds))
        watched.kill("firm", "w1")
        watched.change(fail(book, "w1").book)
        yield from _rows("first seconds", watched, watched.rates(2 * LOOKS_S))
        yield from _rows("one", watched, watched.rates(seconds), often=book["firm"].achieved_availability)
    found = published(folder / "runs")
    whole = found == list(range(len(found)))
    yield {"phase": "published", "application": "firm", "tuples": len(found), "once": whole}


STORIES = {"shares": shares, "flood": flood, "paths": paths}


def published(runs: Path) -> list[int]:
    """Return the numbers in all published files of some runs, in order."""
    files = [file for file in runs.glob(f"*/{OUTPUT}/*.jsonl") if not file.name.startswith("_")]
    return sorted(decode_json(line) for file in files for line in file.read_bytes().splitlines())


def _rows(phase: str, watched: Watched, rates: dict[str, float], **more: float) -> Iterator[Row]:
    book = watched.book
    for name, rate in rates.items():
        if name in book.index:
            promised = {"booked_tps": book[name].rate_tps, "measured_tps": rate, "late": watched.late}
            yield {"phase": phase, "application": name, **promised, **more}


def _since(looks: list[tuple[float, float]]) -> float:
    """Return when, in seconds, all later rates use nine tenths of the machine or more; infinite: never."""
    low = [at + LOOKS_S for at, rate in looks if rate < 0.9 * CAPACITY]
    last = low[-1] if low else looks[0][0]
    return last if last < looks[-1][0] + LOOKS_S else float("inf")
