"""Limits of sources: how many tuples a second a source component may give, all its tasks together.

A limit slows a source down and changes nothing else: which tuples come, in which order and when they were due stays as
it is, so that a tuple that has to wait is late, and its latency shows it. 0 gives nothing until the limit changes.
"""

import math
from collections.abc import Mapping

from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.topology import Application, Topology

Limits = Mapping[str, float | None] | float | None
"""By source component, None for no limit; or one number for all sources together; or None: no limit at all."""


def changed_limits(before: Mapping[str, float], limits: Limits, topology: Topology) -> dict[str, float]:
    """Return the limits in force after a change: sources that a mapping does not name keep theirs.

    One number is divided over the sources as their offered loads are, evenly where these are not known.
    """
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        total, weights = _rate("limits", limits), _weights(topology)
        return {name: total * weight / sum(weights.values()) for name, weight in weights.items()}
    after, sources = dict(before), [component.name for component in topology.sources]
    for name, rate in limits.items():
        if name not in sources:
            raise UnknownName("limits", f"no source is named {name!r}; {nearest(name, sources)}")
        after.pop(name, None)
        if rate is not None:
            after[name] = _rate(f"limits.{name}", rate)
    return {name: after[name] for name in sources if name in after}


def _weights(topology: Topology) -> Mapping[str, float]:
    rates = topology.rate_tps if isinstance(topology, Application) else {}
    return rates or {source.name: 1.0 for source in topology.sources}


def _rate(path: str, rate: object) -> float:
    number = math.nan if isinstance(rate, bool) or not isinstance(rate, int | float) else float(rate)
    if not 0.0 <= number < math.inf:
        raise InvalidInput(path, f"expected tuples a second ≥ 0, or none for no limit, got {rate!r}")
    return number
