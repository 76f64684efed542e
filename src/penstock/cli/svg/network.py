"""A routed network as SVG: machines and switches as nodes, links as lines as wide as their bandwidth allows.

In a large network only the used elements are drawn in full: the others are dots or thin lines with their names as
tooltips, and names are placed so that they hide nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import sqrt

import numpy as np

from penstock.cli.drawing.usage import Fullness, amount
from penstock.cli.formatting import bandwidth, card, fails, plural
from penstock.cli.output import size
from penstock.cli.svg.diagram import Diagram, Node, arrange
from penstock.cli.svg.diagram import Link as Line
from penstock.cli.svg.elements import (
    FAILED,
    INK,
    MUTED,
    Box,
    Page,
    has_failed,
    in_use,
    paint,
    shortened,
    text_width,
    widest,
    words_of,
)
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.taskgraph import Floats

Point = tuple[float, float]

MACHINE, SWITCH = ("#e6f1fb", "#2f76b5"), ("#fff4d9", "#b7791f")  # fill, edge
LINK = "#a3aebb"
DETAILED = 24  # nodes; of more, only names and failure probabilities are written
LABELLED = 150  # links; of more, only a pointer shows what they are like
WIDTH = 1080.0  # that separate parts of a network share
NAME_WIDTH, CROWDED_NAME = 150, 110
THINNEST, THICKEST = 1.0, 7.0  # lines; if there are many, the thickest are thinner
DOT, LINE = 12.0, 13.0  # a node of a large network, and the height of a line of text
UNDER = 8.0  # of a line that a node hides
SMALL = 9  # points of a label


def put_network(
    page: Page, cluster: Cluster, left: float, top: float, used: Fullness | None = None, needed: Collection[str] = ()
) -> float:
    """Put a network on the page, coloured by utilisation if it is known; return its lower edge.

    `needed` are elements that are in use though they may be idle, such as relays.
    """
    if len(cluster.node_index) > DETAILED and used is not None:
        return _draw_crowd(page, cluster, left, top, used, needed)
    detailed = len(cluster.node_index) <= DETAILED
    labels = link_labels(cluster, lambda link: words_of(link.label, used))
    words = {machine.name: machine_words(machine, detailed, used) for machine in cluster.machines}
    tops = top_switches(cluster)
    nodes = [node_of(cluster, name, words.get(name, ()), tops) for name in cluster.node_index]
    diagram = arrange(nodes, lines_of(link_ends(cluster), cluster.node_index, labels), left, top, WIDTH)
    for link, line in zip(cluster.links, diagram.lines, strict=True):
        draw_link(page, cluster, link, line, used)
    draw_labels(page, diagram, labels)
    for node, box in zip(nodes, diagram.boxes.tolist(), strict=True):
        if node.name in words:
            machine = cluster.machines[cluster.machine_index[node.name]]
            _draw_machine(page, machine, box, words[node.name], used)
        else:
            draw_switch(page, node.name, box, used)
    return float(diagram.extent[3])


def link_labels(cluster: Cluster, state: Callable[[Link], str]) -> list[list[str]]:
    """Return the lines of every link's label: utilisation, then the facts that differ between links."""
    if len(cluster.links) > LABELLED:
        return [[]] * len(cluster.links)
    alike = common_words(cluster)
    labels = []
    for link in cluster.links:
        first = [words for words in (state(link), _bandwidth(link)) if words and words not in alike]
        rest = [words for words in (_latency(link), fails(link.failure_probability)) if words and words not in alike]
        labels.append([line for line in (" of ".join(first), ", ".join(rest)) if line])
    return labels


def common_words(cluster: Cluster) -> list[str]:
    """Return the facts that all links have in common: bandwidth, latency, failure probability."""
    kinds = [{describe(link) for link in cluster.links} for describe in (_bandwidth, _latency, _fails)]
    return [words for kind in kinds if len(kind) == 1 for words in kind if words]


def _bandwidth(link: Link) -> str:
    return bandwidth(link.bandwidth_mbps)


def _latency(link: Link) -> str:
    return f"{link.latency_ms:.3g} ms"


def _fails(link: Link) -> str:
    return fails(link.failure_probability)


def lines_of(
    pairs: Iterable[tuple[str, str]], number: Mapping[str, int], labels: Sequence[Sequence[str]]
) -> list[Line]:
    """Return what joins pairs of nodes as lines of a diagram, with the room that their labels need."""
    return [
        Line(number[a], number[b], *((widest(words, SMALL) + 4, LINE * len(words)) if words else ()))
        for (a, b), words in zip(pairs, labels, strict=True)
    ]


