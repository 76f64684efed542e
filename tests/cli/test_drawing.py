"""The drawings are read back: boxes by their frames, streams by following lines, SVG by its elements."""

import random
from collections.abc import Sequence
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from rich.text import Text

from penstock.cli.drawing import draw, facts
from penstock.cli.drawing.canvas import Canvas, crop
from penstock.cli.drawing.cluster import slot_cells
from penstock.cli.drawing.layers import Segment, arrange, layer
from penstock.cli.drawing.network import node_kinds
from penstock.cli.drawing.plan import task_labels
from penstock.cli.drawing.topology import Sketch, card, seat, stream_label
from penstock.cli.svg import svg
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.placement import Placement
from penstock.model.plan import Plan, PlannedRoute, to_plan
from penstock.model.slotgraph import expand_slots
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.workloads.applications import APPLICATIONS, application
from penstock.workloads.clusters import CLUSTERS, cluster

WIDTHS = [40, 80, 120, 200]
SEEDS = range(20)
LEFT, RIGHT, UP, DOWN = (0, -1), (0, 1), (-1, 0), (1, 0)
ARMS = {
    "─": {LEFT, RIGHT},
    "│": {UP, DOWN},
    "╭": {DOWN, RIGHT},
    "╮": {DOWN, LEFT},
    "╰": {UP, RIGHT},
    "╯": {UP, LEFT},
    "├": {UP, DOWN, RIGHT},
    "┤": {UP, DOWN, LEFT},
    "┬": {DOWN, LEFT, RIGHT},
    "┴": {UP, LEFT, RIGHT},
    "┼": {UP, DOWN, LEFT, RIGHT},
}


def random_application(seed: int) -> Application:
    """Draw a graph of up to ten components whose streams skip layers, fork and join at will."""
    rng = random.Random(seed)
    size = rng.randint(3, 10)
    pairs = [(s, t) for t in range(1, size) for s in rng.sample(range(t), min(t, rng.choice([1, 1, 2, 3])))]
    senders = {source for source, _ in pairs}
    kinds = [Kind.SOURCE, *(Kind.OPERATOR if number in senders else Kind.SINK for number in range(1, size))]
    return Application(
        name=f"random-{seed}",
        components=tuple(
            Component(name=f"c{number}", kind=kind, parallelism=rng.randint(1, 12), cpu=rng.random() / 100)
            for number, kind in enumerate(kinds)
        ),
        streams=tuple(
            Stream(
                source=f"c{s}",
                target=f"c{t}",
                grouping=rng.choice([Grouping.SHUFFLE, Grouping.ALL, Grouping.LOCAL_OR_SHUFFLE]),
                selectivity=rng.choice([1.0, 0.5, 10.0]),
            )
            for s, t in pairs
        ),
    )


def random_plan(app: Application, machines: Cluster, seed: int = 0) -> Plan:
    rng = random.Random(seed)
    slots = tuple(rng.randrange(machines.slot_count) for _ in range(app.task_count))
    expected = {"throughput_tps": 1234.0, "delay_ms": 8.25, "traffic_bytes_per_tuple": 512.0}
    return to_plan(app, machines, Placement(slots), policy="random", objective="throughput", expected=expected)


def plain(lines: Sequence[Text]) -> list[str]:
    return [line.plain for line in lines]


def boxes(lines: Sequence[str]) -> dict[str, tuple[range, range]]:
    """Return the rows and columns of every closed frame, by the first word in it."""
    rows = [line.ljust(max(map(len, lines))) for line in lines]
    found = {}
    for top, row in enumerate(rows):
        for left, corner in enumerate(row):
            right = row.find("╮", left)
            if corner != "╭" or right < 0 or set(row[left + 1 : right]) - {"─"}:
                continue
            bottom = top + 1
            while rows[bottom][left] == "│" and rows[bottom][right] in "│├":
                bottom += 1
            if rows[bottom][left] == "╰" and rows[bottom][right] == "╯" and bottom > top + 1:
                first = next(text for r in rows[top + 1 : bottom] if (text := r[left + 1 : right].strip()))
                found[first.split()[0]] = (range(top, bottom + 1), range(left, right + 1))
    return found


