"""Drawings of networks and plans are measured: boxes, labels and lines are read back from the SVG."""

import random
import re
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from math import hypot
from xml.etree import ElementTree

import pytest

from penstock.cli.colours import COLOURS, component_colours
from penstock.cli.drawing import draw
from penstock.cli.planned_load import load_of_built_in, planned_load
from penstock.cli.svg import plan_svg, svg, topology_svg
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.model.routes import route_hops
from penstock.model.slotgraph import expand_links, expand_slots
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.planning.planner import Planner
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster

Box = tuple[float, float, float, float]  # left, top, right, bottom
Point = tuple[float, float]

SEEDS = range(24)
NODES = ("machine", "switch")


def random_network(seed: int) -> Cluster:
    """Join up to 18 machines and switches at random, by links of all kinds, some of them twice, some not at all."""
    rng = random.Random(seed)
    size, switches = rng.randint(2, 18), rng.choice([0, 0, 1, 4])
    names = [f"node-{number}{'-with-a-long-name' * (rng.random() < 0.1)}" for number in range(size + switches)]
    pairs = [(rng.choice(names[:place]), name) for place, name in enumerate(names) if place and rng.random() < 0.95]
    pairs += [(a, b) for a, b in combinations(names, 2) if rng.random() < rng.choice([0.0, 0.1, 0.3])]
    links = {}
    for source, target in pairs:
        link = Link(
            source=source,
            target=target,
            bandwidth_mbps=rng.choice([0.0, 10.0, 54.5, 100.0, 2500.0]),
            latency_ms=rng.choice([0.0, 0.1, 5.0, 20.0]),
            failure_probability=rng.choice([0.0, 0.01, 0.0025]),
            directed=rng.random() < 0.3,
        )
        links[link.label] = link
    machines = tuple(
        Machine(name=name, slots=rng.randint(1, 4), failure_probability=rng.choice([0.0, 0.02]))
        for name in names[:size]
    )
    if not links:
        return random_network(seed + 1000)
    return Cluster(name=f"random-{seed}", machines=machines, switches=tuple(names[size:]), links=tuple(links.values()))


def chain(length: int) -> Cluster:
    names = [f"m{number}" for number in range(length)]
    links = tuple(Link(source=a, target=b, bandwidth_mbps=10.0) for a, b in pairwise(names))
    return Cluster(
        name="chain",
        machines=tuple(Machine(name=name) for name in names[::2]),
        switches=tuple(names[1::2]),
        links=links,
    )


def by_class(drawing: bytes, *kinds: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(drawing).iter() if element.get("class") in kinds]


def tip(element: ElementTree.Element) -> str:
    return (element[0].text or "") if len(element) else ""


def boxes(drawing: bytes) -> dict[str, Box]:
    """Return the boxes of machines and switches by name."""
    found = {}
    for element in by_class(drawing, *NODES):
        x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        found[re.split(":| on host", tip(element))[0].removeprefix("machine ")] = (x, y, x + width, y + height)
    return found


def texts(drawing: bytes) -> list[tuple[str, Box]]:
    """Return all texts with the room that they take: letters are at least half as wide as they are high."""
    found = []
    for element in ElementTree.fromstring(drawing).iter():
        if element.tag.endswith("}text"):
            points, words = float(element.attrib["font-size"]), element.text or ""
            width = len(words) * points * 0.5
            start = {"start": 0.0, "middle": width / 2, "end": width}[element.attrib["text-anchor"]]
            x, y = float(element.attrib["x"]) - start, float(element.attrib["y"])
            found.append((words, (x, y - 0.7 * points, x + width, y + 0.2 * points)))
    return found


def lines(drawing: bytes) -> list[tuple[str, list[Point]]]:
    """Return the links by what a pointer shows, each as points a pixel apart."""
    found = []
    for element in by_class(drawing, "link", "traffic"):
        corners = [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+),([\d.-]+)", element.attrib["d"])]
        points: list[Point] = []
        for (x1, y1), (x2, y2) in pairwise(corners):
            steps = max(int(hypot(x2 - x1, y2 - y1)), 1)
            points += [(x1 + (x2 - x1) * step / steps, y1 + (y2 - y1) * step / steps) for step in range(steps + 1)]
        found.append((tip(element), points))
    return found


def inside(point: Point, box: Box) -> bool:
    return box[0] < point[0] < box[2] and box[1] < point[1] < box[3]


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def within(one: Box, other: Box) -> bool:
    return one[0] >= other[0] and one[1] >= other[1] and one[2] <= other[2] and one[3] <= other[3]


def ends_of(words: str) -> Sequence[str]:
    """Return the nodes that a line joins."""
    return re.split("--|->| and ", re.split("[:;]", words)[0])


