"""Explores on the twin: thousands of seconds of placements, in virtual time."""

from collections.abc import Callable
from pathlib import Path

from penstock.control.exploration.drawing import Drawing, at_load, machines_used, named
from penstock.control.exploration.index import Explored, Index, run_name
from penstock.control.exploration.spans import Span, cut
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.telemetry import write_records
from penstock.model.topology import Application
from penstock.sim.events import Twin

TAIL_S = 5.0  # of virtual time beyond a span, in which its last trees may end


def explore_twin(
    application: Application,
    cluster: Cluster,
    output: Path,
    *,
    placements: int,
    hold_s: float,
    settle_s: float,
    window_s: float,
    costs: Costs | None = None,
    factors: tuple[float, float] = (1.0, 1.0),
    margin: float = 0.1,
    sample_tps: float = 20.0,
    seed: int = 0,
    tried: Callable[[str, Explored], None] = lambda *_: None,
) -> Index:
    """Try random placements, each from empty queues; write a file of telemetry for each, and the index.

    factors: between which the load of each placement is drawn, as multiples of the application's. tried: called after
    each. Equal arguments write equal records.
    """
    costs = costs or Costs()
    measured = costs.applied(application)
    drawing = Drawing(measured, cluster, margin=margin, seed=seed)
    twin = Twin(measured, cluster, costs)
    runs: dict[str, Explored] = {}
    for number in range(placements):
        factor = drawing.factor(*factors)
        placement = drawing.draw(factor)
        rates = at_load(measured, factor).rate_tps
        name = run_name(number)
        run = twin.start(
            placement.slots, rates=rates, seed=seed + number, records=sample_tps, routes=placement.routes, name=name
        )
        run.advance(settle_s)
        span = run.advance(hold_s)
        run.advance(TAIL_S)
        write_records(cut(run.records(), Span(name, settle_s, settle_s + hold_s)), output, name)
        runs[name] = Explored(
            placement=named(measured, cluster, placement),
            rates=rates,
            machines=machines_used(cluster, placement),
            seed=seed + number,
            mean_s=span.mean_s if span.completed else None,
        )
        tried(name, runs[name])
    return Index(
        application=application.name,
        cluster=cluster.name,
        live=False,
        settle_s=settle_s,
        hold_s=hold_s,
        window_s=window_s,
        runs=runs,
    )
