"""Scaling policies against the least parallelism that the twin proves sufficient, on random chains.

Every task has a slot and a core of its own, as DS2 assumes. Sufficient means that the twin's queues stay bounded at the
rate; least, that they do not with one task less of any component.
"""

from functools import cache

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import NEAR, Cluster, Machine
from penstock.model.costs import Costs
from penstock.model.parallelism import parallelism_of, resized
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.planning.sizing import Sizer
from penstock.policies.api import ScalingView
from penstock.policies.registry import scaling_policy
from penstock.sim.events import Twin
from penstock.sim.events.measured import selectivities, task_loads
from penstock.workloads.arrivals import Constant

SEEDS = tuple(range(5))
CLUSTER = Cluster(name="roomy", machines=(Machine(name="m", cores=60, slots=60),), distances=NEAR)
STEPS = 20  # maximum changes until a policy is content
WARM_S, INTERVAL_S = 1.0, 4.0
FILLED_S, WINDOW = 1500.0, 32  # time in which a small overload fills all out-queues, which hold 4,096 tuples each
TRIAL_S, GROWTH = 20.0, 0.002  # growth of a bounded backlog, relative to what arrives: it is some tuples
CASES = pytest.mark.parametrize("seed", SEEDS)

Numbers = dict[str, int]


@cache
def case(seed: int) -> tuple[Application, float]:
    """Return a chain of three operators behind a source with little cost, and the rate that it has to carry."""
    rng = np.random.default_rng(seed)
    names = ("in", "first", "second", "out")
    cpu = [1e-5, *rng.uniform(0.002, 0.02, 3)]
    kinds = (Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK)
    components = [Component(name=n, kind=k, cpu=float(c)) for n, k, c in zip(names, kinds, cpu, strict=True)]
    streams = [
        Stream(source="in", target="first"),
        Stream(source="first", target="second", selectivity=float(rng.choice([0.5, 1.0, 2.0]))),
        Stream(source="second", target="out", selectivity=float(rng.choice([0.5, 1.0]))),
    ]
    rate = float(rng.uniform(100.0, 400.0))
    return Application(name="chain", components=tuple(components), streams=tuple(streams)), rate


def sustains(app: Application, numbers: Numbers, rate: float) -> bool:
    """Return whether the twin's queues stay bounded at a rate, with each task in a slot of its own."""
    sized = resized(app, numbers)
    run = Twin(sized, CLUSTER).start(range(sized.task_count), rates={"in": Constant(rate=rate)})
    before, after = run.advance(TRIAL_S), run.advance(TRIAL_S)
    grown = after.in_flight + after.waiting - before.in_flight - before.waiting
    return grown < GROWTH * after.offered


@cache
def least(seed: int) -> Numbers:
    """Return the least sufficient parallelism, found with the twin alone."""
    app, rate = case(seed)
    numbers = {name: 1 if name == "in" else 16 for name in parallelism_of(app)}
    for name in list(numbers)[1:]:
        low, high = 0, numbers[name]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if sustains(app, {**numbers, name: middle}, rate) else (middle, high)
        numbers[name] = high
    return numbers


def settled(spec: str, seed: int, start: Numbers, warm_s: float = WARM_S, window: int = 1024) -> tuple[Numbers, int]:
    """Return the parallelism at which a policy changes nothing any more, and the number of changes."""
    app, rate = case(seed)
    numbers, policy, changes = dict(start), scaling_policy(spec), 0
    for _ in range(STEPS):
        sized = resized(app, numbers)
        twin = Twin(sized, CLUSTER, Costs(window=window))
        run = twin.start(range(sized.task_count), rates={"in": rate})
        before = run.advance(warm_s).queue
        span = run.advance(INTERVAL_S)
        sizer = Sizer(app, CLUSTER)
        view = ScalingView(
            sized,
            CLUSTER,
            task_loads(span, before),
            selectivities(twin.instance, span),
            target_tps=rate,
            interval_s=INTERVAL_S,
            arrived=np.full(40, round(rate * INTERVAL_S)),
            machines=1,
            size=sizer.for_rate,
            predicted_tps=Evaluator(sized, CLUSTER).evaluate(Placement(tuple(range(sized.task_count)))).throughput_tps,
        )
        answer = dict(policy.resize(view, np.random.default_rng(0)).parallelism)
        if answer == numbers:
            break
        numbers, changes = answer, changes + 1
    return numbers, changes


@pytest.mark.slow
@CASES
def test_ds2_finds_the_least_parallelism_in_one_step_from_anywhere(seed: int) -> None:
    for width in (1, 12):
        start = {name: 1 if name == "in" else width for name in least(seed)}
        numbers, changes = settled("ds2", seed, start)
        assert numbers == least(seed)
        assert changes == 1


@pytest.mark.slow
@CASES
def test_threshold_is_sufficient_and_keeps_its_reserve(seed: int) -> None:
    app, rate = case(seed)
    ones = dict.fromkeys(least(seed), 1)
    numbers, _ = settled("threshold", seed, ones)
    assert sustains(app, numbers, rate)
    for name, number in least(seed).items():
        assert number <= numbers[name] <= number / 0.4 + 1  # the lower end of the band


@pytest.mark.slow
@CASES
def test_look_ahead_is_sufficient_and_keeps_its_reserve(seed: int) -> None:
    app, rate = case(seed)
    ones = dict.fromkeys(least(seed), 1)
    numbers, changes = settled("look-ahead", seed, ones)
    assert changes == 1
    assert sustains(app, numbers, rate)
    for name, number in least(seed).items():
        assert number <= numbers[name] <= np.ceil(number / 0.9) + 1


@pytest.mark.slow
@CASES
def test_dhalion_comes_close_to_a_sufficient_parallelism_step_by_step(seed: int) -> None:
    """Back-pressure shows once queues are full, which takes long if a few percent of the capacity are missing."""
    app, rate = case(seed)
    ones = dict.fromkeys(least(seed), 1)
    numbers, changes = settled("dhalion:pending=0", seed, ones, FILLED_S, WINDOW)
    assert not sustains(app, ones, 0.9 * rate)
    assert sustains(app, numbers, 0.9 * rate)
    assert changes > 1


@pytest.mark.slow
@CASES
def test_the_least_parallelism_is_what_the_costs_imply(seed: int) -> None:
    app, rate = case(seed)
    demand, found = rate, {}
    for component, stream in zip(app.components[1:], app.streams, strict=True):
        demand *= stream.selectivity
        found[component.name] = int(np.ceil(demand * component.cpu))
    assert {name: number for name, number in least(seed).items() if name != "in"} == found
