"""A routed network as SVG: machines and switches as nodes, links as lines as wide as their bandwidth allows.

Where it is large and only some of it is in use, that is what matters: everything else is a dot or a thin line, whose
name a pointer shows, and names are written where they hide nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from math import hypot, sqrt

from penstock.cli.output import size
from penstock.cli.svg.elements import INK, MUTED, Page, shortened, text_width, widest
from penstock.cli.svg.fullness import FAILED, Fullness, has_failed, in_use, paint, words_of
from penstock.cli.svg.layout import Point, lay_out
from penstock.cli.words import bandwidth, card, plural
from penstock.model.cluster import Cluster, Link, Machine

Box = tuple[float, float, float, float]  # left, top, width, height

MACHINE, SWITCH = ("#e6f1fb", "#2f76b5"), ("#fff4d9", "#b7791f")  # fill, edge
LINK = "#a3aebb"
DETAILED = 24  # nodes; of more, only the names are written
LABELLED = 24  # links; of more, only a pointer shows the bandwidth
NAME_WIDTH, CROWDED_NAME = 150, 110
THINNEST, THICKEST = 1.0, 7.0  # lines; where there are many, the thickest are thinner
CROWDED = (8.0, 8.0)  # of a dot in a large network; the layout keeps as much again between two
DOT, LINE = 12.0, 13.0  # what is drawn for it, and the height of a line of text
ASIDE = 18  # how far a directed link keeps from the straight line, for its counterpart


def draw_network(
    page: Page,
    cluster: Cluster,
    left: float,
    top: float,
    used: Fullness | None = None,
    needed: Collection[str] = (),
) -> float:
    """Put a network on the page, coloured by how full everything is where that is given; return where it ends.

    `needed` are elements that somebody has a use for though they may be idle, such as relays.
    """
    detailed = len(cluster.node_index) <= DETAILED
    if not detailed and used is not None:
        return _draw_crowd(page, cluster, left, top, used, needed)
    width, height = _node_size(cluster, detailed)
    at = _places(cluster, (width, height), left, top)
    labelled = len(cluster.links) <= min(LABELLED, 2 * len(at))
    for link in cluster.links:
        _draw_link(page, cluster, link, at, used)
    if labelled:
        for link in cluster.links:
            _draw_label(page, words_of(link.label, used) or bandwidth(link.bandwidth_mbps), _label_place(link, at))
    for machine in cluster.machines:
        _draw_machine(page, machine, at[machine.name], (width, height), detailed, used)
    for switch in cluster.switches:
        _draw_switch(page, switch, at[switch], width, 22 if detailed else height, used)
    return max(y for _, y in at.values()) + height / 2


def _places(cluster: Cluster, room: tuple[float, float], left: float, top: float) -> dict[str, Point]:
    """Return the middle of every node on the page, where each needs so much room."""
    at, (width, height) = lay_out(cluster, *room), room
    x0, y0 = min(x for x, _ in at.values()) - width / 2, min(y for _, y in at.values()) - height / 2
    return {name: (x - x0 + left, y - y0 + top) for name, (x, y) in at.items()}


def _draw_crowd(
    page: Page, cluster: Cluster, left: float, top: float, used: Fullness, needed: Collection[str]
) -> float:
    """Put a large network on the page: dots and lines, and the names of what is in use, needed or has failed."""
    at = _places(cluster, CROWDED, left + CROWDED_NAME / 2, top)

    def amount(name: str) -> float:
        share = used.get(name, 0.0)
        return 2.0 if share is None else share  # what has failed comes before what is full

    for link in sorted(cluster.links, key=lambda one: amount(one.label)):  # what is in use on top
        _draw_link(page, cluster, link, at, used, directions=amount(link.label) > 0)
    for machine in cluster.machines:
        tip = machine_tip(machine) + in_use(machine.name, used)
        _draw_dot(page, at[machine.name], (paint(machine.name, used, MACHINE[0]), MACHINE[1]), tip, "machine")
    for switch in cluster.switches:
        fill, tip = _switch(switch, used)
        _draw_dot(page, at[switch], (fill, SWITCH[1]), tip, "switch")
    busy = sorted((name for name in at if amount(name) > 0 or name in needed), key=lambda name: -amount(name))
    _draw_names(page, busy, at)
    return max(y for _, y in at.values()) + CROWDED[1]


def _draw_dot(page: Page, at: Point, colours: tuple[str, str], tip: str, kind: str) -> None:
    x, y = at[0] - DOT / 2, at[1] - DOT / 2
    page.rectangle(x, y, DOT, DOT, fill=colours[0], stroke=colours[1], round_by=DOT / 4, tip=tip, kind=kind)


def _draw_names(page: Page, names: Sequence[str], at: Mapping[str, Point]) -> None:
    """Write names beside their nodes, each on the first side where it hides no node and no other name, if any."""
    taken = [(x - DOT / 2, y - DOT / 2, DOT, DOT) for x, y in at.values()]
    for name in names:
        x, y = at[name]
        words = _without_middle(name, 10, CROWDED_NAME)
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


def _without_middle(words: str, points: float, width: float) -> str:
    """Return a text that fits into a width, its middle left out where it must be: names often differ at their ends."""
    most = int(width / text_width("n", points))
    if len(words) <= most:
        return words
    kept = (most - 1) // 2
    return f"{words[: most - 1 - kept]}…{words[-kept:]}"


def _node_size(cluster: Cluster, detailed: bool) -> tuple[float, float]:
    if detailed:
        words = [line for machine in cluster.machines for line in _words(machine)]
        longest = max(widest(words, 10), widest(list(cluster.node_index), 12, bold=True))
        return min(longest, NAME_WIDTH) + 16, 52.0
    return min(widest(list(cluster.node_index), 10), 90.0) + 10, 20.0


def _words(machine: Machine) -> list[str]:
    return [
        f"{machine.cores} × {machine.speed:.3g}, {size(machine.memory_mb * 1e6)}",
        plural(machine.slots, "slot") + (f" in {machine.processes}" if machine.processes > 1 else ""),
    ]


def machine_tip(machine: Machine) -> str:
    """Return what a pointer over a machine shows."""
    parts = [
        f"{plural(machine.cores, 'core')} of speed {machine.speed:.3g}",
        f"{size(machine.memory_mb * 1e6)} of memory",
        f"{plural(machine.slots, 'slot')} in {plural(machine.processes, 'process', 'processes')}",
    ]
    parts += [f"network card {card(*machine.card_mbps)}"] if machine.card_mbps else []
    parts += [f"{name} {amount:.3g} a second" for name, amount in machine.resources.items()]
    parts += [f"fails with probability {machine.failure_probability:.3g}"] if machine.failure_probability else []
    where = f" on host {machine.host}" if machine.host else ""
    return f"{machine.name}{where}: {', '.join(parts)}"


def _draw_machine(
    page: Page, machine: Machine, at: Point, room: tuple[float, float], detailed: bool, used: Fullness | None
) -> None:
    (x, y), (width, height), edge = at, room, MACHINE[1]
    fill, tip = paint(machine.name, used, MACHINE[0]), machine_tip(machine) + in_use(machine.name, used)
    page.rectangle(x - width / 2, y - height / 2, width, height, fill=fill, stroke=edge, tip=tip, kind="machine")
    if not detailed:
        page.text(x, y + 4, _without_middle(machine.name, 10, width - 8), points=10, anchor="middle")
        return
    page.text(x, y - 9, shortened(machine.name, 12, width - 8, bold=True), bold=True, anchor="middle")
    words = _words(machine)
    lines = [words[0], words_of(machine.name, used) or words[1]]
    for place, line in enumerate(lines):
        page.text(x, y + 6 + 13 * place, line, points=10, anchor="middle", colour=MUTED)


def _draw_switch(page: Page, name: str, at: Point, width: float, height: float, used: Fullness | None) -> None:
    (x, y), (fill, tip) = at, _switch(name, used)
    place = (x - width / 2, y - height / 2, width, height)
    page.rectangle(*place, fill=fill, stroke=SWITCH[1], round_by=height / 2, tip=tip, kind="switch")
    page.text(x, y + 4, _without_middle(name, 10, width - 8), points=10, anchor="middle", colour=INK)


def _switch(name: str, used: Fullness | None) -> tuple[str, str]:
    """Return a switch's colour, and what a pointer over it shows."""
    return (FAILED, f"{name}: switch; failed") if has_failed(name, used) else (SWITCH[0], f"{name}: switch")


