"""SPARCLE live: applications admitted to a book run, compete, flood and lose a machine, on embedded Spark.

A reconciler runs a book that changes, and rates are measured at the sinks (`operated`). In the scenarios two
applications share a machine, one floods, one of two paths is lost. Sources and sinks are on one machine, workers on one
or two others, slow enough to emulate. The figure compares the rates in the book with the measured ones.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import msgspec
import numpy as np
import pandas as pd

from penstock.admission import Admitted, BookFile, admit, fail, release
from penstock.admission.reconciler.launch import PathRun
from penstock.admission.reconciler.service import BookService, serve
from penstock.admission.reconciler.state import PathPhase, PathState
from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.generated import Generated
from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.live_cases import Report, silent, temporary
from penstock.experiments.pictures import COLOURS, Picture, label
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.decoding import decode_json
from penstock.model.errors import PenstockError

LOOK_S = 0.5  # between two checks of the emulation's lag
START_S = 300.0  # timeout for paths to run on a busy host
CHECKPOINT_S = 2.0


def booked(book: Book, flow: Dataflow, paths: int = 1, **asked: float) -> Book:
    """Return a book with one more application; `asked` are fields of it."""
    result = admit(book, msgspec.structs.replace(flow.application, **asked), paths=paths)
    if not isinstance(result, Admitted):
        raise PenstockError(f"admit: {flow.name!r} was refused, {result.reason}")
    return result.book


class Watched:
    """A reconciler whose book is changed and whose rates are measured."""

    def __init__(self, service: BookService, file: BookFile) -> None:
        self._service = service
        self._file = file
        self._late: list[bool] = []
        self._counts: dict[tuple[str, str], int] = {}  # tuples at the sinks, by application and run

    @property
    def book(self) -> Book:
        """The current book."""
        return self._file.load()

    @property
    def late(self) -> float:
        """The share of checks so far at which the emulation lagged."""
        return sum(self._late) / max(1, len(self._late))

    @property
    def paths(self) -> tuple[PathState, ...]:
        """The paths, according to the reconciler."""
        return self._service.state().paths

    def change(self, to: Book) -> None:
        """Save a new version of the book."""
        self._file.save(to, self.book.version)

    def until_running(self, paths: int) -> None:
        """Wait until a number of paths run."""
        deadline = monotonic() + START_S
        while sum(path.phase is PathPhase.RUNNING for path in self.paths) < paths:
            if monotonic() > deadline:
                raise PenstockError(f"operate: {paths} paths do not run after {START_S:g} s; is the host busy?")
            sleep(0.05)

    def rates(self, seconds: float) -> dict[str, float]:
        """Return the tuples per second at the sinks of every application, over some seconds from now."""
        began, before = monotonic(), self._written()
        self.wait(seconds)
        after, took = self._written(), monotonic() - began
        return {name: (after[name] - before.get(name, 0)) / took for name in after}

    def wait(self, seconds: float) -> None:
        """Wait, checking the emulation periodically."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            sleep(min(left, LOOK_S))
            self._late.append(any("emulation" in path.note for path in self.paths))

    def kill(self, application: str, machine: str) -> None:
        """Kill the process of an application's machine."""
        for run in self._runs().get(application, ()):
            for worker in run.status().machines:
                if worker.name == machine:
                    os.kill(worker.pid, signal.SIGKILL)

    def _written(self) -> dict[str, int]:
        for name, runs in self._runs().items():
            for run in runs:
                self._counts[name, str(run.folder)] = run.status().written
        found: dict[str, int] = {}
        for (name, _), count in self._counts.items():
            found[name] = found.get(name, 0) + count
        return found

    def _runs(self) -> dict[str, list[PathRun]]:
        running = list(self._service.reconciler.applications.values())
        return {one.name: [path.run for path in one.paths if path.run is not None] for one in running}


@contextmanager
def operated(book: Book, flows: Mapping[str, Dataflow], folder: Path, report: Report) -> Iterator[Watched]:
    """Run a book in a folder; everything is drained at the end."""
    file = BookFile(folder / "book.json")
    file.save(book, None)
    runs = folder / "runs"
    with serve(file.path, dict(flows), runs=runs, checkpoint_s=CHECKPOINT_S, telemetry=False, report=report) as service:
        yield Watched(service, file)


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


