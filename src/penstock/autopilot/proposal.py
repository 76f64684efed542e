"""Propose changes: a policy's placement for the observed load, reduced to the most valuable moves.

A proposal is a pure function of application, cluster and a decision's inputs. Without latency models, the planner's
objective gives the gain of a placement; with them, the latency predicted for what tasks were observed to process.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from penstock.autopilot.ledger import Alternative, Inputs, TaskMove
from penstock.autopilot.smallest_change import ENOUGH, Waypoint, choose_waypoint, find_nearest, order_moves
from penstock.estimate.evaluator import UNSUSTAINED
from penstock.estimate.latency import LatencyModel, LatencyModels, Loads, load_models
from penstock.model.cluster import Cluster, machine_of
from penstock.model.errors import PenstockError
from penstock.model.instance import Instance
from penstock.model.objective import Objective
from penstock.model.placement import Hop, Infeasible, Placement
from penstock.model.plan import Plan, PlannedRoute, to_plan
from penstock.model.routes import route_hops
from penstock.model.taskgraph import Floats, Ints, sum_by, task_names
from penstock.model.topology import Application
from penstock.planning.planner import Planner


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A possible change and its predicted effect."""

    moves: list[TaskMove] = []
    weights: list[float] = []  # tuples that each moved task processes per source tuple
    gain: float = 0.0  # relative
    predicted_s: float | None = None  # latency afterwards
    alternatives: list[Alternative] = []
    problem: str = ""  # why there is none
    caution: str = ""  # why the prediction may be wrong


Proposer = Callable[[Application, Cluster, Inputs], Proposal]
"""A function that proposes changes: normally a policy, in tests a fake."""


class NoRoute(PenstockError):
    """A placement with streams that have no route through the network."""


def propose_with_policy(application: Application, cluster: Cluster, inputs: Inputs) -> Proposal:
    """Propose with the policy named in the inputs."""
    planner = planner_for(application, cluster, inputs)
    decided = planner.decide(inputs.policy)
    if isinstance(decided.result, Infeasible):
        return Proposal(problem=f"{inputs.policy} found no placement: {decided.result.reason}")
    now = slot_numbers(inputs.placement, cluster)
    asked = np.array(decided.result.slots, dtype=now.dtype)
    evaluate = planner.view.evaluate
    assert evaluate is not None, "a planner's view always has one"
    uneven = planner.latency is not None and bool(_seen(inputs))
    wanted = _avoid_unreachable(asked, now, cluster, inputs)
    near = find_nearest(planner.view, evaluate, now, wanted, loss=1 - ENOUGH if uneven else 0.0)
    stops = order_moves(evaluate, now, near, inputs.guard.max_moves)
    chosen = choose_waypoint(stops)
    moves = list(chosen.tasks)
    reached = now.copy()
    reached[moves] = near[moves]
    names = list(inputs.placement)
    whole = float(evaluate(asked[None].astype(np.int32))[0])
    waypoints = [Waypoint(tuple(np.flatnonzero(asked != now)), whole), *stops[1:]]
    alternatives = [_alternative("stay", Waypoint((), stops[0].score), stops[0], planner, chosen)]
    alternatives += [
        _alternative(inputs.policy if stop is waypoints[0] else "best part", stop, stops[0], planner, chosen)
        for stop in waypoints
    ]
    return Proposal(
        moves=[TaskMove(names[t], cluster.slot_names[now[t]], cluster.slot_names[near[t]]) for t in moves],
        weights=[float(weight) for weight in _weights(planner)[moves]],
        gain=relative_gain(planner, stops[0].score, chosen.score),
        predicted_s=-chosen.score if inputs.model and chosen.score > UNSUSTAINED / 2 else None,
        alternatives=alternatives,
        problem="" if moves or np.array_equal(near, now) else f"no move towards {inputs.policy}'s placement has a gain",
        caution=_untrained(planner, reached) if moves else "",
    )


def planner_for(application: Application, cluster: Cluster, inputs: Inputs) -> Planner:
    """Return a planner for the observed load."""
    offered = {name: rate for name, rate in inputs.rates.items() if rate > 0}
    known = len(offered) == len(application.sources)
    loaded = msgspec.structs.replace(application, rate_tps=offered if known else application.rate_tps)
    latency = None
    if inputs.model:
        instance = Instance(loaded, cluster)
        latency = LatencyModel(
            instance, _models(inputs.model, _age(inputs.model)), loads_from_readings(instance, inputs)
        )
    return Planner(loaded, cluster, inputs.objective, inputs.seed, latency=latency)


