"""Explore placements on the twin: thousands of seconds, in virtual time."""

from pathlib import Path
from typing import NamedTuple

from penstock.exploration.index import Explored, Index, Trials, run_name
from penstock.exploration.random_placements import Drawing, at_load, machines_used, named
from penstock.exploration.spans import Span, cut_span
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.errors import PenstockError
from penstock.model.placement import Placement
from penstock.model.telemetry import write_records
from penstock.model.topology import Application
from penstock.sim.events import Twin

TAIL_S = 5.0  # of virtual time after a span, for its last trees to complete


class _Held(NamedTuple):
    """A placement to try."""

    name: str
    placement: Placement
    rates: dict[str, float]
    seed: int


def explore_twin(
    application: Application,
    cluster: Cluster,
    output: Path,
    trials: Trials,
    *,
    costs: Costs | None = None,
    factors: tuple[float, float] = (1.0, 1.0),
    sample_tps: float = 20.0,
) -> Index:
    """Try random placements, each from empty queues; write telemetry for each, and return the index.

    factors: range of the load of each placement, relative to the application's. sample_tps: traced tuples. Equal
    arguments write equal records. The folder is created with the first file. After Ctrl-C or a load that no
    placement sustains, the index has what was written before, and the reason.
    """
    costs = costs or Costs()
    measured = costs.applied(application)
    drawing = Drawing(measured, cluster, margin=trials.margin, seed=trials.seed)
    twin = Twin(measured, cluster, costs)
    runs: dict[str, Explored] = {}
    stopped = ""
    try:
        for number in range(trials.placements):
            factor = drawing.factor(*factors)
            held = _Held(
                run_name(number), drawing.draw(factor), at_load(measured, factor).rate_tps, trials.seed + number
            )
            mean_s = _hold(twin, held, output, trials, sample_tps)
            runs[held.name] = Explored(
                placement=named(measured, cluster, held.placement),
                rates=held.rates,
                machines=machines_used(cluster, held.placement),
                seed=held.seed,
                mean_s=mean_s,
            )
            trials.tried(held.name, runs[held.name])
    except (KeyboardInterrupt, PenstockError) as problem:
        if not runs:
            raise
        stopped = str(problem) or "it was interrupted"
    return trials.index(application.name, cluster.name, live=False, runs=runs, stopped=stopped)


def _hold(twin: Twin, held: _Held, output: Path, trials: Trials, sample_tps: float) -> float | None:
    """Run a placement, write its telemetry and return its mean latency; None if no tuple completed."""
    routes, rates = held.placement.routes, held.rates
    run = twin.start(
        held.placement.slots, rates=rates, seed=held.seed, records=sample_tps, routes=routes, name=held.name
    )
    run.advance(trials.settle_s)
    span = run.advance(trials.hold_s)
    run.advance(TAIL_S)
    records = cut_span(run.records(), Span(held.name, trials.settle_s, trials.settle_s + trials.hold_s))
    output.mkdir(parents=True, exist_ok=True)
    write_records(records, output, held.name)
    return span.mean_s if span.completed else None