def streams_drawn(lines: Sequence[str], down: bool) -> set[tuple[str, str]]:
    """Follow the lines from every box's exit to the boxes at whose arrows they end."""
    rows = [line.ljust(max(map(len, lines)) + 1) for line in lines]
    owner = {(row, column): name for name, (rs, cs) in boxes(rows).items() for row in rs for column in cs}
    ahead, head = (DOWN, "▼") if down else (RIGHT, "►")
    found = set()
    for name, (rs, cs) in boxes(rows).items():
        edge = [(rs[-1], column) for column in cs] if down else [(row, cs[-1]) for row in rs]
        exits = [(cell, ahead) for cell in edge if rows[cell[0]][cell[1]] == ("┬" if down else "├")]
        seen = set(exits)
        while exits:
            (row, column), step = exits.pop()
            at = (row + step[0], column + step[1])
            mark = rows[at[0]][at[1]]
            if mark == head:
                found.add((name, owner[at[0] + ahead[0], at[1] + ahead[1]]))
                continue
            arms = ARMS.get(mark, {step})  # a label is passed straight through
            crossing = (-step[0], -step[1]) not in arms  # a vertical line over a horizontal one
            for arm in {step} if crossing else arms - {(-step[0], -step[1])}:
                if (at, arm) not in seen:
                    seen.add((at, arm))
                    exits.append((at, arm))
    return found


@pytest.mark.parametrize("down", [False, True], ids=["right", "down"])
@pytest.mark.parametrize("seed", SEEDS)
def test_lines_lead_from_every_component_to_those_it_feeds_and_to_no_others(seed: int, down: bool) -> None:
    app = random_application(seed)
    sketch = Sketch(
        layer(app), [card(c, narrow=False) for c in app.components], [stream_label(s) for s in app.streams], down
    )
    assert sketch.settle()
    lines = plain(sketch.paint(["cyan"] * len(app.components)))
    assert set(boxes(lines)) == {component.name for component in app.components}
    assert streams_drawn(lines, down) == {(stream.source, stream.target) for stream in app.streams}
    assert max(map(len, lines)) <= sketch.width


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize(
    "name", ["word-count", "log-processing", "word-count-two-sources", "face-detection", "top-speed-windowing"]
)
def test_draws_the_papers_applications_as_boxes_and_lines(name: str, width: int) -> None:
    app = application(name)
    lines = plain(draw(app, width))
    down = any("▼" in line for line in lines)
    assert set(boxes(lines)) == {component.name for component in app.components}
    assert streams_drawn(lines, down) == {(stream.source, stream.target) for stream in app.streams}
    for component in app.components:
        assert sum(f"│ {component.name} ×{component.parallelism} " in line for line in lines) == 1
    for stream in app.streams:
        assert any(stream_label(stream) in line for line in lines)


def test_draws_from_left_to_right_where_that_fits_and_downwards_where_not() -> None:
    app = application("log-processing")
    wide, narrow = plain(draw(app, 150)), plain(draw(app, 80))
    assert any("►" in line for line in wide)
    assert not any("▼" in line for line in wide)
    assert any("▼" in line for line in narrow)
    assert not any("►" in line for line in narrow)


def test_lists_components_and_streams_where_no_drawing_fits() -> None:
    app = random_application(3)
    lines = plain(draw(app, 24))
    assert not boxes(lines)
    for component in app.components:
        assert any(line.startswith(f"{component.name} ×{component.parallelism}") for line in lines)
    assert sum("►" in line for line in lines) == len(app.streams)


def test_forks_end_above_and_below_their_source() -> None:
    found = boxes(plain(draw(application("log-processing"), 150)))
    middle = {name: (rows[0] + rows[-1]) / 2 for name, (rows, _) in found.items()}
    app = application("log-processing")
    [forking] = [c.name for c in app.components if sum(s.source == c.name for s in app.streams) == 2]
    above, below = sorted(middle[s.target] for s in app.streams if s.source == forking)
    assert above < middle[forking] < below


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [*APPLICATIONS, *CLUSTERS])
def test_no_line_exceeds_the_requested_width(name: str, width: int) -> None:
    thing = application(name) if name in APPLICATIONS else cluster(name)
    assert max(line.cell_len for line in draw(thing, width)) <= width


@pytest.mark.slow
@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_odd_names_neither_widen_a_line_nor_reach_the_terminal_raw(width: int) -> None:
    names = ["名前" * 50, "no\u00adsee\ue000", "e\u0301" * 30, "<&\"'>"]
    app = Application(
        name=names[0],
        components=tuple(
            Component(name=name, kind=kind)
            for name, kind in zip(names, [Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK], strict=True)
        ),
        streams=tuple(Stream(source=a, target=b) for a, b in pairwise(names)),
    )
    machines = tuple(Machine(name=name, slots=3, processes=2, host="h" * 90) for name in names)
    mesh = Cluster(name="odd", machines=machines)
    joined = tuple(Link(source=names[0], target=name, bandwidth_mbps=1e5) for name in names[1:])
    for thing in (app, mesh, Cluster(name="odd", machines=machines, links=joined), random_plan(app, mesh)):
        for line in draw(thing, width):
            assert line.cell_len <= width
            assert line.plain.isprintable()
        assert names[3] in "".join(ElementTree.fromstring(svg(thing)).itertext())


