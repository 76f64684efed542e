"""The same runs on a manual clock: the runtime's workers and controller in one process, on the emulated machines.

No time passes but that of the emulation, so a busy host changes nothing, and a run takes seconds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from penstock.model.telemetry import Record, RecordKind
from penstock.papers.tata.live.runs import Carried, Counts, Placed, carried_tps, processed
from penstock.papers.tata.live.settings import WINDOW
from penstock.runtime.controller.state_machine import RunFailed
from penstock.testing import TestCluster

STEP_S = 0.25  # between two readings of the counts; as often as workers report


class Part(NamedTuple):
    """An interval in which tuples are counted, in seconds since the start."""

    begin: float
    end: float


class Stepped(NamedTuple):
    """What was counted in each part, and the traced source tuples: emitted, finished, complete."""

    parts: list[Carried]
    tuples: pd.DataFrame


def stepped(what: Placed, *parts: Part) -> Stepped:
    """Run an application through some intervals; times are relative to its start."""
    names = what.cluster.slot_names
    run = TestCluster(
        what.flow,
        emulate=what.cluster,
        placement=[names[slot] for slot in what.placement.slots],
        capture=False,
        seed=what.seed,
        telemetry=what.sample_tps != 0.0,
        sample_tps=what.sample_tps,
        window=WINDOW,
    ).start()
    start, found = run.clock(), []
    for part in parts:
        run.advance(start + part.begin - run.clock())
        counts = Counts()
        while run.clock() < start + part.end and run.controller.phase not in ("stopped", "failed"):
            counts.see(run.clock(), processed(run.controller.status(run.clock())))
            run.advance(STEP_S)
        found.append(carried_tps(counts, what.flow.application, late=0.0))
    result = run.result()
    if result.status.error:
        raise RunFailed(result.status.error)
    return Stepped(found, _tuples(result.records, start))


def _tuples(records: Sequence[Record], start: float) -> pd.DataFrame:
    """Return the source tuples, their times relative to the start."""
    emitted = {one.root: one.emitted for one in records if one.kind == RecordKind.ROOT}
    done = {one.root: one.finished for one in records if one.kind == RecordKind.DONE}
    rows = [(at, done.get(root)) for root, at in emitted.items() if at is not None]
    table = pd.DataFrame(rows, columns=["emitted", "finished"], dtype="float64") - start
    return table.assign(complete=table["finished"].notna())
