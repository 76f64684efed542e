"""What limits the throughput of a placement, and which changes would raise it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.bottleneck import Element
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.taskgraph import place_edges, sum_by, task_names
from penstock.planning.planner import Decision, Planner

MAX_TRIALS = 4096
MAX_WORK = 4_000_000  # trials × tasks
ALIKE = 0.02  # elements whose limits differ by less are equally limiting


class Relief(NamedTuple):
    """A change and the throughput with it."""

    change: str
    rate_tps: float


@dataclass(frozen=True)
class Advice:
    """The bottleneck of a placement and its remedies."""

    bottleneck: Element
    users: tuple[tuple[str, float], ...]  # task and its fraction of the load, in descending order
    reliefs: tuple[Relief, ...]  # the best first


def advise(planner: Planner, decision: Decision) -> Advice | None:
    """Return the bottleneck of a decision and changes that would relieve it; None if nothing limits it."""
    if not isinstance(decision.result, Placement) or decision.evaluation is None:
        return None
    limit = decision.evaluation.bottleneck
    if limit is None:
        return None
    users = _users(planner, decision.result, limit)
    reliefs = [
        _more_of_it(decision, limit),
        *_move(planner, decision.result, users),
        *_more_tasks(planner, limit, users),
    ]
    names = task_names(planner.topology)
    total = sum(load for _, load in users)
    return Advice(
        bottleneck=limit,
        users=tuple((names[task], load / total) for task, load in users),
        reliefs=tuple(sorted((r for r in reliefs if r is not None), key=lambda relief: -relief.rate_tps)),
    )


def _users(planner: Planner, placement: Placement, limit: Element) -> list[tuple[int, float]]:
    """Return the tasks that load an element, with their loads, in descending order."""
    slots = planner.evaluator.slots
    placed = np.asarray(placement.slots)
    tasks = planner.evaluator.tasks.placed(slots.process[placed])
    cluster = planner.cluster
    if limit.kind == "slot":
        on_it, load = placed == cluster.slot_names.index(limit.name), tasks.cpu * tasks.gain
    elif limit.kind in ("link", "network"):
        return _exchanging(planner, placement, limit)
    else:
        name = limit.name
        on_it = slots.machine[placed] == cluster.machine_index[name]
        column = tasks.resources.index(limit.kind) if limit.kind in tasks.resources else None
        load = (tasks.cpu if column is None else tasks.needs[:, column]) * tasks.gain
    found = [(int(task), float(load[task])) for task in np.flatnonzero(on_it & (load > 0))]
    return sorted(found, key=lambda pair: -pair[1])


def _exchanging(planner: Planner, placement: Placement, limit: Element) -> list[tuple[int, float]]:
    """Return the tasks whose tuples cross a link or a network card: senders, or receivers at an incoming card."""
    slots, placed = planner.evaluator.slots, np.asarray(placement.slots)
    machine, process = slots.machine[placed], slots.process[placed]
    tasks = planner.evaluator.tasks.placed(process)
    edges = place_edges(tasks, planner.evaluator.edges, process)
    here, there = machine[edges.source], machine[edges.target]
    ends = edges.source
    if limit.kind == "link":
        number = [link.label for link in planner.cluster.links].index(limit.name)
        crossing = {hop for hop, links in placement.routes.items() if number in links}
        on_it = np.array([hop in crossing for hop in zip(edges.stream, here, there, strict=True)], dtype=np.bool_)
    else:
        name, _, direction = limit.name.removesuffix(")").rpartition(" (")
        ends = edges.source if direction == "out" else edges.target
        on_it = (here != there) & (machine[ends] == planner.cluster.machine_index[name])
    load = sum_by(ends, np.where(on_it, tasks.gain[edges.source] * edges.share * edges.tuple_bytes, 0.0), tasks.number)
    return sorted(((int(t), float(load[t])) for t in np.flatnonzero(load)), key=lambda pair: -pair[1])


def _more_of_it(decision: Decision, limit: Element) -> Relief | None:
    """Return the factor by which the element, and equally limiting ones, can grow before something else limits."""
    assert decision.evaluation is not None, "advise() has checked"
    alike = [e for e in decision.evaluation.limits if e.rate_tps <= limit.rate_tps * (1 + ALIKE)]
    others = decision.evaluation.limits[len(alike) :]
    if not others or limit.rate_tps <= 0:
        return None
    factor = others[0].rate_tps / limit.rate_tps
    noun = {"slot": "core", "machine": "machine", "link": "link", "network": "network card"}.get(limit.kind, limit.kind)
    too = f" and {len(alike) - 1} more elements that limit equally" if len(alike) > 1 else ""
    change = f"a {factor:.2f}× larger {noun} at {limit.name}{too} (then {others[0].kind} {others[0].name} limits)"
    return Relief(change, others[0].rate_tps)


def _move(planner: Planner, placement: Placement, users: list[tuple[int, float]]) -> list[Relief]:
    """Return the best move of one task away from the element."""
    slots, pins = planner.evaluator.slots, planner.view.pins
    now = np.asarray(placement.slots, dtype=np.int32)
    most = min(MAX_TRIALS, max(MAX_WORK // len(now), 1))
    places = np.arange(slots.number) if slots.number * len(users) <= most else slots.first[:-1]
    trials: list[tuple[int, int]] = [
        (task, int(slot)) for task, _ in users if pins[task] < 0 for slot in places if slot != now[task]
    ][:most]
    if not trials:
        return []
    rows: NDArray[np.int32] = np.repeat(now[None, :], len(trials), axis=0)
    for row, (task, slot) in enumerate(trials):
        rows[row, task] = slot
    scores = planner.evaluator.scorer(Objective.THROUGHPUT)(rows)
    best = int(np.argmax(scores))
    if not scores[best] > planner.evaluator.scorer(Objective.THROUGHPUT)(now[None, :])[0] * (1 + 1e-9):
        return []
    task, slot = trials[best]
    name = task_names(planner.topology)[task]
    return [Relief(f"moving {name} to {planner.cluster.slot_names[slot]}", float(scores[best]))]


def _more_tasks(planner: Planner, limit: Element, users: list[tuple[int, float]]) -> list[Relief]:
    """Return the effect of another task if a single task causes all of the element's load."""
    if limit.kind not in ("slot", "machine") or len(users) != 1:
        return []
    tasks = planner.evaluator.tasks
    component = planner.topology.components[tasks.position[tasks.component[users[0][0]]]]
    if not component.parallelisable or component.parallelism == component.max_parallelism:
        return []
    factor = (component.parallelism + 1) / component.parallelism
    change = f"parallelism {component.parallelism + 1} for {component.name}, if the new task finds a free core"
    return [Relief(change, limit.rate_tps * factor)]