def loads_from_readings(instance: Instance, inputs: Inputs) -> Loads:
    """Return what tasks processed in the last minutes, scaled to the rate that is offered now.

    Components without any tuples yet have their declared load, and so have all before the first readings.
    """
    declared, seen = Loads.declared(instance), _seen(inputs)
    tasks, names = instance.tasks, task_names(instance.topology)
    if seen.keys() != set(names):
        return declared
    tps = np.array([seen[name] for name in names])
    given, offered = tps[tasks.source].sum(), sum(inputs.rates.values())
    if given <= 0 or offered <= 0:
        return declared
    known = sum_by(tasks.component, tps, len(tasks.position))[tasks.component] > 0
    return Loads.of_tasks(instance, np.where(known, tps * offered / given, declared.task_tps))


def _seen(inputs: Inputs) -> Mapping[str, float]:
    """Return tuples per second of each task in the last reading; empty if unknown yet."""
    return inputs.readings[-1].tasks if inputs.readings else {}


def _weights(planner: Planner) -> Floats:
    """Return how many tuples each task processes per source tuple. [T]"""
    tasks = planner.view.tasks
    tps = tasks.gain if planner.latency is None else planner.latency.loads.task_tps
    given = tps[tasks.source].sum()
    weights: Floats = tps / given if given > 0 else tasks.gain
    return weights


@lru_cache(maxsize=4)
def _models(path: str, _: int) -> LatencyModels:
    """Read models once, until their file changes."""
    return load_models(path)


def find_foreign_cluster(path: str, cluster: Cluster) -> str:
    """Return a caution if models were trained on another cluster; empty if the file can no longer be read."""
    try:
        return _models(path, _age(path)).foreign(cluster)
    except PenstockError:
        return ""


def checksum_models(path: str) -> str:
    """Return the checksum of a file of latency models; empty if it cannot be read."""
    try:
        return _models(path, _age(path)).checksum if path else ""
    except PenstockError:
        return ""


def _age(path: str) -> int:
    return Path(path).stat().st_mtime_ns if Path(path).exists() else 0


def relative_gain(planner: Planner, now: float, then: float) -> float:
    """Return the relative improvement of a score; 1 if the current placement is not allowed."""
    if not np.isfinite(now) or not np.isfinite(then):
        return float(np.isfinite(then)) - float(np.isfinite(now))
    if planner.objective is Objective.BALANCED and planner.latency is None:
        return then - now  # already relative (TATA, eq. (13))
    return (then - now) / abs(now) if now else float(then > now)


def slot_numbers(placement: Mapping[str, str], cluster: Cluster) -> Ints:
    """Return the slot of every task as a number."""
    number = {name: slot for slot, name in enumerate(cluster.slot_names)}
    return np.array([number[slot] for slot in placement.values()], dtype=np.int64)


def make_plan(
    application: Application,
    cluster: Cluster,
    placement: Mapping[str, str],
    *,
    policy: str,
    objective: str,
    seed: int,
    by: tuple[PlannedRoute, ...] = (),
) -> Plan:
    """Return a placement by names as a plan; if the network is routed, with the routes `by`, or the widest."""
    slots = slot_numbers(placement, cluster)
    routes: Mapping[Hop, tuple[int, ...]] = {}
    if cluster.routed and not by:
        instance = Instance(application, cluster)
        found = route_hops(instance.tasks, instance.slots, instance.links, slots.tolist())
        if isinstance(found, Hop):
            stream = application.streams[found.stream].label
            raise NoRoute(f"plan: stream {stream} has no route between two of its machines; choose another policy")
        routes = found
    decided = Placement(tuple(int(slot) for slot in slots), routes)
    plan = to_plan(application, cluster, decided, policy=policy, objective=objective, seed=seed)
    return msgspec.structs.replace(plan, routes=by) if by else plan


def _untrained(planner: Planner, placed: Ints) -> str:
    """Return a caution if latency models have to extrapolate far beyond their training data."""
    if planner.latency is None or not (predicted := planner.latency.predict(placed)).far:
        return ""
    return f"though a feature is {predicted.excess:.0%} beyond the models' training data"


def _avoid_unreachable(wanted: Ints, now: Ints, cluster: Cluster, inputs: Inputs) -> Ints:
    """Leave tasks in place that would move to machines that do not respond."""
    unreachable = set(inputs.readings[-1].unreachable) if inputs.readings else set()
    lost = [machine_of(slot) in unreachable for slot in cluster.slot_names]
    return np.where(np.array(lost)[wanted], now, wanted)


def _alternative(name: str, stop: Waypoint, stay: Waypoint, planner: Planner, chosen: Waypoint) -> Alternative:
    score = stop.score if np.isfinite(stop.score) else None
    better = relative_gain(planner, stay.score, stop.score)
    same = stop == chosen
    return Alternative(name=name, moves=len(stop.tasks), score=score, gain=better, chosen=same)