def test_machines_stand_in_the_frames_of_their_hosts_with_a_cell_a_slot() -> None:
    machines = (
        Machine(name="left", cores=2, speed=1.5, slots=4, processes=2, host="shared"),
        Machine(name="alone", cores=1, slots=3),
        Machine(name="right", cores=8, slots=5, processes=3, host="shared"),
    )
    lines = plain(draw(Cluster(name="mesh", machines=machines), 100))
    top = next(number for number, line in enumerate(lines) if line.startswith("╭─ shared ─"))
    assert lines[top + 1].startswith("│ left ")
    assert lines[top + 2].startswith("│ right ")
    assert lines[top + 3].startswith("╰")
    assert "2 × 1.5" in lines[top + 1]
    assert "[□□][□□]" in lines[top + 1]
    rows = {name: next(line for line in lines if line.startswith(f"│ {name} ")) for name in ("left", "alone", "right")}
    assert [rows[name].count("□") for name in rows] == [4, 3, 5]
    assert rows["right"].count("█") > rows["left"].count("█") > rows["alone"].count("█") > 0


@pytest.mark.parametrize(("slots", "processes"), [(1, 1), (5, 3), (10, 4), (7, 7)])
def test_cells_are_grouped_as_the_slot_graph_groups_them(slots: int, processes: int) -> None:
    machine = Machine(name="m", slots=slots, processes=processes)
    expected = expand_slots(Cluster(name="c", machines=(machine,))).process
    groups = slot_cells(machine).strip("[]").split("][")
    assert [process for process, cells in enumerate(groups) for _ in cells] == expected.tolist()


def test_many_equal_machines_are_one_row() -> None:
    lines = plain(draw(cluster("homogeneous-8:machines=100"), 80))
    assert any("100 × m0 … m99" in line for line in lines)
    assert len(lines) < 12


def test_many_different_machines_are_grouped_by_cores() -> None:
    large = cluster("hetero-large")
    lines = plain(draw(large, 100))
    rows = [line for line in lines if line.startswith("│")]
    assert len(rows) == len({machine.cores for machine in large.machines})
    assert sum(int(row.split()[1]) for row in rows) == len(large.machines)


def test_a_small_network_is_a_matrix_of_who_is_joined_to_whom() -> None:
    links = (
        Link(source="a", target="b", bandwidth_mbps=10, latency_ms=2),
        Link(source="b", target="hub", bandwidth_mbps=2500, directed=True),
    )
    network = Cluster(name="n", machines=(Machine(name="a"), Machine(name="b")), switches=("hub",), links=links)
    lines = plain(draw(network, 80))
    head = next(number for number, line in enumerate(lines) if line.startswith("Mbit/s"))
    assert [line.split() for line in lines[head : head + 4]] == [
        ["Mbit/s", "a", "b", "hub"],
        ["a", "╲", "10", "·"],
        ["b", "10", "╲", "2.5k"],
        ["hub", "·", "·", "╲"],
    ]
    assert any("a ── b" in line and "10 Mbit/s  2 ms" in line for line in lines)
    assert any("b ─► hub" in line and "2.5 Gbit/s" in line for line in lines)


def test_finds_the_three_tiers_of_a_fat_tree() -> None:
    tree = cluster("fat-tree")
    kinds = node_kinds(tree)
    sizes = sorted(list(kinds.values()).count(kind) for kind in set(kinds.values()))
    assert sizes == [8, 8, 8, 16]
    text = "\n".join(plain(draw(tree, 100)))
    assert "16 machines" in text
    assert text.count("8 switches") == 3
    assert "24 switches" in text


def test_facts_count_hops_between_machines_and_unconnected_pairs() -> None:
    machines = tuple(Machine(name=name) for name in "abcd")
    links = tuple(Link(source=s, target=t, bandwidth_mbps=1) for s, t in ("ab", "bc"))
    found = facts(Cluster(name="line", machines=machines, links=links))
    assert found["most_hops"] == 2
    assert found["mean_hops"] == pytest.approx((1 + 1 + 2) / 3)
    assert found["unconnected_pairs"] == 6  # a, b and c to d, and back