def _draw_link(
    page: Page,
    cluster: Cluster,
    link: Link,
    at: dict[str, Point],
    used: Fullness | None,
    directions: bool = True,
) -> None:
    most = max(other.bandwidth_mbps for other in cluster.links)
    share = link.bandwidth_mbps / most if most else 0.0
    (x1, y1), (x2, y2) = at[link.source], at[link.target]
    tip = f"{link.label}: {bandwidth(link.bandwidth_mbps)}, {link.latency_ms:.3g} ms"
    if link.failure_probability:
        tip += f", fails with probability {link.failure_probability:.3g}"
    tip += in_use(link.label, used)
    if link.directed:
        mx, my = _aside(link, at)
        way = f"M{x1:.1f},{y1:.1f} Q{mx:.1f},{my:.1f} {x2:.1f},{y2:.1f}"
    else:
        way = f"M{x1:.1f},{y1:.1f} L{x2:.1f},{y2:.1f}"
    thickest = max(THICKEST - len(cluster.links) / 12, 3 * THINNEST)
    thick = THINNEST + (thickest - THINNEST) * sqrt(share)
    dashed = share == 0 or has_failed(link.label, used)
    page.path(way, stroke=paint(link.label, used, LINK), width=thick, dashed=dashed, tip=tip, kind="link")
    if link.directed and directions:
        _draw_direction(page, link, at)


def _draw_label(page: Page, words: str, at: Point) -> None:
    width = text_width(words, 10) + 4
    page.rectangle(at[0] - width / 2, at[1] - 7, width, 14, round_by=3)
    page.text(at[0], at[1] + 4, words, points=10, anchor="middle", colour=MUTED)


def _aside(link: Link, at: dict[str, Point]) -> Point:
    """Return a point beside the middle of a directed link, to its right: its counterpart bends the other way."""
    (x1, y1), (x2, y2) = at[link.source], at[link.target]
    length = hypot(x2 - x1, y2 - y1) or 1.0
    return (x1 + x2) / 2 - (y2 - y1) / length * 2 * ASIDE, (y1 + y2) / 2 + (x2 - x1) / length * 2 * ASIDE


def _draw_direction(page: Page, link: Link, at: dict[str, Point]) -> None:
    """Put an arrow on the middle of a directed link, where no node hides it."""
    (x1, y1), (x2, y2) = at[link.source], at[link.target]
    mx, my = _label_place(link, at)
    length = hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    page.path(
        f"M{mx - 6 * dx:.1f},{my - 6 * dy:.1f} l{dx:.2f},{dy:.2f}", stroke=LINK, width=1, arrow=True, kind="direction"
    )


def _label_place(link: Link, at: dict[str, Point]) -> Point:
    (x1, y1), (x2, y2) = at[link.source], at[link.target]
    if not link.directed:
        return (x1 + x2) / 2, (y1 + y2) / 2
    mx, my = _aside(link, at)
    return (x1 + 2 * mx + x2) / 4, (y1 + 2 * my + y2) / 4
