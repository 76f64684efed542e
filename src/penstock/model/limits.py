"""Rate limits of sources: the maximum number of tuples per second that all tasks of a source component may emit.

A limit only slows a source down. It changes neither the tuples, nor their order, nor when they were due, so the delay
that it causes is part of their latency. With a limit of 0 a source emits nothing.
"""

import math
from collections.abc import Mapping

from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.topology import Application, Topology

Limits = Mapping[str, float | None] | float | None
"""By source component, None for no limit; or one number for all sources together; or None: no limit at all."""


def update_limits(before: Mapping[str, float], limits: Limits, topology: Topology) -> dict[str, float]:
    """Return the limits after a change; sources that a mapping does not name keep theirs.

    One number is divided among the sources in proportion to their offered loads, or evenly if these are unknown.
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
        raise InvalidInput(path, f"expected tuples per second ≥ 0, or none for no limit, got {rate!r}")
    return number