def shares(seconds: float, folder: Path, report: Report) -> Iterator[Row]:
    """Two best-effort applications, priorities 2 to 1, each offered three times the capacity; then one leaves."""
    flows = {name: flow(name, 3 * CAPACITY, "middle") for name in ("alpha", "beta")}
    book = booked(Book(cluster=star("middle")), flows["alpha"], priority=2.0)
    book = booked(book, flows["beta"], priority=1.0)
    with operated(book, flows, folder, report) as watched:
        watched.until_running(2)
        watched.wait(SETTLE_S)
        yield from _rows("both", watched, watched.rates(seconds))
        watched.change(release(book, "beta"))
        began, looks = monotonic(), []
        while monotonic() - began < max(seconds, 10 * LOOKS_S):
            looks.append((monotonic() - began, watched.rates(LOOKS_S)["alpha"]))
        alone = [rate for _, rate in looks[len(looks) // 2 :]]
        yield from _rows("alone", watched, {"alpha": sum(alone) / len(alone)}, took_s=_since(looks))


def flood(seconds: float, folder: Path, report: Report) -> Iterator[Row]:
    """A guaranteed application alone, then with one that is offered ten times the remaining capacity."""
    flows = {"firm": flow("firm", FIRM, "middle"), "flood": flow("flood", FLOOD, "middle")}
    book = booked(Book(cluster=star("middle")), flows["firm"], guaranteed_tps=FIRM)
    with operated(book, flows, folder, report) as watched:
        watched.until_running(1)
        watched.wait(SETTLE_S)
        yield from _rows("alone", watched, watched.rates(seconds))
        watched.change(booked(book, flows["flood"]))
        watched.until_running(2)
        watched.wait(SETTLE_S)
        yield from _rows("flooded", watched, watched.rates(seconds))


def paths(seconds: float, folder: Path, report: Report) -> Iterator[Row]:
    """A guaranteed application on two paths; the process of one machine is killed and marked failed in the book."""
    kept = flow("firm", KEPT, keeps=True)
    book = booked(Book(cluster=star("w1", "w2", fails=FAILS)), kept, 4, guaranteed_tps=KEPT, availability=OFTEN)
    with operated(book, {"firm": kept}, folder, report) as watched:
        watched.until_running(2)
        watched.wait(SETTLE_S)
        yield from _rows("both", watched, watched.rates(seconds))
        watched.kill("firm", "w1")
        watched.change(fail(book, "w1").book)
        yield from _rows("first seconds", watched, watched.rates(2 * LOOKS_S))
        yield from _rows("one", watched, watched.rates(seconds), often=book["firm"].achieved_availability)
    found = published_numbers(folder / "runs")
    whole = found == list(range(len(found)))
    yield {"phase": "published", "application": "firm", "tuples": len(found), "once": whole}


STORIES = {"shares": shares, "flood": flood, "paths": paths}


def published_numbers(runs: Path) -> list[int]:
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


REPETITIONS, QUICK_REPETITIONS = 3, 1
SECONDS, QUICK_SECONDS = 20.0, 8.0  # of a measurement
LATE = 0.25  # maximum share of checks at which the emulation lags
PAPER = "not measured"


def _cases(quick: bool) -> Sequence[Case]:
    repetitions, seconds = (QUICK_REPETITIONS, QUICK_SECONDS) if quick else (REPETITIONS, SECONDS)
    return [
        {"story": story, "repetition": number, "seconds": seconds} for story in STORIES for number in range(repetitions)
    ]


def run_live(case: Case, report: Report = silent) -> Sequence[Row]:
    """Run one scenario and return its rows."""
    story = str(case["story"])
    with temporary() as folder:
        return list(STORIES[story](float(case["seconds"]), Path(folder), lambda text: report(f"{story}: {text}")))


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    measured = rows[rows["measured_tps"].notna()]
    named = measured[["story", "phase", "application"]].agg("\n".join, axis=1)
    axis = picture.subplots()
    for place, name in enumerate(dict.fromkeys(named)):
        own = measured[named == name]
        colour = COLOURS[list(STORIES).index(own["story"].iloc[0])]
        axis.bar(place, own["booked_tps"].iloc[0], color="none", edgecolor="#444444", width=0.7)
        axis.plot([place] * len(own), own["measured_tps"], "o", color=colour, ms=5)
    axis.set_xticks(range(named.nunique()), list(dict.fromkeys(named)), fontsize=7)
    label(axis, "", "source tuples/s", "Bars: by the book. Dots: measured at the sinks, a run each.")


def _claims(rows: pd.DataFrame) -> Sequence[Claim]:
    return [*_shares(rows), *_flood(rows), *_paths(rows), _true(rows)]


def _shares(rows: pd.DataFrame) -> Iterator[Claim]:
    alpha, beta = (_of(rows, "shares", "both", name) for name in ("alpha", "beta"))
    alone, took = _of(rows, "shares", "alone", "alpha"), _of(rows, "shares", "alone", "alpha", "took_s")
    if not len(alpha) or not len(beta):
        return
    yield _claim(
        "priorities 2:1 on one machine, each offered thrice what it does: rates are 2:1",
        f"{_spread(alpha / beta)} ({_spread(alpha)} and {_spread(beta)}/s)",
        "within 10 % in every run",
        bool((np.abs(alpha / beta / 2 - 1) <= 0.1).all()),
    )
    yield _claim(
        "together they use the machine",
        f"{_spread(100 * (alpha + beta) / CAPACITY)} % of its {CAPACITY:g}/s",
        "≥ 90 % in every run",
        bool((alpha + beta >= 0.9 * CAPACITY).all()),
    )
    yield _claim(
        "when one leaves, the other takes the rest",
        f"≥ 90 % of the machine after {_spread(np.round(took, 1))} s; then {_spread(alone)}/s",
        "within 10 s in every run",
        bool((took <= 10).all()),
    )


def _flood(rows: pd.DataFrame) -> Iterator[Claim]:
    alone, flooded = (_of(rows, "flood", phase, "firm") for phase in ("alone", "flooded"))
    if not len(flooded):
        return
    flood = _of(rows, "flood", "flooded", "flood")
    yield _claim(
        f"a guaranteed application keeps its {FIRM:g}/s while another is offered ten times what is left",
        f"{_spread(flooded)}/s, alone {_spread(alone)}/s; the other gets {_spread(flood)}/s",
        "≥ 95 % of it in every run",
        bool((flooded >= 0.95 * FIRM).all()),
    )


def _paths(rows: pd.DataFrame) -> Iterator[Claim]:
    both, first, one = (_of(rows, "paths", phase, "firm") for phase in ("both", "first seconds", "one"))
    if not len(one):
        return
    often = _of(rows, "paths", "one", "firm", "often")[0]
    yield _claim(
        f"the machine of one of two paths is killed: the {KEPT:g}/s that the book guarantees are still there",
        f"{_spread(one)}/s from 4 s on, {_spread(first)}/s in these first seconds, {_spread(both)}/s with both",
        "≥ 95 % of it in every run",
        bool((one >= 0.95 * KEPT).all()),
        f"the book: {often:.2%} of the time",
    )
    kept = rows[(rows["story"] == "paths") & (rows["phase"] == "published")].sort_values("repetition")
    least = KEPT * _of(rows, "paths", "one", "firm", "seconds")  # tuples while one path was left; more arrived before
    yield _claim(
        "what the lost path had not committed is done by the other: every tuple is published once",
        f"{', '.join(str(int(count)) for count in kept['tuples'])} tuples, from the first to the last",
        "every number once in every run, and no fewer than came",
        bool(kept["once"].astype(bool).all() and (kept["tuples"].to_numpy() >= least).all()),
    )


def _true(rows: pd.DataFrame) -> Claim:
    late = rows[rows["late"].notna()].groupby(["story", "repetition"])["late"].max()
    return _claim(
        "machines are emulated truly on this host",
        f"late at {late.mean():.0%} of looks",
        f"at ≤ {LATE:.0%} of the looks of every run",
        bool((late <= LATE).all()),
        "run it on a host that is idle, or has more cores",
    )


def _claim(what: str, ours: str, tolerance: str, holds: bool, why: str = "") -> Claim:
    return Claim(f"ours: {what}", PAPER, ours, tolerance, holds, why)


def _of(rows: pd.DataFrame, story: str, phase: str, application: str, what: str = "measured_tps") -> np.ndarray:
    own = (rows["story"] == story) & (rows["phase"] == phase) & (rows["application"] == application)
    return rows.loc[own].sort_values("repetition")[what].to_numpy(dtype=np.float64)


def _spread(values: np.ndarray) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


LIVE = Figure("live", "Live: what the book promised, and what came", _cases, run_live, _draw, _claims, live=True)
FIGURES: tuple[Figure, ...] = (LIVE,)