def link_ends(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the two nodes of every link."""
    return [(link.source, link.target) for link in cluster.links]


def node_of(cluster: Cluster, name: str, words: Sequence[str], tops: Collection[str] = ()) -> Node:
    """Return a machine with some words in it, or a switch, as a node of a diagram; `tops` go into the first layer."""
    if name not in cluster.machine_index:
        return Node(name, min(text_width(name, 10), NAME_WIDTH) + 18, 22.0, top=name in tops)
    longest = max(widest(words[1:], 10), text_width(words[0], 12, bold=True))
    return Node(name, min(longest, NAME_WIDTH) + 16, 12 + 13.5 * len(words))


def top_switches(cluster: Cluster) -> list[str]:
    """Return the switches that are farthest from all machines, such as the core of a tree."""
    joined: dict[str, set[str]] = {name: set() for name in cluster.node_index}
    for link in cluster.links:
        joined[link.source].add(link.target)
        joined[link.target].add(link.source)
    seen, row = set(cluster.machine_index), list(cluster.machine_index)
    while further := sorted({other for name in row for other in joined[name]} - seen):
        row = further
        seen |= set(row)
    return [name for name in row if name in cluster.switches]


def _draw_crowd(
    page: Page, cluster: Cluster, left: float, top: float, used: Fullness, needed: Collection[str]
) -> float:
    """Put a large network on the page: dots and lines, and the names of what is in use, needed or has failed."""
    nodes = [Node(name, DOT, DOT) for name in cluster.node_index]
    lines = lines_of(link_ends(cluster), cluster.node_index, [[]] * len(cluster.links))
    diagram = arrange(nodes, lines, left + CROWDED_NAME / 2, top, WIDTH)
    at = {
        node.name: ((x0 + x1) / 2, (y0 + y1) / 2) for node, (x0, y0, x1, y1) in zip(nodes, diagram.boxes, strict=True)
    }

    usage = {name: amount(used.get(name, 0.0)) for name in (*at, *(link.label for link in cluster.links))}
    drawn = zip(cluster.links, diagram.lines, strict=True)
    for link, line in sorted(drawn, key=lambda one: usage[one[0].label]):  # used links on top
        draw_link(page, cluster, link, line, used, directions=usage[link.label] > 0)
    for machine in cluster.machines:
        tip = machine_tip(machine) + in_use(machine.name, used)
        _draw_dot(page, at[machine.name], (paint(machine.name, used, MACHINE[0]), MACHINE[1]), tip, "machine")
    for switch in cluster.switches:
        fill, tip = _switch(switch, used)
        _draw_dot(page, at[switch], (fill, SWITCH[1]), tip, "switch")
    busy = sorted((name for name in at if usage[name] > 0 or name in needed), key=lambda name: -usage[name])
    _draw_names(page, busy, at)
    return float(diagram.extent[3])


def _draw_dot(page: Page, at: Point, colours: tuple[str, str], tip: str, kind: str) -> None:
    x, y = at[0] - DOT / 2, at[1] - DOT / 2
    page.rectangle((x, y, DOT, DOT), fill=colours[0], stroke=colours[1], round_by=DOT / 4, tip=tip, kind=kind)


def _draw_names(page: Page, names: Sequence[str], at: Mapping[str, Point]) -> None:
    """Write names beside their nodes, each on the first side where it hides no node and no other name, if any."""
    taken = [(x - DOT / 2, y - DOT / 2, DOT, DOT) for x, y in at.values()]
    for name in names:
        x, y = at[name]
        words = shortened(name, 10, CROWDED_NAME)
        width, gap = text_width(words, 10), DOT / 2 + 2
        sides = [(x - width / 2, y + gap), (x - width / 2, y - gap - LINE), (x + gap, y - LINE / 2)]
        for side in [*sides, (x - gap - width, y - LINE / 2)]:
            place = (*side, width, LINE)
            if not any(_overlap(place, other) for other in taken):
                taken.append(place)
                page.text(side[0], side[1] + LINE - 3, words, points=10, halo=True)
                break


def _overlap(one: Box, other: Box) -> bool:
    across = one[0] < other[0] + other[2] and other[0] < one[0] + one[2]
    return across and one[1] < other[1] + other[3] and other[1] < one[1] + one[3]


def machine_words(machine: Machine, detailed: bool, used: Fullness | None) -> list[str]:
    """Return the lines of a machine's box: name, resources, utilisation, failure probability."""
    slots = plural(machine.slots, "slot") + (f" in {machine.processes}" if machine.processes > 1 else "")
    has = [
        f"{machine.cores} × {machine.speed:.3g}, {size(machine.memory_mb * 1e6)}",
        words_of(machine.name, used) or slots,
    ]
    return [machine.name, *(has if detailed else []), *filter(None, [fails(machine.failure_probability)])]


def machine_tip(machine: Machine) -> str:
    """Return the tooltip of a machine."""
    parts = [
        f"{plural(machine.cores, 'core')} of speed {machine.speed:.3g}",
        f"{size(machine.memory_mb * 1e6)} of memory",
        f"{plural(machine.slots, 'slot')} in {plural(machine.processes, 'process', 'processes')}",
    ]
    parts += [f"network card {card(*machine.card_mbps)}"] if machine.card_mbps else []
    parts += [f"{name} {amount:.3g} per second" for name, amount in machine.resources.items()]
    parts += [fails(machine.failure_probability)] if machine.failure_probability else []
    where = f" on host {machine.host}" if machine.host else ""
    return f"{machine.name}{where}: {', '.join(parts)}"


def link_tip(link: Link) -> str:
    """Return the tooltip of a link."""
    parts = [_bandwidth(link), _latency(link), *filter(None, [_fails(link)])]
    return f"{link.label}: {', '.join(parts)}"


def _draw_machine(
    page: Page, machine: Machine, box: Sequence[float], words: Sequence[str], used: Fullness | None
) -> None:
    left, top, right, bottom = box
    fill, tip = paint(machine.name, used, MACHINE[0]), machine_tip(machine) + in_use(machine.name, used)
    page.rectangle((left, top, right - left, bottom - top), fill=fill, stroke=MACHINE[1], tip=tip, kind="machine")
    x = (left + right) / 2
    page.text(x, top + 17, shortened(words[0], 12, right - left - 8, bold=True), bold=True, anchor="middle")
    for place, line in enumerate(words[1:], 1):
        shown = shortened(line, 10, right - left - 8)
        page.text(x, top + 17 + 13.5 * place, shown, points=10, anchor="middle", colour=MUTED)


def draw_switch(page: Page, name: str, box: Sequence[float], used: Fullness | None) -> None:
    """Put a switch on the page."""
    (left, top, right, bottom), (fill, tip) = box, _switch(name, used)
    place = (left, top, right - left, bottom - top)
    page.rectangle(place, fill=fill, stroke=SWITCH[1], round_by=(bottom - top) / 2, tip=tip, kind="switch")
    words = shortened(name, 10, right - left - 8)
    page.text((left + right) / 2, (top + bottom) / 2 + 4, words, points=10, anchor="middle", colour=INK)


def _switch(name: str, used: Fullness | None) -> tuple[str, str]:
    """Return a switch's colour, and its tooltip."""
    return (FAILED, f"{name}: switch; failed") if has_failed(name, used) else (SWITCH[0], f"{name}: switch")


def draw_link(
    page: Page,
    cluster: Cluster,
    link: Link,
    line: Floats,
    used: Fullness | None,
    directions: bool = True,
) -> None:
    """Put a link on the page, as wide as its bandwidth allows."""
    most = max(other.bandwidth_mbps for other in cluster.links)
    share = link.bandwidth_mbps / most if most else 0.0
    thickest = max(THICKEST - len(cluster.links) / 12, 3 * THINNEST)
    page.line(
        into_nodes(line, both=not link.directed).tolist(),
        stroke=paint(link.label, used, LINK),
        width=THINNEST + (thickest - THINNEST) * sqrt(share),
        arrow=link.directed and directions,
        dashed=share == 0 or has_failed(link.label, used),
        tip=link_tip(link) + in_use(link.label, used),
        kind="link",
    )


def into_nodes(line: Floats, both: bool = True) -> Floats:
    """Return a line extended under the nodes that it joins, whose corners are round."""
    longer = line.copy()
    for end, before in ((0, 1), (-1, -2)) if both else ((0, 1),):
        direction = line[end] - line[before]
        longer[end] += direction * UNDER / max(float(np.hypot(*direction)), 1.0)
    return longer


def draw_labels(page: Page, diagram: Diagram, labels: Sequence[Sequence[str]], alarm: str = INK) -> None:
    """Put the labels of links on the page; those of the bottleneck in the colour `alarm`."""
    for words, box in zip(labels, diagram.labels, strict=True):
        if box is None:
            continue
        left, top, right, bottom = box.tolist()
        page.rectangle((left, top, right - left, bottom - top), round_by=3, kind="label")
        for place, line in enumerate(words):
            y = top + LINE * place + LINE - 3.5
            colour = alarm if words[0] == "bottleneck" else INK
            page.text((left + right) / 2, y, line, points=SMALL, anchor="middle", colour=colour)