def test_facts_of_an_application_add_up_by_hand() -> None:
    app = Application(
        name="a",
        components=(
            Component(name="s", kind=Kind.SOURCE, cpu=0.001, parallelism=2, memory_mb=10),
            Component(name="o", cpu=0.002, parallelism=3, memory_mb=20),
            Component(name="t", kind=Kind.SINK, cpu=0.003, memory_mb=30),
        ),
        streams=(
            Stream(source="s", target="o", grouping=Grouping.ALL, tuple_bytes=7),
            Stream(source="o", target="t", selectivity=0.5, tuple_bytes=100),
        ),
        rate_tps={"s": 40},
    )
    found = facts(app)
    assert (found["tasks"], found["memory_mb"], found["offered_tps"]) == (6, 110, 40)
    assert found["cpu_per_source_tuple"] == pytest.approx(0.001 + 3 * 0.002 + 1.5 * 0.003)
    assert found["traffic_bytes_per_source_tuple"] == pytest.approx({"s->o": 21, "o->t": 150})


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_plan_shows_every_task_in_its_slot(width: int) -> None:
    plan = random_plan(application("log-processing"), cluster("hetero-small"))
    lines = plain(draw(plan, width))
    cells: dict[tuple[str, str], list[str]] = {}
    machine = ""
    slots: list[str] = []
    for line in lines:
        if line.startswith(("╭─ ", "├─ ")):
            machine, slots = line.split()[1], []
        if line.startswith("│"):
            parts = line.strip("│").split("│")
            slots = [
                part[1] if part[1].isdigit() else slot for part, slot in zip(parts, slots or [""] * 9, strict=False)
            ]
            for part, slot in zip(parts, slots, strict=True):
                cells.setdefault((machine, slot), []).extend(part[2:].split())
    shown = {
        f"{component}[{task}]": f"{where}/{slot}"
        for (where, slot), labels in cells.items()
        for label in labels
        for component, _, numbers in [label.rstrip("]").partition("[")]
        for run in numbers.split(",")
        for task in range(int(run.split("-")[0]), int(run.split("-")[-1]) + 1)
    }
    assert shown == {f"{name}[{n}]": slot for name, given in plan.tasks.items() for n, slot in enumerate(given)}
    text = " ".join(lines)
    assert "throughput 1,234 tuples/s" in text
    assert "delay 8.25 ms" in text
    assert "traffic 512 B per source tuple" in text


def test_a_plans_routes_are_listed() -> None:
    route = PlannedRoute(stream="s->t", source="m0", target="m1", links=("m0--hub", "hub--m1"))
    plan = random_plan(application("word-count"), cluster("star-8"))
    plan = Plan(**{**{name: getattr(plan, name) for name in plan.__struct_fields__}, "routes": (route,) * 25})
    lines = plain(draw(plan, 80))
    assert sum("s->t: m0 to m1 over m0--hub, hub--m1" in line for line in lines) == 20
    assert any("5 more" in line for line in lines)


def test_a_plan_without_tasks_says_so() -> None:
    plan = Plan(
        application="a", cluster="c", application_digest="", cluster_digest="", policy="p", objective="o", tasks={}
    )
    assert "no tasks" in plain(draw(plan, 80))
    assert ElementTree.fromstring(svg(plan)).tag.endswith("svg")


def test_task_labels_join_runs_and_break_lines() -> None:
    assert task_labels("split", [0, 2, 3, 4, 7, 8], 40) == ["split[0,2-4,7,8]"]
    assert task_labels("split", [0, 2, 4, 6], 10) == ["split[0,2]", "split[4,6]"]
    assert task_labels("a-very-long-name", [5], 8) == ["a-ve…[5]"]


def elements(drawing: bytes, kind: str) -> list[ElementTree.Element]:
    return [element for element in ElementTree.fromstring(drawing).iter() if element.get("class") == kind]


