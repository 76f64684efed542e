"""A band of utilisation, as in Flink's autoscaler (FLIP-271): what is in the band is left alone.

A component's capacity is the sum of its tasks' true processing rates. It is compared with the demand at the target
rate, and with a rate that removes the backlog within a time. If a component leaves the band, all are resized to the
utilisation in its middle. A reduction waits until the parallelism has not changed for a while, and is limited.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count, Probability, Share
from penstock.model.parallelism import allowed
from penstock.policies.api import Resize, ScalingView
from penstock.policies.scaling.demand import demand_tps, described, required_tasks, whole

FLINK_INTERVALS = 12  # an hour of five-minute intervals, Flink's default for reductions


@dataclass(frozen=True, slots=True)
class Threshold:
    """Resize all components to a utilisation when one of them leaves a band around it.

    utilisation: in the middle of the band.
    boundary: half the width of the band.
    catch_up: number of intervals in which a backlog is to be removed.
    max_reduction: maximum share of a component's tasks that one rescale removes.
    hold: number of intervals after a rescale in which nothing is reduced.
    """

    utilisation: Share = 0.7
    boundary: Probability = 0.3
    catch_up: Count = 6
    max_reduction: Probability = 0.6
    hold: Count = FLINK_INTERVALS

    def resize(self, view: ScalingView, rng: np.random.Generator) -> Resize:
        """Return the parallelism in the middle of the band, or the present one; `rng` is not used."""
        now, backlog_tps = view.parallelism, view.backlog / (self.catch_up * view.interval_s)
        ideal = required_tasks(view, view.target_tps, 1.0, sources=True)
        extra = required_tasks(view, backlog_tps, 1.0, sources=True)
        if not (outside := self._outside(ideal, extra, now)):
            return Resize(now)
        wanted = {
            name: max(number / self.utilisation + extra[name], now[name] * (1 - self.max_reduction))
            for name, number in ideal.items()
        }
        found = allowed(view.topology, view.bounds, whole(wanted))
        if view.steady < self.hold and not any(found[name] > now[name] for name in outside):
            return Resize(now)
        demand = demand_tps(view, view.target_tps)
        reason = f"{outside[0]} at {demand[outside[0]]:,.4g}/s leaves its band" if found != now else ""
        return Resize(found, note="; ".join(filter(None, (described(view, found), reason))))

    def _outside(self, ideal: Mapping[str, float], extra: Mapping[str, float], now: Mapping[str, int]) -> list[str]:
        """Return the components whose number of tasks is outside the band."""
        highest, lowest = self.utilisation + self.boundary, self.utilisation - self.boundary
        return [
            name
            for name, number in ideal.items()
            if now[name] < number / highest + extra[name]
            or (lowest > 0 and now[name] > number / lowest + extra[name] and now[name] > 1)
        ]
