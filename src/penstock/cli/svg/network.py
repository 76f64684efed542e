"""A routed network as SVG: machines and switches as nodes, links as lines as wide as their bandwidth allows."""

from math import hypot, sqrt

from penstock.cli.output import size
from penstock.cli.svg.elements import INK, MUTED, Page, shortened, text_width, widest
from penstock.cli.svg.fullness import Fullness, has_failed, in_use, paint, words_of
from penstock.cli.svg.layout import Point, lay_out
from penstock.cli.words import bandwidth, plural
from penstock.model.cluster import Cluster, Link, Machine

MACHINE, SWITCH = ("#e6f1fb", "#2f76b5"), ("#fff4d9", "#b7791f")  # fill, edge
LINK = "#a3aebb"
DETAILED = 24  # nodes; of more, only the names are written
LABELLED = 24  # links; of more, only a pointer shows the bandwidth
NAME_WIDTH = 150
THINNEST, THICKEST = 1.0, 7.0  # lines; where there are many, the thickest are thinner
ASIDE = 18  # how far a directed link keeps from the straight line, for its counterpart


def draw_network(page: Page, cluster: Cluster, left: float, top: float, used: Fullness | None = None) -> float:
    """Put a network on the page, coloured by how full everything is where that is given; return where it ends."""
    detailed = len(cluster.node_index) <= DETAILED
    width, height = _node_size(cluster, detailed)
    at = lay_out(cluster, width, height)
    x0, y0 = min(x for x, _ in at.values()) - width / 2, min(y for _, y in at.values()) - height / 2
    at = {name: (x - x0 + left, y - y0 + top) for name, (x, y) in at.items()}
    labelled = len(cluster.links) <= min(LABELLED, 2 * len(at))
    for link in cluster.links:
        _draw_link(page, cluster, link, at, used)
    if labelled:
        for link in cluster.links:
            _draw_label(page, words_of(link.label, used) or bandwidth(link.bandwidth_mbps), _label_place(link, at))
    for machine in cluster.machines:
        _draw_machine(page, machine, at[machine.name], (width, height), detailed, used)
    for switch in cluster.switches:
        _draw_switch(page, switch, at[switch], width, 22 if detailed else height)
    return max(y for _, y in at.values()) + height / 2


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
    parts += [f"network card {bandwidth(machine.network_mbps)}"] if machine.network_mbps else []
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
        page.text(x, y + 4, shortened(machine.name, 10, width - 8), points=10, anchor="middle")
        return
    page.text(x, y - 9, shortened(machine.name, 12, width - 8, bold=True), bold=True, anchor="middle")
    words = _words(machine)
    lines = [words[0], words_of(machine.name, used) or words[1]]
    for place, line in enumerate(lines):
        page.text(x, y + 6 + 13 * place, line, points=10, anchor="middle", colour=MUTED)


def _draw_switch(page: Page, name: str, at: Point, width: float, height: float) -> None:
    (x, y), (fill, edge) = at, SWITCH
    place = (x - width / 2, y - height / 2, width, height)
    page.rectangle(*place, fill=fill, stroke=edge, round_by=height / 2, tip=f"{name}: switch", kind="switch")
    page.text(x, y + 4, shortened(name, 10, width - 8), points=10, anchor="middle", colour=INK)


def _draw_link(page: Page, cluster: Cluster, link: Link, at: dict[str, Point], used: Fullness | None) -> None:
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
    if link.directed:
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
