"""The repair of placements against brute force, and which constraints it relaxes first."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Machine
from penstock.model.objective import Objective
from penstock.model.placement import MEMORY_SLACK
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.policies.api import PlacementView
from penstock.policies.repair import Repair, relative_gain
from tests.policies.cases import chain, cluster, equal_machines

Placed = NDArray[np.int32]
GROUPINGS = (Grouping.SHUFFLE, Grouping.FIELDS, Grouping.FORWARD, Grouping.GLOBAL, Grouping.ALL)
WAYS = 3000  # maximum number of placements of the lost tasks in cases where all are tried


def a_view(application: Application, machines: Cluster, objective: Objective) -> PlacementView:
    """Return a view whose scores ignore memory."""
    roomy = tuple(
        Machine(name=m.name, cores=m.cores, slots=m.slots, speed=m.speed, network_mbps=m.network_mbps, memory_mb=1e15)
        for m in machines.machines
    )
    scorer = Evaluator(application, cluster(*roomy)).scorer(objective)
    return PlacementView(application, machines, objective, scorer)


def as_application(widths: tuple[int, ...], **settings: Any) -> Application:
    made = chain(*widths, **settings)
    return Application(name="chain", components=made.components, streams=made.streams)


class Loss:
    """A random application on random machines, one of which is lost."""

    def __init__(self, seed: int, objective: Objective) -> None:
        rng = np.random.default_rng(seed)
        number, machines = int(rng.integers(3, 5)), int(rng.integers(3, 5))
        kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (number - 2), Kind.SINK]
        components = [
            Component(
                name=f"c{i}",
                kind=kind,
                parallelism=int(rng.integers(1, 4)),
                cpu=float(rng.uniform(0.1, 3.0)),
                memory_mb=float(rng.uniform(10.0, 300.0)),
            )
            for i, kind in enumerate(kinds)
        ]
        streams = []
        for i in range(number - 1):
            grouping = GROUPINGS[rng.integers(len(GROUPINGS))]
            if grouping is Grouping.FORWARD and components[i].parallelism != components[i + 1].parallelism:
                grouping = Grouping.SHUFFLE
            size = float(rng.uniform(10.0, 1e4))
            streams.append(Stream(source=f"c{i}", target=f"c{i + 1}", grouping=grouping, tuple_bytes=size))
        application = Application(name="random", components=tuple(components), streams=tuple(streams))
        self.view = a_view(application, self._machines(machines, rng), objective)
        slots = self.view.slots
        placed = rng.integers(0, slots.number, self.view.tasks.number).astype(np.int32)
        self.opened = slots.machine != rng.integers(0, machines)
        self.kept = np.where(self.opened[placed], placed, -1).astype(np.int32)
        self.ways = int(self.opened.sum()) ** int((self.kept < 0).sum())

    def _machines(self, number: int, rng: np.random.Generator) -> Cluster:
        return cluster(
            *(
                Machine(
                    name=f"m{i}",
                    cores=int(rng.integers(1, 3)),
                    slots=int(rng.integers(1, 3)),
                    speed=float(rng.uniform(0.5, 2.0)),
                    memory_mb=float(rng.choice([400.0, 800.0, 4000.0])),
                    network_mbps=float(rng.choice([1.0, 100.0])),
                )
                for i in range(number)
            )
        )

    def measure(self, slots: list[int]) -> tuple[float, float]:
        """Return the excess memory and the score."""
        assert self.view.evaluate is not None
        machine = self.view.slots.machine[slots]
        limit = self.view.slots.machine_memory_mb
        used = np.bincount(machine, self.view.tasks.memory_mb, len(limit))
        excess = float(np.maximum(used - limit * (1 + MEMORY_SLACK), 0.0).sum())
        return excess, float(self.view.evaluate(np.array([slots], dtype=np.int32))[0])

    def best(self) -> tuple[float, float]:
        """Return the same for the best of all placements of the lost tasks."""
        lost, found = np.flatnonzero(self.kept < 0), []
        for slots in product(np.flatnonzero(self.opened), repeat=len(lost)):
            row = self.kept.copy()
            row[lost] = slots
            found.append(self.measure(row.tolist()))
        least = min(excess for excess, _ in found)
        return least, max(score for excess, score in found if excess <= least + 1e-3)


def losses(objective: Objective, seeds: range, fewest: int = 2) -> list[Loss]:
    made = [Loss(seed, objective) for seed in seeds]
    return [loss for loss in made if fewest <= loss.ways <= WAYS]


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.DELAY, Objective.TRAFFIC])
def test_finds_the_optimum_if_it_can_try_all_placements(objective: Objective) -> None:
    cases = losses(objective, range(40))
    assert len(cases) >= 20
    for loss in cases:
        placed = Repair(rows=WAYS).complete(loss.view, loss.kept, loss.opened)
        assert loss.measure(placed) == pytest.approx(loss.best(), rel=1e-6, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.DELAY, Objective.TRAFFIC])
def test_is_close_to_the_optimum_if_it_searches(objective: Objective) -> None:
    cases = losses(objective, range(40, 100), fewest=16)
    assert len(cases) >= 20
    close = []
    for loss in cases:
        placed = Repair(rows=min(loss.ways - 1, 512)).complete(loss.view, loss.kept, loss.opened)
        (excess, score), (least, best) = loss.measure(placed), loss.best()
        assert excess <= least + 1e-3
        close.append(score >= best - 0.02 * abs(best))
    assert np.mean(close) >= 0.95


def test_tasks_in_open_slots_stay() -> None:
    for loss in losses(Objective.THROUGHPUT, range(40)):
        placed = np.array(Repair(rows=100).complete(loss.view, loss.kept, loss.opened))
        stays = loss.kept >= 0
        assert (placed[stays] == loss.kept[stays]).all()
        assert loss.opened[placed].all()


def test_is_repeatable() -> None:
    for loss in losses(Objective.THROUGHPUT, range(20)):
        answers = [Repair(rows=64).complete(loss.view, loss.kept, loss.opened) for _ in range(2)]
        assert answers[0] == answers[1]


def test_spreads_tasks_without_cost() -> None:
    view = a_view(as_application((1, 6, 1)), equal_machines(4), Objective.THROUGHPUT)
    kept, opened = np.array([0, 0, 1, 2, -1, -1, -1, -1], dtype=np.int32), np.array([True, True, True, False])
    placed = Repair(rows=16).complete(view, kept, opened)
    assert sorted(np.bincount(placed).tolist()) == [2, 3, 3]


def test_respects_a_pin_while_its_machine_exists() -> None:
    application = as_application((1, 2, 1), cpu=1.0, pinned="m1")
    view = a_view(application, equal_machines(3, slots=2, cores=2), Objective.THROUGHPUT)
    kept = np.full(4, -1, dtype=np.int32)
    there = Repair().complete(view, kept, np.array([True, True, False, True, True, True]))
    assert there == [3, 3, 3, 3]
    gone = Repair().complete(view, kept, np.array([True, True, False, False, True, True]))
    assert set(gone) == {0, 1, 4, 5}


def test_uses_machines_with_a_resource_while_there_is_one() -> None:
    made = as_application((1, 1, 1), cpu=1.0)
    needy = Component(name="c1", cpu=1.0, resources={"gpu": 1.0})
    application = Application(
        name="gpu", components=(made.components[0], needy, made.components[2]), streams=made.streams
    )
    machines = cluster(Machine(name="a"), Machine(name="b", resources={"gpu": 1.0}), Machine(name="c"))
    view = PlacementView(
        application, machines, "throughput", Evaluator(application, machines).scorer(Objective.THROUGHPUT)
    )
    kept = np.array([0, -1, 2], dtype=np.int32)
    assert Repair().complete(view, kept, np.array([True, True, True])) == [0, 1, 2]
    assert Repair().complete(view, kept, np.array([True, False, True]))[1] in (0, 2)


def test_exceeds_memory_as_little_as_possible() -> None:
    application = as_application((1, 3, 1), cpu=1.0, memory_mb=100.0)
    machines = cluster(*(Machine(name=f"m{i}", memory_mb=mb) for i, mb in enumerate((150.0, 350.0, 1000.0))))
    view = a_view(application, machines, Objective.THROUGHPUT)
    placed = Repair().complete(view, np.full(5, -1, dtype=np.int32), np.array([True, True, False]))
    assert np.bincount(placed).tolist() == [2, 3]  # 50 MB over; with one and four it would be, too
    placed = Repair().complete(view, np.full(5, -1, dtype=np.int32), np.array([True, True, True]))
    held = np.bincount(placed, minlength=3)
    assert held[0] <= 1
    assert held[1] <= 3


def test_raises_if_no_slot_is_open() -> None:
    view = a_view(as_application((1, 1)), equal_machines(2), Objective.THROUGHPUT)
    with pytest.raises(ValueError, match="no slot is open"):
        Repair().complete(view, np.array([-1, 0], dtype=np.int32), np.array([False, False]))


def test_extends_to_an_open_machine_with_few_moves() -> None:
    view = a_view(as_application((1, 4, 1), cpu=1.0, grouping=Grouping.FIELDS), equal_machines(3), Objective.THROUGHPUT)
    placed = np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)
    moves = Repair().extend(view, placed, np.array([False, False, True]), most=6)
    assert view.evaluate is not None
    after = placed.copy()
    for task, slot in moves:
        after[task] = slot
    scores = view.evaluate(np.array([placed, after]))
    assert scores[1] >= 1.2 * scores[0] * (1 - 1e-9)
    assert len(moves) == 2  # one from each of the busy machines: no single one helps
    assert {slot for _, slot in moves} == {2}


def test_extends_within_the_limit_of_moves_and_never_moves_pinned_tasks() -> None:
    view = a_view(as_application((1, 6, 1), cpu=1.0), equal_machines(2), Objective.THROUGHPUT)
    placed, opened = np.zeros(8, dtype=np.int32), np.array([False, True])
    assert len(Repair().extend(view, placed, opened, most=2)) == 2
    pinned = a_view(as_application((1, 6, 1), cpu=1.0, pinned="m0"), equal_machines(2), Objective.THROUGHPUT)
    assert Repair().extend(pinned, placed, opened, most=8) == []


def test_finds_moves_that_help_only_together() -> None:
    made = as_application((10, 20, 20, 20, 10), grouping=Grouping.FIELDS)
    costs = (1e-4, 1e-3, 2e-3, 4e-3, 2e-4)
    components = tuple(
        Component(name=c.name, kind=c.kind, parallelism=c.parallelism, cpu=cpu)
        for c, cpu in zip(made.components, costs, strict=True)
    )
    application = Application(name="heavier", components=components, streams=made.streams)
    machines = cluster(*(Machine(name=f"m{i}", cores=2, slots=2, speed=1 + i % 3 * 0.5) for i in range(10)))
    view = a_view(application, machines, Objective.THROUGHPUT)
    placed, opened = (np.arange(80) % 16).astype(np.int32), np.arange(20) >= 16
    single = np.repeat(placed[None, :], 320, axis=0)
    single[np.arange(320), np.arange(320) // 4] = 16 + np.arange(320) % 4
    assert view.evaluate is not None
    before = view.evaluate(placed[None, :])[0]
    assert view.evaluate(single).max() <= before * (1 + 1e-6)
    after = placed.copy()
    for task, slot in Repair().extend(view, placed, opened, most=20):
        after[task] = slot
    assert view.evaluate(after[None, :])[0] > 1.1 * before


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [(100.0, 110.0, 0.1), (-10.0, -9.0, 0.1), (np.inf, np.inf, 0.0), (100.0, 90.0, -0.1), (-np.inf, 5.0, np.inf)],
)
def test_gain_is_relative_for_both_signs(before: float, after: float, share: float) -> None:
    assert relative_gain(before, after) == pytest.approx(share)