def words(drawing: bytes) -> list[str]:
    """Return the texts that are visible."""
    root = ElementTree.fromstring(drawing)
    return [element.text or "" for element in root.iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_svg_of_an_application_has_a_box_a_component_and_a_curve_a_stream(name: str) -> None:
    app = application(name)
    drawing = svg(app)
    assert len(elements(drawing, "component")) == len(app.components)
    assert len(elements(drawing, "stream")) == len(app.streams)
    shown = words(drawing)
    for component in app.components:
        assert f"{component.name} ×{component.parallelism}" in shown


@pytest.mark.parametrize("seed", SEEDS)
def test_svg_boxes_do_not_overlap(seed: int) -> None:
    found = [
        [float(box.attrib[k]) for k in ("x", "y", "width", "height")] for box in _boxes_of(random_application(seed))
    ]
    for place, (x, y, width, height) in enumerate(found):
        for other_x, other_y, other_width, other_height in found[place + 1 :]:
            beside = x + width <= other_x or other_x + other_width <= x
            assert beside or y + height <= other_y or other_y + other_height <= y


def _boxes_of(app: Application) -> list[ElementTree.Element]:
    return elements(svg(app), "component")


def test_svg_lines_are_as_wide_as_their_share_of_the_traffic() -> None:
    app = application("face-detection")
    carried = facts(app)["traffic_bytes_per_source_tuple"]
    width = {
        (element[0].text or "").partition(":")[0]: float(element.attrib["stroke-width"])
        for element in elements(svg(app), "stream")
    }
    assert sorted(width, key=width.__getitem__)[-1] == max(carried, key=carried.__getitem__)
    assert width.keys() == carried.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
def test_svg_of_a_cluster_has_every_machine_switch_and_link(name: str) -> None:
    described = cluster(name)
    drawing = svg(described)
    assert len(elements(drawing, "machine")) == len(described.machines)
    assert len(elements(drawing, "switch")) == len(described.switches)
    assert len(elements(drawing, "link")) == len(described.links)
    if not described.routed:
        assert len(elements(drawing, "slot")) == described.slot_count
    assert {machine.name for machine in described.machines} | set(described.switches) <= set(words(drawing))


def test_svg_of_a_plan_has_a_chip_a_task_in_its_components_colour() -> None:
    plan = random_plan(application("word-count"), cluster("hetero-small"))
    drawing = svg(plan)
    chips = {chip[0].text: chip.attrib["fill"] for chip in elements(drawing, "task")}
    assert set(chips) == {f"{name}[{task}]" for name, slots in plan.tasks.items() for task in range(len(slots))}
    for name, slots in plan.tasks.items():
        assert len({chips[f"{name}[{task}]"] for task in range(len(slots))}) == 1
    assert len(set(chips.values())) == len(plan.tasks)


def test_svg_escapes_names_and_needs_nothing_from_elsewhere() -> None:
    app = Application(
        name="a<b>&\"c'",
        components=(Component(name="<script>", kind=Kind.SOURCE), Component(name="x&y\ufdd0", kind=Kind.SINK)),
        streams=(Stream(source="<script>", target="x&y\ufdd0"),),
    )
    drawing = svg(app)
    assert b"<script" not in drawing
    assert "<script> ×1" in words(drawing)
    assert drawing.count(b"http") == 1  # the name space
    assert b"href" not in drawing


def test_lines_of_different_owners_cross_and_those_of_one_join() -> None:
    canvas = Canvas()
    canvas.line((1, 0), (1, 4), owner=1)
    canvas.line((0, 2), (2, 2), owner=2)
    canvas.line((3, 0), (3, 4), owner=3)
    canvas.line((3, 2), (4, 2), owner=3)
    assert plain(canvas.lines()) == ["  │", "──│──", "  │", "──┬──", "  │"]


def test_crops_by_cells_not_by_characters() -> None:
    assert crop("名前名前", 5) == "名前…"
    assert crop("name", 4) == "name"
    assert crop("a\x1bb", 9) == "a\N{REPLACEMENT CHARACTER}b"


def test_seats_avoid_what_is_barred_and_keep_their_order() -> None:
    assert seat([3, 3], [1, 1], range(1, 6), [{3}, set()]) == [2, 3]
    assert seat([5], [3], range(6), [set()]) == [4]  # in the middle of 3, 4, 5
    assert seat([0, 1], [1, 1], range(2), [{0}, set()]) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_arranged_vertices_keep_their_distance(seed: int) -> None:
    layering = layer(random_application(seed))
    rng = random.Random(seed)
    sizes = [rng.randint(1, 9) for _ in range(layering.vertices)]
    starts = arrange(layering, sizes, apart=2)
    assert min(starts) == 0
    for listed in layering.layers:
        for before, after in pairwise(listed):
            assert starts[after] >= starts[before] + sizes[before] + 2


@pytest.mark.parametrize("seed", SEEDS)
def test_layers_never_cross_more_than_as_listed(seed: int) -> None:
    layering = layer(random_application(seed))
    as_listed = [sorted(listed) for listed in layering.layers]
    assert crossings(layering.segments, layering.layers) <= crossings(layering.segments, as_listed)


def crossings(segments: Sequence[Segment], layers: Sequence[Sequence[int]]) -> int:
    """Count the pairs of segments that cross when the layers are in this order."""
    place = {vertex: number for listed in layers for number, vertex in enumerate(listed)}
    layer_of = {vertex: number for number, listed in enumerate(layers) for vertex in listed}
    return sum(
        layer_of[one.source] == layer_of[other.source]
        and (place[one.source] - place[other.source]) * (place[one.target] - place[other.target]) < 0
        for one, other in combinations(segments, 2)
    )