def check_diagram(drawing: bytes) -> None:
    """Assert that no boxes overlap, that no line is under a box of others, and that no label hides any of them."""
    found, drawn = boxes(drawing), lines(drawing)
    for (name, one), (other_name, other) in combinations(found.items(), 2):
        assert not overlap(one, other), f"{name} and {other_name} overlap"
    tips: list[Point] = []
    for words, points in drawn:
        own = [found[name] for name in ends_of(words)]
        others = [(name, box) for name, box in found.items() if name not in ends_of(words)]
        for name, box in others:
            assert not any(inside(point, box) for point in points), f"{words} runs under {name}"
        outside = [point for point in points if not any(inside(point, box) for box in own)]
        tips += [outside[0], outside[-1]]
    every = texts(drawing)
    labels = [(words, box) for words, box in every if re.search(r"bit/s|ms$|ms,|fails|%", words)]
    labels = [(words, box) for words, box in labels if not any(within(box, node) for node in found.values())]
    for words, box in labels:
        for name, node in found.items():
            assert not overlap(box, node), f"{words!r} hides {name}"
        assert not any(inside(point, box) for point in tips), f"{words!r} hides the end of a link"
        assert sum(overlap(box, other) for _, other in every) == 1, f"{words!r} overlaps another text"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_label_hides_anything_and_no_link_runs_under_a_box(seed: int) -> None:
    check_diagram(svg(random_network(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["field-and-cloud", "star-8", "line-8", "complete-6", "fat-tree", "jellyfish"])
def test_the_built_in_networks_are_drawn_without_collisions(name: str) -> None:
    check_diagram(svg(cluster(name)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_link_shows_bandwidth_latency_and_failure_probability(seed: int) -> None:
    network = random_network(seed)
    shown = [words for words, _ in texts(svg(network))]
    everywhere = next((words for words in reversed(shown) if "every link: " in words), "")
    for words, described in (
        ("10 Mbit/s", [link.bandwidth_mbps == 10 for link in network.links]),
        ("2.5 Gbit/s", [link.bandwidth_mbps == 2500 for link in network.links]),
        ("20 ms", [link.latency_ms == 20 for link in network.links]),
        ("fails 0.25 %", [link.failure_probability == 0.0025 for link in network.links]),
        ("fails 2 %", [machine.failure_probability == 0.02 for machine in network.machines]),
    ):
        count = sum(
            words in re.split(", | · ", text.replace(" of ", ", ")) for text in shown if "every link" not in text
        )
        assert count == sum(described) or words in everywhere, words


@pytest.mark.parametrize("length", [2, 3, 9, 25])
def test_a_chain_is_one_row_in_its_order(length: int) -> None:
    found = boxes(svg(chain(length)))
    middles = {round((top + bottom) / 2) for _, top, _, bottom in found.values()}
    assert max(middles) - min(middles) <= 1
    order = sorted(found, key=lambda name: found[name][0])
    assert order in ([f"m{number}" for number in range(length)], [f"m{number}" for number in reversed(range(length))])


def test_a_drawing_is_the_same_every_time() -> None:
    assert svg(random_network(3)) == svg(random_network(3))


def placed(app: Application, machines: Cluster, seed: int) -> Plan:
    """Place tasks at random, and route what goes over links."""
    rng = random.Random(seed)
    tasks, slots = expand_tasks(app), expand_slots(machines)
    some = rng.sample(range(slots.number), max(slots.number // 2, 1))
    chosen = [rng.choice(some) for _ in range(tasks.number)]
    routes = route_hops(tasks, slots, expand_links(machines), chosen) if machines.routed else {}
    assert isinstance(routes, dict)
    return to_plan(app, machines, Placement(tuple(chosen), routes), policy="random", objective="throughput")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("where", ["hetero-small", "star-8", "field-and-cloud", "li-10", "fat-tree"])
def test_a_plan_is_drawn_without_collisions_and_shows_free_slots_and_the_bottleneck(where: str, seed: int) -> None:
    app, machines = application("word-count"), cluster(where)
    plan = placed(app, machines, seed)
    load = planned_load(plan, app, machines)
    drawing = plan_svg(plan, load)
    check_diagram(drawing)
    used = {slot for slots in plan.tasks.values() for slot in slots}
    assert len(by_class(drawing, "slot")) == len(used)
    assert len(by_class(drawing, "free")) == machines.slot_count - len(used)
    assert len(by_class(drawing, "task")) == app.task_count
    assert len(by_class(drawing, "link")) == len(machines.links)
    shown = " ".join(words for words, _ in texts(drawing))
    assert load.bottleneck is not None
    assert f"bottleneck: {load.limit_in_words}" in shown
    text = "\n".join(line.plain for line in draw(plan, 100, load))
    assert f"bottleneck: {load.limit_in_words}" in text
    marked = [element for element in ElementTree.fromstring(drawing).iter() if element.get("stroke") == "#c1121f"]
    assert len(marked) >= 1
    assert any(
        load.bottleneck.name.split(" ")[0] in tip(element) or tip(element).startswith(load.limiting_machine)
        for element in marked
    )


def test_a_plans_links_show_how_busy_they_are() -> None:
    app = Application(
        name="two",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=1e-6),
            Component(name="out", kind=Kind.SINK, cpu=1e-6),
        ),
        streams=(Stream(source="in", target="out", tuple_bytes=1000),),
        rate_tps={"in": 250.0},
    )
    link = Link(source="a", target="b", bandwidth_mbps=4.0, latency_ms=7.0)
    machines = Cluster(name="pair", machines=(Machine(name="a"), Machine(name="b", slots=3)), links=(link,))
    planner = Planner(app, machines)
    routes = route_hops(expand_tasks(app), expand_slots(machines), expand_links(machines), [0, 1])
    assert isinstance(routes, dict)
    plan = to_plan(app, machines, Placement((0, 1), routes), policy="hand", objective="throughput")
    load = planned_load(plan, planner.topology, machines)
    assert load.share("link", "a--b") == pytest.approx(250 * 8000 / 4e6)
    drawing = plan_svg(plan, load)
    shown = [words for words, _ in texts(drawing)]
    assert "50%" in shown
    assert "bottleneck" in shown
    assert "bottleneck: link a--b" in " ".join(shown)
    assert any("every link: 4 Mbit/s, 7 ms" in words for words in shown)
    assert len(by_class(drawing, "free")) == 2
    text = "\n".join(line.plain for line in draw(plan, 80, load))
    assert "a--b █████░░░░░  50%" in text
    assert "□□ 2 free" in text


def test_long_names_that_differ_at_their_ends_stay_apart() -> None:
    machines = Cluster(
        name="long", machines=tuple(Machine(name=f"a-rather-long-name-of-a-machine-{n}", slots=2) for n in range(3))
    )
    app = Application(
        name="long",
        components=(
            Component(name="the-only-source", kind=Kind.SOURCE),
            Component(name="a-rather-long-name-of-an-operator", parallelism=3),
            Component(name="out", kind=Kind.SINK),
        ),
        streams=(
            Stream(source="the-only-source", target="a-rather-long-name-of-an-operator"),
            Stream(source="a-rather-long-name-of-an-operator", target="out"),
        ),
    )
    plan = to_plan(app, machines, Placement((0, 1, 2, 4, 5)), policy="hand", objective="throughput")
    shown = [words for words, _ in texts(plan_svg(plan, planned_load(plan, app, machines)))]
    for ends in [f"-{n}" for n in range(3)] + [f"or[{n}]" for n in range(3)]:
        assert sum("…" in words and words.endswith(ends) for words in shown) == 1, (ends, shown)


def test_a_plan_of_built_in_things_finds_them_and_others_are_drawn_without_load() -> None:
    app, machines = application("word-count"), cluster("star-8")
    plan = placed(app, machines, 0)
    assert load_of_built_in(plan) is not None
    other = placed(app, cluster("star-8:machines=5"), 0)
    assert load_of_built_in(other) is None
    check_diagram(plan_svg(other))


def colours(drawing: bytes, kind: str, name: Callable[[str], str]) -> dict[str, str]:
    return {name(tip(element)): element.attrib["fill"] for element in by_class(drawing, kind)}


@pytest.mark.parametrize("name", ["word-count", "log-processing", "face-detection"])
def test_a_component_has_one_colour_everywhere(name: str) -> None:
    app = application(name)
    first, second = (placed(app, cluster("hetero-small"), seed) for seed in (1, 2))
    turned = Plan(
        **{field: getattr(second, field) for field in second.__struct_fields__ if field != "tasks"},
        tasks=dict(reversed(second.tasks.items())),
    )
    expected = component_colours(app.index)
    assert len(set(expected.values())) == len(app.components)
    assert colours(topology_svg(app), "component", lambda words: words.split(":")[0]) == expected
    for plan in (first, second, turned):
        assert colours(plan_svg(plan), "task", lambda words: words.split("[")[0]) == expected
        for line in draw(plan, 120):
            for span in line.spans:
                component = line.plain[span.start : span.end].split("[")[0]
                if component in expected:
                    assert expected[component] in str(span.style)
    for line in draw(app, 150):
        for span in line.spans:
            component = line.plain[span.start : span.end].split(" ×")[0]
            if component in expected:
                assert expected[component] in str(span.style)


def test_colours_repeat_only_when_there_are_none_left() -> None:
    given = component_colours(f"c{number}" for number in range(len(COLOURS)))
    assert sorted(given.values()) == sorted(COLOURS)
    assert len(component_colours(f"c{number}" for number in range(40))) == 40
