"""An application on a cluster on the runtime's twin, event by event, and its predicted latency.

Nothing is executed. The load is the requested one, the application's own, or 80 % of the placement's capacity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.estimate.evaluator import Evaluator
from penstock.model.errors import InvalidInput
from penstock.model.files import make_folder
from penstock.model.placement import Placement
from penstock.model.taskgraph import Floats
from penstock.model.telemetry import write_records
from penstock.sim.events import Twin, TwinSpan
from penstock.workloads.arrivals import Poisson

DEFAULT_LOAD = 0.8  # default load if the application has none, relative to capacity
DEFAULT_SECONDS = 60.0
TRACED_TPS = 20.0  # traced source tuples per second, per task; the default of a run
FALLING_BEHIND = 0.95  # relative to the load; if fewer tuples complete, queues grow
SLACK = 1e-9
MAX_HOPS = 2_000_000_000  # maximum in one simulation


class TwinLoad(NamedTuple):
    """The offered load and the capacity, in source tuples per second over all sources."""

    offered_tps: float
    capacity_tps: float  # predicted throughput; infinite if nothing limits it
    limit: str  # the bottleneck

    @property
    def exceeded(self) -> bool:
        """Whether the load exceeds capacity."""
        return self.offered_tps > self.capacity_tps * (1 + SLACK)


@dataclass(frozen=True)
class TwinResult:
    """The results after the warm-up, by seed."""

    load: TwinLoad
    warm_up: float
    spans: tuple[TwinSpan, ...]

    def mean(self, measure: str) -> float:
        """Return the mean over seeds of a span's field."""
        return float(np.mean([getattr(span, measure) for span in self.spans]))

    def deviation(self, measure: str) -> float:
        """Return the standard deviation over seeds; 0 for a single seed."""
        found = [getattr(span, measure) for span in self.spans]
        return float(np.std(found, ddof=1)) if len(found) > 1 else 0.0

    def average(self, measure: str) -> Floats:
        """Return the element-wise mean over seeds of an array of the spans, ignoring missing values."""
        found = np.array([getattr(span, measure) for span in self.spans], dtype=np.float64)
        known = ~np.isnan(found)
        total = np.where(known, found, 0.0).sum(axis=0)
        mean: Floats = np.divide(total, known.sum(axis=0), out=np.full(total.shape, np.nan), where=known.any(axis=0))
        return mean

    def by_name(self, measure: str) -> dict[str, float]:
        """Return the mean over seeds of each value of a span's table."""
        tables: list[dict[str, float]] = [getattr(span, measure) for span in self.spans]
        return {name: float(np.mean([table[name] for table in tables])) for name in tables[0]}

    @property
    def behind(self) -> bool:
        """Whether clearly fewer source tuples completed than arrived."""
        return self.mean("completed") < FALLING_BEHIND * self.mean("offered")


def simulate_events(
    twin: Twin,
    placement: Placement,
    *,
    rate: float | None = None,
    arrivals: ArrivalProcess | None = None,
    seconds: float = DEFAULT_SECONDS,
    warm_up: float | None = None,
    seeds: Sequence[int] = (0,),
    records: Path | None = None,
) -> TwinResult:
    """Simulate the application of a twin event by event, once per seed.

    rate: total tuples per second over all sources. arrivals: a process over all sources, instead of a rate. seconds:
    simulated time after the warm-up; warm_up: default: a tenth of `seconds`. records: a folder for telemetry.
    """
    before = seconds / 10 if warm_up is None else warm_up
    if not 0 < seconds < np.inf:
        raise InvalidInput("duration", f"expected a number of seconds > 0, got {seconds:g}; choose another --duration")
    load, processes = _load(twin, placement, rate, arrivals)
    hops = load.offered_tps * float(twin.instance.tasks.gain.sum()) * (seconds + before)
    if hops > MAX_HOPS:
        problem = f"expected at most {MAX_HOPS:,} tuples to be processed, got about {hops:,.0f}"
        raise InvalidInput("duration", f"{problem}; use fewer seconds or a lower rate")
    followed = 0.0 if records is None else TRACED_TPS
    spans = []
    for seed in seeds:
        name = f"twin-{seed}"
        run = twin.start(
            placement.slots, rates=processes, seed=seed, records=followed, routes=placement.routes, name=name
        )
        run.advance(before)
        spans.append(run.advance(seconds))
        if records is not None:
            make_folder(records)
            write_records(run.records(), records, name)
    return TwinResult(load, before, tuple(spans))


def _load(
    twin: Twin, placement: Placement, rate: float | None, arrivals: ArrivalProcess | None
) -> tuple[TwinLoad, dict[str, ArrivalProcess]]:
    """Return the load and the capacity, and the arrivals of every source."""
    found = Evaluator(twin.application, twin.cluster).evaluate(placement)
    capacity, limit = found.throughput_tps, ""
    if found.bottleneck is not None:
        limit = f"{found.bottleneck.kind} {found.bottleneck.name}"
    own = twin.application.rate_tps
    if rate is not None and not 0 < rate < np.inf:
        problem = f"expected tuples per second > 0, got {rate:g}"
        raise InvalidInput("rate", f"{problem}; choose another --rate, or omit it for the default")
    if arrivals is None:
        offered = rate or twin.application.offered_tps or DEFAULT_LOAD * capacity
        if not np.isfinite(offered):
            problem = f"expected a rate, as {twin.application.name!r} has none and nothing limits it; add --rate"
            raise InvalidInput("rate", problem)
        arrivals = Poisson(rate=offered)
    elif rate is not None:
        raise InvalidInput("rate", f"expected a rate or arrivals, got {rate:g} and arrivals; remove one")
    weights = own or {source.name: 1.0 for source in twin.application.sources}
    shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    return TwinLoad(mean_tps(arrivals), capacity, limit), {
        name: _part(arrivals, share) for name, share in shares.items()
    }


def mean_tps(arrivals: ArrivalProcess) -> float:
    """Return the mean rate of a process; a trace has its own by default."""
    trace = getattr(arrivals, "trace", None)
    if arrivals.rate is None and trace is not None:
        return float(trace.rate * getattr(arrivals, "speed", 1.0))
    return float(arrivals.rate or 0.0)


def _part(arrivals: ArrivalProcess, share: float) -> ArrivalProcess:
    """Return the arrivals of one of several sources, which all follow the process at their share of its rate."""
    if share == 1.0:
        return arrivals
    part: ArrivalProcess = msgspec.structs.replace(arrivals, rate=mean_tps(arrivals) * share)  # type: ignore[type-var]
    return part
