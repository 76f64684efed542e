"""Potential gain: the best placement found by a search that uses the twin itself.

Tasks are packed evenly on the first 1, 2, … machines. Of these packings and the policies' placements, the one that is
fastest on the twin is improved once, task by task, as in Algorithm 1, over the machines in use and one more. No
regression error is involved, but it is still a search: the result is a lower bound of what is possible.
"""

from collections.abc import Sequence

import numpy as np

from penstock.model.placement import Placement
from penstock.papers.predictive.visits import Site, seated

SHORT, LONG = 0.5, 8.0  # windows on the twin for one move, and for a choice between few placements


def best_found(site: Site, decided: Sequence[tuple[int, ...]], seed: int) -> tuple[int, ...]:
    """Return the placement with the shortest longest path found; all are measured on the same arrivals."""
    packings = [packed(site, machines) for machines in range(1, len(site.setting.cluster.machines) + 1)]
    able = [*decided, *(slots for slots in packings if site.carries(Placement(slots)))]
    first = min(able, key=lambda slots: _seconds(site, slots, seed, LONG / 4))
    # Among many moves some help only by chance: the result has to be better on other arrivals, too.
    return min((first, _improved(site, first, seed)), key=lambda slots: _seconds(site, slots, seed + 1, LONG))


def _improved(site: Site, slots: tuple[int, ...], seed: int) -> tuple[int, ...]:
    """Return a placement after every task was considered, as in Algorithm 1."""
    best, least = [*slots], _seconds(site, slots, seed, SHORT)
    machine = site.instance.slots.machine
    used = sorted({int(machine[slot]) for slot in best})
    spare = [number for number in range(site.instance.slots.machines) if number not in used][:1]
    for task in range(len(best)):
        for there in (*used, *spare):
            if there == machine[best[task]]:
                continue
            tried = [*best]
            tried[task] = _least_slot(site, best, there)
            if site.carries(Placement(tuple(tried))) and (found := _seconds(site, tried, seed, SHORT)) < least:
                best, least = tried, found
    return tuple(best)


def packed(site: Site, machines: int) -> tuple[int, ...]:
    """Return tasks on the first machines, the busiest first, each on the least busy of them."""
    work, chosen = np.zeros(machines), np.zeros(site.instance.tasks.number, dtype=np.int32)
    for task in np.argsort(-site.instance.work, kind="stable"):
        chosen[task] = np.argmin(work)
        work[chosen[task]] += site.instance.work[task]
    return seated(site.instance, chosen)


def _least_slot(site: Site, slots: Sequence[int], machine: int) -> int:
    work = np.bincount(slots, site.instance.work, site.instance.slots.number)
    first, last = site.instance.slots.first[machine], site.instance.slots.first[machine + 1]
    return int(first + np.argmin(work[first:last]))


def _seconds(site: Site, slots: Sequence[int], seed: int, windows: float) -> float:
    return site.tables.longest(site.tables.measured(site.span(slots, seed, windows)))
