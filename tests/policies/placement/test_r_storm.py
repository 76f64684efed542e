import numpy as np
import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.topology import Application, Component, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.placement.r_storm import breadth_first, demand_rate, network_distance
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed

UNEQUAL = cluster(
    Machine(name="two", cores=2, memory_mb=100.0),
    Machine(name="three", cores=3, memory_mb=100.0),
    Machine(name="one", cores=1, memory_mb=100.0),
)


def with_load(topology: Topology, rate_tps: float) -> Application:
    return Application(name="app", components=topology.components, streams=topology.streams, rate_tps={"c0": rate_tps})


def test_worked_example_at_the_load_that_uses_all_cpu() -> None:
    # Six cores and 3 core-seconds per tuple: 2 tuples per second, so c0 demands 2, each c1 1 and c2 2 cores. c0 goes to
    # the largest machine and leaves 1 there, which is just what c1[0] demands; only "two" has 2 left for c2, and
    # only "one" has 1 left for c1[1].
    view = PlacementView(chain(1, 2, 1, cpu=1.0), UNEQUAL)
    assert demand_rate(view) == pytest.approx(2.0)
    assert machines_of(view, placed("r-storm", view)).tolist() == [1, 1, 2, 0]


def test_worked_example_at_half_that_load_fits_the_reference_machine() -> None:
    # Demands 1, ½, ½, 1: the reference has 3 and is at no distance; leaving it would cost at least 1.
    view = PlacementView(with_load(chain(1, 2, 1, cpu=1.0), 1.0), UNEQUAL)
    assert set(machines_of(view, placed("r-storm", view))) == {1}


def test_prefers_the_tightest_fit_when_the_network_does_not_count() -> None:
    # After c0 (1 of 3 on the reference), c1[0] demands ½ of what is left: 2, 2 and 1. The last is nearest.
    view = PlacementView(with_load(chain(1, 2, 1, cpu=1.0), 1.0), UNEQUAL)
    where = machines_of(view, placed("r-storm:network_weight=0", view))
    assert where[[0, 1]].tolist() == [1, 2]


def test_overloads_only_if_no_machine_has_enough_cpu_left() -> None:
    view = PlacementView(with_load(chain(1, 5, cpu=1.0), 8.0), equal_machines(4, cores=4, slots=4))
    # c0 demands 8 of 4 cores; the five c1 demand 1.6 each and fit twice on each of the three other machines
    load = np.bincount(machines_of(view, placed("r-storm", view)), minlength=4)
    assert load.tolist() == [1, 2, 2, 1]


def test_takes_the_least_overloaded_machine_when_all_are() -> None:
    view = PlacementView(with_load(chain(4, 1, cpu=1.0), 40.0), equal_machines(4, cores=1))
    # c0[0] leaves -9 on m0 and c1 -39 on m1; c0[1] and c0[2] find an empty machine each, c0[3] three with -9
    assert machines_of(view, placed("r-storm:network_weight=0", view)).tolist() == [0, 2, 3, 0, 1]


def test_respects_memory_at_any_distance() -> None:
    machines = cluster(Machine(name="big", cores=8, memory_mb=15.0), Machine(name="small", memory_mb=15.0))
    view = PlacementView(with_load(chain(1, 1, cpu=0.0, memory_mb=10.0), 1.0), machines)
    assert placed("r-storm", view) == [0, 1]


def test_takes_one_task_of_each_component_in_turn_breadth_first_from_the_sources() -> None:
    # in -> deep -> deeper -> out and in -> near -> out: near and deep are one step from the source, out two, deeper two
    widths = {"in": 2, "deep": 1, "deeper": 3, "out": 1, "near": 2}
    kinds = {"in": Kind.SOURCE, "out": Kind.SINK}
    pairs = [("in", "deep"), ("in", "near"), ("deep", "deeper"), ("deeper", "out"), ("near", "out")]
    topology = Topology(
        name="t",
        components=tuple(
            Component(name=name, kind=kinds.get(name, Kind.OPERATOR), parallelism=width)
            for name, width in widths.items()
        ),
        streams=tuple(Stream(source=a, target=b) for a, b in pairs),
    )
    view = PlacementView(topology, equal_machines(1))
    names = [topology.components[position].name for position in view.tasks.position]
    order = [names[view.tasks.component[task]] for task in breadth_first(view)]
    assert order == ["in", "deep", "near", "deeper", "out", "in", "near", "deeper", "deeper"]


def test_counts_links_on_a_routed_network_and_hosts_on_a_mesh() -> None:
    machines = tuple(Machine(name=name) for name in "abcd")
    links = (
        Link(source="a", target="switch", bandwidth_mbps=1.0),
        Link(source="switch", target="b", bandwidth_mbps=1.0),
        Link(source="b", target="c", bandwidth_mbps=1.0, directed=True),
        Link(source="a", target="c", bandwidth_mbps=0.0),  # carries nothing
    )
    routed = Cluster(name="routed", machines=machines, switches=("switch",), links=links)
    from_a = network_distance(PlacementView(chain(1, 1), routed), 0)
    assert from_a == pytest.approx(np.array([0, 2, 3, 4]) / 4)  # d is not connected: further than all others
    mesh = cluster(Machine(name="a"), Machine(name="b", host="h"), Machine(name="c", host="h"))
    assert network_distance(PlacementView(chain(1, 1), mesh), 1).tolist() == [1.0, 0.0, 0.5]


@pytest.mark.parametrize("seed", range(8))
def test_equals_a_plain_loop_over_machines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    machines = cluster(
        *(
            Machine(
                name=f"m{i}",
                cores=int(rng.integers(1, 9)),
                memory_mb=float(rng.integers(40, 90)),
                slots=2,
                host=f"h{i // 2}",
            )
            for i in range(5)
        )
    )
    widths = [int(width) for width in rng.integers(1, 4, 4)]
    topology = chain(*widths, cpu=1.0, memory_mb=float(rng.integers(5, 15)))
    view = PlacementView(topology, machines)
    assert machines_of(view, placed("r-storm", view)).tolist() == by_hand(view, widths)


def by_hand(view: PlacementView, widths: list[int]) -> list[int]:
    machines = view.cluster.machines
    cpu, memory = [m.cpu for m in machines], [m.memory_mb for m in machines]
    top_cpu, top_memory = max(cpu), max(memory)
    rate = sum(cpu) / len(widths)  # each component takes one core-second per tuple
    where: dict[tuple[int, int], int] = {}
    reference = -1
    for number in range(max(widths)):
        for component in (c for c, width in enumerate(widths) if number < width):
            need_cpu, need_memory = rate / widths[component], view.topology.components[component].memory_mb
            fits = [m for m in range(len(machines)) if memory[m] >= need_memory]
            if reference < 0:
                reference = best = max(fits, key=lambda m: (cpu[m] / top_cpu + memory[m] / top_memory, -m))
            else:
                spare = [m for m in fits if cpu[m] >= need_cpu * (1 - 1e-9)]
                best = min(
                    spare or fits,
                    key=lambda m: (
                        ((cpu[m] - need_cpu) / top_cpu) ** 2
                        + ((memory[m] - need_memory) / top_memory) ** 2
                        + (0.0 if m == reference else 0.25 if m // 2 == reference // 2 else 1.0)
                    ),
                )
            cpu[best] -= need_cpu
            memory[best] -= need_memory
            where[component, number] = best
    return [where[component, number] for component, width in enumerate(widths) for number in range(width)]
