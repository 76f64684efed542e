"""One's own case in the twin: an application on a cluster, event by event, and what its latency would be.

Nothing runs. The load is the application's own, or what one asks for, or a usual share of what the placement can carry
where nobody knows one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.placement import Placement
from penstock.model.taskgraph import Floats
from penstock.model.telemetry import write_records
from penstock.model.topology import Application
from penstock.sim.events import Twin, TwinSpan
from penstock.workloads.arrivals import ArrivalProcess, Poisson

USUAL_SHARE = 0.8  # of what can be carried: the rate where nobody knows one
USUAL_SECONDS = 60.0
FOLLOWED_TPS = 20.0  # source tuples a second and task of which records are kept, as a run does
FALLING_BEHIND = 0.95  # of what falls due: less that ends means that queues grow
SLACK = 1e-9
MOST_HOPS = 2_000_000_000  # in one simulation


class Carried(NamedTuple):
    """What comes, and what could be carried; source tuples a second, over all sources."""

    offered_tps: float
    even_tps: float  # when every stream is split evenly; infinite where nothing is a limit
    limit: str  # what is used up then

    @property
    def exceeded(self) -> bool:
        """Whether more comes than that."""
        return self.offered_tps > self.even_tps * (1 + SLACK)


@dataclass(frozen=True)
class Twinned:
    """What happened after the warm-up, seed by seed."""

    load: Carried
    warm_up: float
    spans: tuple[TwinSpan, ...]

    def mean(self, measure: str) -> float:
        """Return the mean over seeds of a number of the spans."""
        return float(np.mean([getattr(span, measure) for span in self.spans]))

    def deviation(self, measure: str) -> float:
        """Return the standard deviation over seeds; 0 of one alone."""
        found = [getattr(span, measure) for span in self.spans]
        return float(np.std(found, ddof=1)) if len(found) > 1 else 0.0

    def average(self, measure: str) -> Floats:
        """Return the mean over seeds of an array of the spans, of those that have the value."""
        found = np.array([getattr(span, measure) for span in self.spans], dtype=np.float64)
        known = ~np.isnan(found)
        total = np.where(known, found, 0.0).sum(axis=0)
        mean: Floats = np.divide(total, known.sum(axis=0), out=np.full(total.shape, np.nan), where=known.any(axis=0))
        return mean

    def by_name(self, measure: str) -> dict[str, float]:
        """Return the mean over seeds of the numbers of a table of the spans."""
        tables: list[dict[str, float]] = [getattr(span, measure) for span in self.spans]
        return {name: float(np.mean([table[name] for table in tables])) for name in tables[0]}

    @property
    def behind(self) -> bool:
        """Whether clearly fewer source tuples ended than fell due."""
        return self.mean("completed") < FALLING_BEHIND * self.mean("offered")


def simulate_events(
    application: Application,
    cluster: Cluster,
    placement: Placement,
    *,
    rate: float | None = None,
    arrivals: ArrivalProcess | None = None,
    seconds: float = USUAL_SECONDS,
    warm_up: float | None = None,
    seeds: Sequence[int] = (0,),
    costs: Costs = Costs(),  # noqa: B008  a constant
    records: Path | None = None,
    on_result: Callable[[int], None] = lambda _seed: None,
) -> Twinned:
    """Simulate an application event by event, once a seed.

    rate: tuples a second of all sources together. arrivals: a process over all sources together, in place of it.
    seconds: that count; warm_up: those before them, a tenth as many where it is None. records: a folder for telemetry.
    """
    before = seconds / 10 if warm_up is None else warm_up
    if not 0 < seconds < np.inf:
        raise InvalidInput("duration", f"expected a number of seconds > 0, got {seconds:g}; choose another --duration")
    twin = Twin(application, cluster, costs)
    load, processes = _load(twin, placement, rate, arrivals)
    hops = load.offered_tps * float(twin.instance.tasks.gain.sum()) * (seconds + before)
    if hops > MOST_HOPS:
        problem = f"expected at most {MOST_HOPS:,} tuples to be processed, got about {hops:,.0f}"
        raise InvalidInput("duration", f"{problem}; ask for fewer seconds or a lower rate")
    followed = 0.0 if records is None else FOLLOWED_TPS
    spans = []
    for seed in seeds:
        name = f"twin-{seed}"
        run = twin.start(
            placement.slots, rates=processes, seed=seed, records=followed, routes=placement.routes, name=name
        )
        run.advance(before)
        spans.append(run.advance(seconds))
        if records is not None:
            write_records(run.records(), _made(records), name)
        on_result(seed)
    return Twinned(load, before, tuple(spans))


def _load(
    twin: Twin, placement: Placement, rate: float | None, arrivals: ArrivalProcess | None
) -> tuple[Carried, dict[str, ArrivalProcess]]:
    """Return what comes beside what could be carried, and the arrivals of every source."""
    limits = Evaluator(twin.application, twin.cluster).evaluate(placement).limits
    even = limits[0].rate_tps if limits else np.inf
    limit = f"{limits[0].kind} {limits[0].name}" if limits else ""
    own = twin.application.rate_tps
    if rate is not None and not 0 < rate < np.inf:
        problem = f"expected tuples a second > 0, got {rate:g}"
        raise InvalidInput("rate", f"{problem}; choose another --rate, or leave it out for the usual one")
    if arrivals is None:
        offered = rate or twin.application.offered_tps or USUAL_SHARE * even
        if not np.isfinite(offered):
            problem = f"expected a rate, as {twin.application.name!r} has none and nothing limits it; add --rate"
            raise InvalidInput("rate", problem)
        arrivals = Poisson(rate=offered)
    elif rate is not None:
        raise InvalidInput("rate", f"expected a rate or arrivals, got {rate:g} and arrivals; leave one out")
    weights = own or {source.name: 1.0 for source in twin.application.sources}
    shares = {name: weight / sum(weights.values()) for name, weight in weights.items()}
    return Carried(_offered(arrivals), even, limit), {name: _part(arrivals, share) for name, share in shares.items()}


def _offered(arrivals: ArrivalProcess) -> float:
    """Return the mean rate of a process; a recording's own where none is asked for."""
    trace = getattr(arrivals, "trace", None)
    if arrivals.rate is None and trace is not None:
        return float(trace.rate * getattr(arrivals, "speed", 1.0))
    return float(arrivals.rate or 0.0)


def _part(arrivals: ArrivalProcess, share: float) -> ArrivalProcess:
    """Return the arrivals of one of several sources, which each follow the process at their share of its rate."""
    if share == 1.0:
        return arrivals
    part: ArrivalProcess = msgspec.structs.replace(arrivals, rate=_offered(arrivals) * share)  # type: ignore[type-var]
    return part


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileProblem(f"{folder}: cannot be written, {reason}; choose another folder") from None
    return folder
