"""What every component has to process at a rate of source tuples, and how many tasks that requires.

Both follow from measured rates, as in DS2 (Kalavri et al. 2018, eqs. (7), (8)). A task's *true* rate counts only the
time in service, so it does not depend on whether the task was idle or blocked meanwhile.
"""

from collections.abc import Mapping

import numpy as np

from penstock.model.parallelism import shares_work
from penstock.model.taskgraph import Floats
from penstock.model.topology import Application, Grouping, Kind
from penstock.policies.api import ScalingView

ROUNDING = 1e-9  # relative; a requirement that exceeds a whole number of tasks by less does not need another task


def demand_tps(view: ScalingView, rate_tps: float) -> dict[str, float]:
    """Return the tuples per second that reach each component at a rate of source tuples, in topological order (8).

    Sources share the rate as they shared what arrived. If nothing arrived, they share it as their application states.
    """
    topology, tasks = view.topology, view.parallelism
    found = dict.fromkeys(tasks, 0.0)
    found.update({name: rate_tps * share for name, share in _source_shares(view).items()})
    for name in found:
        for stream in topology.streams:
            if stream.source == name:
                copies = tasks[stream.target] if stream.grouping is Grouping.ALL else 1
                found[stream.target] += found[name] * view.selectivity[stream.label] * copies
    return found


def true_rates(view: ScalingView) -> dict[str, float]:
    """Return the mean true processing rate of the tasks of each component; without those that processed nothing.

    A component of which no task processed anything has none.
    """
    found = {}
    for number, name in enumerate(view.parallelism):
        own = view.loads.true_tps[view.tasks.of(number)]
        if (known := own[np.isfinite(own)]).size:
            found[name] = float(known.mean())
    return found


def required_tasks(view: ScalingView, rate_tps: float, utilisation: float, sources: bool = False) -> dict[str, float]:
    """Return the least number of tasks, not rounded, that carry a rate of source tuples at a utilisation (7).

    Returned are the components whose rates are known and whose tasks share their work; sources only on request.
    """
    demand = demand_tps(view, rate_tps)
    return {
        name: demand[name] / (rate * utilisation)
        for name, rate in true_rates(view).items()
        if shares_work(view.topology, name) and (sources or view.topology[name].kind is not Kind.SOURCE)
    }


def whole(tasks: Mapping[str, float]) -> dict[str, float]:
    """Round up to whole tasks, except for rounding errors."""
    return {name: float(np.ceil(number * (1 - ROUNDING))) for name, number in tasks.items()}


def by_component(view: ScalingView, values: Floats) -> dict[str, Floats]:
    """Return the values of the tasks of each component."""
    return {name: values[view.tasks.of(number)] for number, name in enumerate(view.parallelism)}


def described(view: ScalingView, parallelism: Mapping[str, int]) -> str:
    """Describe the changes of a parallelism, `split 8 -> 12`; empty if there are none."""
    now = view.parallelism
    return ", ".join(f"{name} {now[name]} -> {number}" for name, number in parallelism.items() if number != now[name])


def _source_shares(view: ScalingView) -> dict[str, float]:
    names = [source.name for source in view.topology.sources]
    arrived = {name: float(rates.sum()) for name, rates in by_component(view, view.loads.arrival_tps).items()}
    weights = {name: arrived[name] for name in names}
    if not sum(weights.values()):
        stated = view.topology.rate_tps if isinstance(view.topology, Application) else {}
        weights = dict(stated) or dict.fromkeys(names, 1.0)
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}
