"""Look ahead: forecast arrivals, and ask the estimator for the least machines and tasks that carry them.

The *next* need is the forecast of the next interval plus a quantile of that forecaster's past errors; the *coming*
need the largest of several intervals ahead, and of the last ones. If the present placement cannot carry the next need,
the application is resized for the coming one, before queues grow, and once instead of in steps. If the coming need
requires clearly fewer machines, it is resized too, unless it has just changed. The estimator places the tasks for their
new number, so tasks share slots and machines as far as their loads allow. Without an estimator, true processing rates
replace it, as in DS2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count, Probability, Share
from penstock.model.parallelism import allowed
from penstock.model.placement import Infeasible
from penstock.model.taskgraph import Floats
from penstock.policies.api import Resize, ScalingView, Sized
from penstock.policies.forecast.api import Forecaster
from penstock.policies.scaling.demand import described, required_tasks, whole

FEWEST_ERRORS = 8  # past forecasts without which errors are unknown


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Resize for forecast arrivals to the least machines and tasks that the estimator predicts to carry them.

    forecaster: predicts the arrivals of coming intervals.
    horizon: number of intervals to look ahead.
    margin: quantile of a forecaster's past errors that is added to its forecasts.
    utilisation: share of the predicted maximum rate to use.
    catch_up: number of intervals in which a backlog is to be removed.
    saving: share of the machines that a reduction must free.
    hold: number of intervals after a rescale in which nothing is reduced, and of past ones that must still be carried.
    season: number of intervals after which arrivals repeat, such as those of a day; None: they do not. What followed in
    the last season, at the present level, is expected too.
    """

    forecaster: str = "ewma"
    horizon: Count = 12
    margin: Probability = 0.95
    utilisation: Share = 0.9
    catch_up: Count = 3
    saving: Share = 0.2
    hold: Count = 24
    season: Count | None = None

    def __post_init__(self) -> None:
        self._forecaster()

    def resize(self, view: ScalingView, rng: np.random.Generator) -> Resize:
        """Return the parallelism and, with an estimator, its placement; a forecaster may use `rng`."""
        needs = list(self._needs(view, rng))
        recent = float(view.arrived[-self.hold :].max(initial=0)) / view.interval_s
        following, coming = needs[0], max(*needs, recent)
        backlog = view.backlog / (self.catch_up * view.interval_s)
        if (following + backlog) / self.utilisation > self._carried(view):
            return self._resized(view, coming + backlog, f"the next interval needs {following + backlog:,.4g}/s")
        if view.steady < self.hold:
            return Resize(view.parallelism)
        smaller = self._resized(view, coming + backlog, f"at most {coming:,.4g}/s are expected")
        return smaller if self._saves(view, smaller) else Resize(view.parallelism)

    def _needs(self, view: ScalingView, rng: np.random.Generator) -> Iterator[float]:
        """Yield the need of the next interval and of later ones, in source tuples per second."""
        known = view.arrived
        if not len(known):
            yield view.target_tps
            return
        forecaster = self._forecaster()
        for lead in sorted({1, (self.horizon + 1) // 2, self.horizon}):
            series = np.concatenate([known, np.zeros(lead, dtype=np.int64)])
            forecasts = forecaster.forecast(series, lead, rng)
            errors = known[lead:] - forecasts[lead : len(known)]
            margin = float(np.quantile(errors, self.margin)) if len(errors) >= FEWEST_ERRORS else 0.0
            yield (float(forecasts[-1]) + max(margin, 0.0)) / view.interval_s
        if self.season is not None and len(known) >= self.season + self.hold:
            yield self._last_season(known.astype(np.float64)) / view.interval_s

    def _last_season(self, known: Floats) -> float:
        """Return the largest arrivals expected within the horizon, as after this time in the last season."""
        assert self.season is not None, "checked by the caller"
        then = known[: len(known) - self.season]
        level = float(known[-self.hold :].sum()) / max(float(then[-self.hold :].sum()), 1.0)
        return level * float(known[len(then) : len(then) + self.horizon].max())

    def _carried(self, view: ScalingView) -> float:
        """Return the rate that the present tasks carry, as predicted or else by their true rates."""
        if view.predicted_tps is not None:
            return view.predicted_tps
        now, rate = view.parallelism, max(view.target_tps, 1e-9)
        return min((rate * now[name] / number for name, number in self._needed(view, rate) if number), default=np.inf)

    def _needed(self, view: ScalingView, rate_tps: float) -> list[tuple[str, float]]:
        return list(required_tasks(view, rate_tps, 1.0).items())

    def _resized(self, view: ScalingView, rate_tps: float, reason: str) -> Resize:
        """Return the parallelism, and the placement if there is an estimator, for a rate."""
        wanted = rate_tps / self.utilisation
        answer = view.size(wanted) if view.size is not None else None
        if isinstance(answer, Sized):
            note = "; ".join(filter(None, (described(view, answer.parallelism), reason)))
            return Resize(answer.parallelism, answer.placement, note)
        if isinstance(answer, Infeasible):
            return Resize(view.parallelism, note=f"{reason}, but {answer.reason}")
        found = allowed(view.topology, view.bounds, whole(dict(self._needed(view, wanted))))
        return Resize(found, note="; ".join(filter(None, (described(view, found), reason))))

    def _saves(self, view: ScalingView, smaller: Resize) -> bool:
        """Return whether a change frees enough machines or, if it does not say where tasks run, tasks."""
        if smaller.placement is not None:
            machine = view.slots.machine[np.asarray(smaller.placement.slots)]
            return len(np.unique(machine)) <= view.machines * (1 - self.saving)
        return sum(smaller.parallelism.values()) <= view.topology.task_count * (1 - self.saving)

    def _forecaster(self) -> Forecaster:
        from penstock.policies.registry import forecaster

        return forecaster(self.forecaster)
