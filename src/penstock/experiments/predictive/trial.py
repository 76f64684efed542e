"""A trial: random placements visited, models fitted to them, judged on others, and what they decide measured.

All of it is on the twin; every visit has arrivals and service times of its own. What is compared at one load is
measured on the same arrivals, which none of the training had.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from penstock.control.planner import Planner
from penstock.estimate.latency import LatencyModel, LatencyModels, Loads
from penstock.experiments.figure import Case, Row
from penstock.experiments.predictive.limits import best_found
from penstock.experiments.predictive.models import (
    KINDS,
    PATHS,
    accuracies,
    from_features,
    from_placement,
    measured,
    observed_loads,
    rank_correlation,
    train,
)
from penstock.experiments.predictive.settings import (
    LOADS,
    NEW_LOADS,
    Amounts,
    amounts_of,
    loads_in_turn,
    setting,
)
from penstock.experiments.predictive.visits import Site
from penstock.experiments.predictive.windows import Key, Window
from penstock.model.placement import Placement

DECIDING = ("predictive", "predictive-search")
TRAINING, APART, AGAIN, KNOWN, AFTER, SCORED = range(6)  # what a seed is for


def run_trial(case: Case) -> list[Row]:
    """Run a case: a topology, a way to draw training placements, a seed."""
    amounts, number = amounts_of(case), int(case["seed"])
    base = setting(str(case["topology"]))
    sites = {load: Site(base, load, amounts.tuples) for load in (*LOADS, *NEW_LOADS)}
    rng = np.random.default_rng([number, 1])

    def seed(purpose: int, turn: int) -> int:
        return 1_000_000 * number + 10_000 * purpose + turn

    windows = []
    for turn, load in enumerate(loads_in_turn(amounts.windows)):
        slots = sites[load].draw(str(case["training"]), rng)
        windows.append(sites[load].window(slots, seed(TRAINING, turn)))
    models = train(sites[LOADS[0]].tables, windows, number)
    rows: list[Row] = []
    for turn, (load, site) in enumerate(sites.items()):
        known = site.following(base.default, seed(KNOWN, turn), amounts.known)
        loads = observed_loads(site, known)
        visited = [site.draw(str(case["training"]), rng) for _ in range(amounts.apart)]
        first = turn * amounts.apart
        apart = [site.window(slots, seed(APART, first + n)) for n, slots in enumerate(visited)]
        rows += _judged(site, models, loads, apart, [seed(AGAIN, first + n) for n in range(len(apart))])
        if load in LOADS:
            model = LatencyModel(site.instance, models["svr"], loads)
            rows += _decided(site, model, amounts, [seed(SCORED, 2 * turn), seed(AFTER, turn)])
    return rows


def _judged(
    site: Site, models: Mapping[str, LatencyModels], loads: Loads, apart: Sequence[Window], again: Sequence[int]
) -> Iterator[Row]:
    """Yield how well each kind of model predicts windows that it was not trained on, and the twin with other seeds."""
    tables = site.tables
    actual = [measured(tables, window.span) for window in apart]
    predicted: dict[tuple[str, str], list[dict[Key, float]]] = {}
    for kind in KINDS:
        model = LatencyModel(site.instance, models[kind], loads)
        predicted["features", kind] = [from_features(tables, models[kind], window) for window in apart]
        predicted["placement", kind] = [from_placement(model, window.slots) for window in apart]
    runs = zip(apart, again, strict=True)
    predicted["placement", "twin"] = [measured(tables, site.span(one.slots.tolist(), seed)) for one, seed in runs]
    for (given, scheme), times in predicted.items():
        about: Row = {"load": site.load, "given": given, "scheme": scheme}
        for (of, name), accuracy in accuracies(zip(times, actual, strict=True)).items():
            yield {**about, "what": "accuracy", "of": of, "name": name, "value": accuracy}
        rank = rank_correlation([one[PATHS] for one in times], [one[PATHS] for one in actual])
        yield {**about, "what": "rank", "of": PATHS[0], "name": PATHS[1], "value": rank}


def _decided(site: Site, model: LatencyModel, amounts: Amounts, seeds: Sequence[int]) -> Iterator[Row]:
    """Yield what tuples take under the default placement and under what is decided, and what was predicted of that."""
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
        for (of, name), seconds in measured(site.tables, span).items():
            yield {**about, "what": "time", "of": of, "name": name, "value": 1e3 * seconds}
        used = len(np.unique(site.instance.slots.machine[np.asarray(slots)]))
        yield {**about, "what": "machines", "of": PATHS[0], "name": PATHS[1], "value": float(used)}
        predicted = 1e3 * model.predict(slots).total_s
        yield {**about, "what": "predicted", "of": PATHS[0], "name": PATHS[1], "value": predicted}
