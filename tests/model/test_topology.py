import pytest

from penstock.model.cluster import Cluster, Machine, check_pins
from penstock.model.errors import (
    CyclicTopology,
    DuplicateName,
    InvalidInput,
    UnequalForward,
    UnknownMachine,
    UnknownName,
    UnreachableComponent,
)
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream, Topology

SOURCE = Component(name="in", kind=Kind.SOURCE)
SINK = Component(name="out", kind=Kind.SINK)


def test_rejects_a_cycle_of_streams_and_names_it() -> None:
    with pytest.raises(CyclicTopology, match=r"a -> b -> a|b -> a -> b"):
        Topology(
            name="t",
            components=(SOURCE, Component(name="a"), Component(name="b"), SINK),
            streams=(
                Stream(source="in", target="a"),
                Stream(source="a", target="b"),
                Stream(source="b", target="a"),
                Stream(source="b", target="out"),
            ),
        )


def test_rejects_a_component_without_input() -> None:
    with pytest.raises(UnreachableComponent, match=r"^components\[1\]: no stream leads to 'lost'"):
        Topology(
            name="t",
            components=(SOURCE, Component(name="lost"), SINK),
            streams=(Stream(source="in", target="out"), Stream(source="lost", target="out")),
        )


def test_rejects_an_operator_without_output() -> None:
    with pytest.raises(UnreachableComponent, match=r"leads on from 'dead'.*make it a sink"):
        Topology(
            name="t",
            components=(SOURCE, Component(name="dead"), SINK),
            streams=(Stream(source="in", target="dead"), Stream(source="in", target="out")),
        )


def test_rejects_forward_between_unequal_parallelisms() -> None:
    with pytest.raises(UnequalForward, match=r"^streams\[0\]\.grouping: .*'in' has 1 tasks and 'out' 2"):
        Topology(
            name="t",
            components=(SOURCE, Component(name="out", kind=Kind.SINK, parallelism=2)),
            streams=(Stream(source="in", target="out", grouping=Grouping.FORWARD),),
        )


def test_rejects_a_pin_to_an_unknown_machine() -> None:
    topology = Topology(
        name="t",
        components=(Component(name="in", kind=Kind.SOURCE, pinned="moon"), SINK),
        streams=(Stream(source="in", target="out"),),
    )
    with pytest.raises(UnknownMachine, match=r"^components\[0\]\.pinned: .*no 'moon'; there are earth"):
        check_pins(topology, Cluster(name="c", machines=(Machine(name="earth"),)))


EARTH = Cluster(name="c", machines=(Machine(name="earth", labels=("camera", "wet")), Machine(name="mars")))


def joined(source: Component) -> Topology:
    return Topology(name="t", components=(source, SINK), streams=(Stream(source="in", target="out"),))


def test_accepts_a_machine_for_each_task() -> None:
    cameras = Component(name="in", kind=Kind.SOURCE, parallelism=2, pinned=("mars", "earth"))
    check_pins(joined(cameras), EARTH)
    assert cameras.pins == ("mars", "earth")
    assert SOURCE.pins == (None,)


def test_rejects_more_or_fewer_pins_than_tasks() -> None:
    with pytest.raises(InvalidInput, match=r"^pinned: expected one machine per task, 1, got 2; set parallelism = 2"):
        Component(name="in", kind=Kind.SOURCE, pinned=("mars", "earth"))


def test_names_the_pin_that_is_wrong() -> None:
    cameras = Component(name="in", kind=Kind.SOURCE, parallelism=2, pinned=("mars", "moon"))
    with pytest.raises(UnknownMachine, match=r"^components\[0\]\.pinned\[1\]: .*no 'moon'; there are earth, mars"):
        check_pins(joined(cameras), EARTH)


def test_rejects_a_label_that_no_machine_has() -> None:
    with pytest.raises(UnknownMachine, match=r"^components\[0\]\.on: .*label 'dry'; there are camera, wet"):
        check_pins(joined(Component(name="in", kind=Kind.SOURCE, on="dry")), EARTH)


def test_rejects_a_pin_to_a_machine_without_the_label() -> None:
    with pytest.raises(InvalidInput, match=r"^components\[0\]\.on: 'in' is pinned to 'mars', which lacks .*'wet'"):
        check_pins(joined(Component(name="in", kind=Kind.SOURCE, pinned="mars", on="wet")), EARTH)


def test_rejects_anti_affinity_to_an_unknown_component() -> None:
    with pytest.raises(UnknownName, match=r"^components\[0\]\.anti_affinity\[0\]: .*'moon'; there are in, out"):
        joined(Component(name="in", kind=Kind.SOURCE, anti_affinity=("moon",)))


def test_rejects_two_components_of_one_name() -> None:
    with pytest.raises(DuplicateName, match=r"components\[1\]: 'in' is already at components\[0\]"):
        Topology(name="t", components=(SOURCE, SOURCE))


def test_rejects_a_stream_to_an_unknown_component() -> None:
    with pytest.raises(UnknownName, match=r"streams\[0\]\.target: no component is named 'x'; there are in, out"):
        Topology(name="t", components=(SOURCE, SINK), streams=(Stream(source="in", target="x"),))


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"parallelism": 0}, "parallelism"),
        ({"parallelism": 2, "max_parallelism": 1}, "parallelism"),
        ({"parallelism": 1, "min_parallelism": 2}, "parallelism"),
        ({"parallelism": 2, "parallelisable": False}, "parallelism"),
        ({"cpu": -0.1}, "cpu"),
        ({"cpu": float("nan")}, "cpu"),
        ({"memory_mb": float("inf")}, "memory_mb"),
        ({"resources": {"gpu": -1.0}}, "resources.gpu"),
        ({"name": "two words"}, "name"),
    ],
)
def test_a_component_built_in_python_is_checked_like_one_from_a_file(fields: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Component(**{"name": "c", **fields})  # type: ignore[arg-type]
    assert refused.value.path == path


def test_shaped_service_times_need_a_shape_and_others_have_none() -> None:
    with pytest.raises(InvalidInput, match="cv: expected a number > 0"):
        ServiceTime(distribution=Distribution.GAMMA)
    with pytest.raises(InvalidInput, match="cv: expected none"):
        ServiceTime(distribution=Distribution.CONSTANT, cv=0.5)


def test_order_puts_upstream_first_and_otherwise_keeps_the_listing() -> None:
    topology = Topology(
        name="t",
        components=(SINK, Component(name="b"), Component(name="a"), SOURCE),
        streams=(
            Stream(source="in", target="a"),
            Stream(source="in", target="b"),
            Stream(source="a", target="out"),
            Stream(source="b", target="out"),
        ),
    )
    assert [topology.components[position].name for position in topology.order] == ["in", "b", "a", "out"]


def test_offered_load_is_known_only_when_every_source_states_it() -> None:
    components = (SOURCE, Component(name="in2", kind=Kind.SOURCE), SINK)
    streams = (Stream(source="in", target="out"), Stream(source="in2", target="out"))
    with pytest.raises(InvalidInput, match="rate_tps: expected a rate for every source or none at all, 'in2' has none"):
        Application(name="a", components=components, streams=streams, rate_tps={"in": 5.0})
    unknown = Application(name="a", components=components, streams=streams)
    fully = Application(name="a", components=components, streams=streams, rate_tps={"in": 5.0, "in2": 7.0})
    assert unknown.offered_tps is None
    assert fully.offered_tps == 12.0
    with pytest.raises(UnknownName, match=r"rate_tps\.out: no source is named 'out'"):
        Application(name="a", components=components, streams=streams, rate_tps={"out": 1.0})
