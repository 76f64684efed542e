import msgspec
import pytest

from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.parallelism import (
    Bounds,
    allowed,
    bounds,
    forward_groups,
    parallelism_of,
    resized,
    shares_work,
)
from penstock.model.topology import Application, Component, Grouping, Kind, Stream

CLUSTER = Cluster(name="six", machines=(Machine(name="a", slots=4), Machine(name="b", slots=2)))
APPLICATION = Application(
    name="app",
    components=(
        Component(name="in", kind=Kind.SOURCE, parallelism=2),
        Component(name="parse", parallelism=2),
        Component(name="join", parallelism=3, min_parallelism=2, max_parallelism=5),
        Component(name="store", kind=Kind.SINK, parallelisable=False),
    ),
    streams=(
        Stream(source="in", target="parse", grouping=Grouping.FORWARD),
        Stream(source="parse", target="join"),
        Stream(source="join", target="store", grouping=Grouping.GLOBAL),
    ),
)


def changed(name: str, **fields: object) -> Application:
    """Return the application with other fields of one component."""
    parts = [msgspec.structs.replace(c, **fields) if c.name == name else c for c in APPLICATION.components]
    return msgspec.structs.replace(APPLICATION, components=tuple(parts))


def test_bounds_follow_from_limits_pins_and_slots() -> None:
    assert bounds(APPLICATION, CLUSTER) == {
        "in": Bounds(1, 6),
        "parse": Bounds(1, 6),
        "join": Bounds(2, 5),
        "store": Bounds(1, 1),
    }
    pinned = changed("parse", pinned=("a", "b"))
    assert bounds(pinned, CLUSTER)["in"] == bounds(pinned, CLUSTER)["parse"] == Bounds(2, 2)
    assert bounds(APPLICATION, CLUSTER, most=4)["join"] == Bounds(2, 4)
    assert bounds(APPLICATION, CLUSTER, most=1)["join"] == Bounds(2, 3)  # never below the present number


def test_a_component_with_more_tasks_than_slots_may_keep_them() -> None:
    assert bounds(changed("join", max_parallelism=None, parallelism=9), CLUSTER)["join"] == Bounds(2, 9)


def test_components_joined_by_forward_streams_change_together() -> None:
    assert sorted(sorted(group) for group in forward_groups(APPLICATION)) == [["in", "parse"], ["join"], ["store"]]
    limits = bounds(APPLICATION, CLUSTER)
    assert allowed(APPLICATION, limits, {"parse": 3.0, "in": 5.0}) == {"in": 5, "parse": 5, "join": 3, "store": 1}
    assert allowed(APPLICATION, limits, {"parse": 99.0, "join": 1.0, "store": 7.0}) == {
        "in": 6,
        "parse": 6,
        "join": 2,
        "store": 1,
    }
    assert allowed(APPLICATION, limits, {"join": float("inf")})["join"] == 5


def test_resizing_changes_only_what_is_named_and_keeps_the_kind_of_topology() -> None:
    grown = resized(APPLICATION, {"join": 5})
    assert isinstance(grown, Application)
    assert parallelism_of(grown) == {"in": 2, "parse": 2, "join": 5, "store": 1}
    assert resized(grown, parallelism_of(APPLICATION)) == APPLICATION


@pytest.mark.parametrize(
    ("parallelism", "error", "message"),
    [
        ({"sink": 2}, UnknownName, "parallelism.sink: no component is named 'sink'"),
        ({"join": 6}, InvalidInput, r"parallelism.join: expected ≤ max_parallelism 5, got 6"),
        ({"join": 0}, InvalidInput, r"parallelism.join: expected a whole number ≥ 1, got 0"),
        ({"store": 2}, InvalidInput, "parallelism.store: expected 1 as parallelisable is false, got 2"),
        ({"parse": 3}, InvalidInput, "forward joins task k to task k"),
    ],
)
def test_rejects_a_parallelism_that_is_not_allowed(
    parallelism: dict[str, int], error: type[InvalidInput], message: str
) -> None:
    with pytest.raises(error, match=message):
        resized(APPLICATION, parallelism)


def test_tasks_that_get_every_tuple_share_no_work() -> None:
    assert [shares_work(APPLICATION, name) for name in ("in", "parse", "join", "store")] == [True, True, True, False]
