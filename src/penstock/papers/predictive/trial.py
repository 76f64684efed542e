"""A trial: random placements visited, models fitted to them, tested on others, and their decisions measured.

All of it is on the twin; every visit has arrivals and service times of its own. Results that are compared at one load
are measured on the same arrivals, which are not in the training data.

`best_found` is the potential gain: the best placement found by a search that uses the twin itself. Tasks are packed
evenly on the first 1, 2, … machines. Of these packings and the policies' placements, the one that is fastest on the
twin is improved once, task by task, as in Algorithm 1, over the machines in use and one more. No regression error is
involved, but it is still a search: the result is a lower bound of what is possible.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.calibration import Calibration
from penstock.estimate.latency import LatencyModel, LatencyModels, Loads
from penstock.experiments.figure import Case, Row
from penstock.model.placement import Placement
from penstock.papers.predictive.calibrated import calibrate, calibrated_twin
from penstock.papers.predictive.models import (
    PATHS,
    accuracies,
    from_features,
    from_placement,
    mean_of,
    measured_times,
    observed_loads,
    rank_correlation,
    train,
)
from penstock.papers.predictive.settings import LOADS, NEW_LOADS, Amounts, amounts_of, loads_in_turn, setting
from penstock.papers.predictive.visits import Site, Visit, seated
from penstock.papers.predictive.windows import Key, Window
from penstock.pipeline.fitting import KINDS
from penstock.planning.planner import Planner

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


DECIDING = ("predictive", "predictive-search")
CALIBRATED, TRUE = "calibrated twin", "true twin"
"""The twin calibrated with the training data, and the twin with the true, normally unknown costs."""
TRAINING, APART, AGAIN, KNOWN, AFTER, SCORED = range(6)  # purposes of a seed


class Learnt(NamedTuple):
    """Results of the training windows."""

    models: Mapping[str, LatencyModels]  # by kind
    calibration: Calibration


def run_trial(case: Case) -> list[Row]:
    """Run a case: a topology, a distribution of training placements, a seed."""
    amounts, number = amounts_of(case), int(case["seed"])
    base = setting(str(case["topology"]))
    sites = {load: Site(base, load, amounts.tuples) for load in (*LOADS, *NEW_LOADS)}
    rng = np.random.default_rng([number, 1])

    def seed(purpose: int, turn: int) -> int:
        return 1_000_000 * number + 10_000 * purpose + turn

    visits = []
    for turn, load in enumerate(loads_in_turn(amounts.windows)):
        slots = sites[load].draw(str(case["training"]), rng)
        visits.append(sites[load].visit(slots, seed(TRAINING, turn)))
    learnt = learn(sites[LOADS[0]], visits, number)
    rows: list[Row] = []
    for turn, (load, site) in enumerate(sites.items()):
        known = site.following(base.default, seed(KNOWN, turn), amounts.known)
        loads = observed_loads(site, known)
        visited = [site.draw(str(case["training"]), rng) for _ in range(amounts.apart)]
        first = turn * amounts.apart
        apart = [site.window(slots, seed(APART, first + n)) for n, slots in enumerate(visited)]
        again = [seed(AGAIN, first * amounts.repeats + n) for n in range(len(apart) * amounts.repeats)]
        rows += _judged(site, learnt, loads, apart, np.reshape(again, (len(apart), -1)).tolist())
        if load in LOADS:
            model = LatencyModel(site.instance, learnt.models["svr"], loads)
            rows += _decided(site, model, amounts, [seed(SCORED, 2 * turn), seed(AFTER, turn)])
    return rows


def learn(site: Site, visits: Sequence[Visit], seed: int) -> Learnt:
    """Fit models and calibrate the twin; the site, at any load, describes the application and the machines."""
    return Learnt(
        train(site.tables, [visit.window for visit in visits], seed),
        calibrate(site.application, site.setting.cluster, visits),
    )


def _judged(
    site: Site, learnt: Learnt, loads: Loads, apart: Sequence[Window], again: Sequence[Sequence[int]]
) -> Iterator[Row]:
    """Yield the accuracy of each kind of model on held-out windows, and of twins in runs of their own.

    again: for each window the seeds of a twin's runs, whose mean times are its prediction.
    """
    tables, models = site.tables, learnt.models
    actual = [measured_times(tables, window.span) for window in apart]
    predicted: dict[tuple[str, str], list[dict[Key, float]]] = {}
    for kind in KINDS:
        model = LatencyModel(site.instance, models[kind], loads)
        predicted["features", kind] = [from_features(tables, models[kind], window) for window in apart]
        predicted["placement", kind] = [from_placement(model, window.slots) for window in apart]
    for name, twin in ((CALIBRATED, calibrated_twin(site, learnt.calibration, loads)), (TRUE, site.twin)):
        predicted["placement", name] = [
            mean_of([measured_times(tables, site.span(one.slots.tolist(), seed, twin=twin)) for seed in seeds])
            for one, seeds in zip(apart, again, strict=True)
        ]
    for (given, scheme), times in predicted.items():
        about: Row = {"load": site.load, "given": given, "scheme": scheme}
        for (of, name), accuracy in accuracies(zip(times, actual, strict=True)).items():
            yield {**about, "what": "accuracy", "of": of, "name": name, "value": accuracy}
        rank = rank_correlation([one[PATHS] for one in times], [one[PATHS] for one in actual])
        yield {**about, "what": "rank", "of": PATHS[0], "name": PATHS[1], "value": rank}


def _decided(site: Site, model: LatencyModel, amounts: Amounts, seeds: Sequence[int]) -> Iterator[Row]:
    """Yield the times under the default placement and under the decisions, and the predictions of these."""
    scored, after = seeds
    chosen: dict[str, Sequence[int]] = {"default": site.setting.default}
    planner = Planner(site.application, site.setting.cluster, latency=model)
    for policy in DECIDING:
        result = planner.decide(policy).result
        assert isinstance(result, Placement), f"{policy}: {result}"
        chosen[policy] = result.slots
    chosen["twin"] = best_found(site, [tuple(slots) for slots in chosen.values()], scored)
    for scheme, slots in chosen.items():
        about: Row = {"load": site.load, "scheme": scheme, "given": "placement"}
        span = site.span(slots, after, amounts.measured)
        for (of, name), seconds in measured_times(site.tables, span).items():
            yield {**about, "what": "time", "of": of, "name": name, "value": 1e3 * seconds}
        used = len(np.unique(site.instance.slots.machine[np.asarray(slots)]))
        yield {**about, "what": "machines", "of": PATHS[0], "name": PATHS[1], "value": float(used)}
        predicted = 1e3 * model.predict(slots).total_s
        yield {**about, "what": "predicted", "of": PATHS[0], "name": PATHS[1], "value": predicted}
