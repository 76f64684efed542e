from typing import Any

import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.planning.failover_placement import additions, completion
from penstock.planning.planner import Planner
from penstock.policies.repair import Repair


def an_application(*widths: int, cpu: float = 0.01, **settings: Any) -> Application:
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(widths) - 2), Kind.SINK]
    return Application(
        name="chain",
        components=tuple(
            Component(name=f"c{i}", kind=kind, parallelism=width, cpu=cpu, **settings)
            for i, (kind, width) in enumerate(zip(kinds, widths, strict=True))
        ),
        streams=tuple(
            Stream(source=f"c{i}", target=f"c{i + 1}", grouping=Grouping.FIELDS) for i in range(len(widths) - 1)
        ),
    )


def machines(*speeds: float, slots: int = 2) -> Cluster:
    return Cluster(
        name="some",
        machines=tuple(Machine(name=f"m{i}", cores=slots, slots=slots, speed=speed) for i, speed in enumerate(speeds)),
    )


def rate(application: Application, cluster: Cluster, placement: list[str]) -> float:
    slots = tuple(cluster.slot_names.index(slot) for slot in placement)
    return Planner(application, cluster).evaluator.evaluate(Placement(slots)).throughput_tps


def dealt(application: Application, slots: tuple[str, ...]) -> list[str]:
    return [slots[task % len(slots)] for task in range(application.task_count)]


@pytest.mark.parametrize("objective", list(Objective))
def test_moves_only_the_tasks_whose_slot_has_failed(objective: Objective) -> None:
    application, cluster = an_application(2, 6, 6, 2), machines(1.0, 2.0, 1.0, 1.5)
    wanted = dealt(application, cluster.slot_names)
    left = [slot for slot in cluster.slot_names if not slot.startswith("m1")]
    found = completion(application, cluster, objective)(wanted, left)
    assert [new for new, old in zip(found, wanted, strict=True) if old in left] == [
        old for old in wanted if old in left
    ]
    assert set(found) <= set(left)


def test_places_lost_tasks_for_the_best_rate() -> None:
    application, cluster = an_application(1, 2, 1), machines(1.0, 4.0, 1.0, slots=1)
    found = completion(application, cluster, Objective.THROUGHPUT)(["m0/0", "m0/0", "m2/0", "m2/0"], ["m0/0", "m1/0"])
    assert found == ["m0/0", "m0/0", "m1/0", "m1/0"]


def test_returns_the_plan_itself_once_everything_is_there_again() -> None:
    application, cluster = an_application(1, 4, 1), machines(1.0, 1.0)
    wanted = dealt(application, cluster.slot_names)
    assert list(completion(application, cluster)(wanted, cluster.slot_names)) == wanted


def test_uses_a_single_slot_that_is_too_small() -> None:
    application, cluster = an_application(2, 6, 2, memory_mb=1000.0), machines(1.0, 1.0, 1.0)
    wanted = dealt(application, cluster.slot_names)
    assert set(completion(application, cluster)(wanted, ["m2/1"])) == {"m2/1"}


def test_answers_on_a_network_that_is_cut() -> None:
    names = ["m0", "m1", "m2"]
    cluster = Cluster(
        name="cut",
        machines=tuple(Machine(name=name) for name in names),
        links=(Link(source="m0", target="m1", bandwidth_mbps=10.0),),
    )
    application = an_application(1, 2, 1)
    for objective in (Objective.THROUGHPUT, Objective.DELAY):
        found = completion(application, cluster, objective)(["m0/0", "m1/0", "m1/0", "m0/0"], ["m0/0", "m2/0"])
        assert found[0] == found[3] == "m0/0"
        assert set(found) == {"m0/0"}  # no way leads to the other


def test_spreads_evenly_over_slots_that_it_does_not_know() -> None:
    application, cluster = an_application(1, 4, 1), machines(1.0)
    complete = completion(application, cluster)
    found = complete(["m0/0"] * 6, ["new/0", "new/1"])
    assert sorted(found) == ["new/0"] * 3 + ["new/1"] * 3
    assert complete(["new/0"] * 5 + ["m0/0"], ["new/0", "new/1"]) == ["new/0"] * 5 + ["new/1"]


def test_takes_the_policy_that_it_is_given() -> None:
    application, cluster = an_application(1, 4, 4, 1), machines(1.0, 2.0, 1.0)
    wanted = dealt(application, cluster.slot_names)
    left = list(cluster.slot_names[2:])
    short, long = (
        list(completion(application, cluster, Objective.THROUGHPUT, Repair(rows))(wanted, left)) for rows in (1, 4096)
    )
    assert rate(application, cluster, short) <= rate(application, cluster, long)


def test_rejects_to_place_on_nothing() -> None:
    application, cluster = an_application(1, 1), machines(1.0)
    with pytest.raises(ValueError, match="no slot is available"):
        completion(application, cluster)(["m0/0", "m0/0"], [])


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.BALANCED])
def test_moves_some_tasks_to_a_machine_that_was_added(objective: Objective) -> None:
    application, cluster = an_application(2, 8, 8, 2), machines(1.0, 1.0, 1.0)
    current = dealt(application, cluster.slot_names[:4])
    moves = additions(application, cluster, current, objective)
    after = dict(moves)
    names = [f"{c.name}[{k}]" for c in application.components for k in range(c.parallelism)]
    placed = [after.get(name, slot) for name, slot in zip(names, current, strict=True)]
    assert 1 <= len(moves) <= 7
    assert all(slot.startswith("m2/") for slot in after.values())
    assert rate(application, cluster, placed) >= 1.1 * rate(application, cluster, current)


def test_moves_nothing_for_a_small_gain() -> None:
    application, cluster = an_application(2, 8, 8, 2), machines(10.0, 10.0, 0.1)
    assert additions(application, cluster, dealt(application, cluster.slot_names[:4])) == []


def test_moves_nothing_when_delay_counts() -> None:
    application, cluster = an_application(1, 2, 1), machines(1.0, 1.0)
    assert additions(application, cluster, ["m0/0"] * 4, Objective.DELAY) == []


def test_moves_nothing_when_no_machine_is_idle() -> None:
    application, cluster = an_application(1, 6, 1), machines(1.0, 5.0)
    assert additions(application, cluster, ["m0/0"] * 7 + ["m1/0"]) == []


def test_makes_no_more_moves_than_it_may() -> None:
    application, cluster = an_application(1, 8, 1), machines(1.0, 1.0)
    assert len(additions(application, cluster, ["m0/0"] * 10, Objective.THROUGHPUT, moves=2)) <= 2
