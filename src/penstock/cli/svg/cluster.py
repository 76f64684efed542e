"""A cluster as SVG: machines as cards in their hosts, slots as cells by process, or the network that joins them."""

from collections.abc import Collection

from penstock.cli.drawing.facts import facts_in_words, machines_by_host, process_sizes
from penstock.cli.drawing.usage import Fullness
from penstock.cli.output import number, size
from penstock.cli.svg.elements import (
    FAINT,
    INK,
    MARGIN,
    MUTED,
    PAPER,
    Page,
    draw_legend,
    in_use,
    paint,
    shortened,
    text_width,
    widest,
)
from penstock.cli.svg.network import DETAILED, LABELLED, MACHINE, common_words, machine_tip, put_network
from penstock.model.cluster import Cluster, Machine

TOP = 64  # the title's room
PAGE_WIDTH = 1080
NAME_WIDTH = 190
CELL, GAP = 14, 3
CELLS_A_ROW = 10
DRAWN_SLOTS = 100  # of a machine; more are counted
PADDING = 12
HOST_LABEL = 22
BAR, SLOT = "#2f76b5", ("#e3f5e8", "#2f9e5b")


def cluster_svg(cluster: Cluster, used: Fullness | None = None, needed: Collection[str] = ()) -> bytes:
    """Return the drawing of a cluster as an SVG file; with `used`, coloured by utilisation.

    In a large network the names of `needed` elements are shown even if they are idle.
    """
    page = Page(cluster.name)
    page.text(MARGIN, 34, cluster.name, points=18, bold=True)
    if cluster.routed:
        bottom = put_network(page, cluster, MARGIN, TOP, used, needed)
    else:
        bottom = _draw_hosts(page, cluster, used)
    if used is not None:
        bottom = draw_legend(page, MARGIN, bottom + 18)
    scale = ["the wider a line, the higher its bandwidth (by the square root)"] if cluster.routed else []
    if cluster.routed and (alike := common_words(cluster)):
        scale.append(f"every link: {', '.join(alike)}")
    if len(cluster.links) > LABELLED:
        scale.append("a pointer shows what a link is like")
    if cluster.routed and used is not None and len(cluster.node_index) > DETAILED:
        scale.append("names are those of all that paths need and of what has failed; a pointer shows the others")
    page.facts(bottom + 36, [*facts_in_words(cluster), *scale])
    return page.finish()


def _draw_hosts(page: Page, cluster: Cluster, used: Fullness | None = None) -> float:
    """Put the hosts on the page one after another, filling each row; return their lower edge."""
    width, height = _card_size(cluster)
    most = max(machine.cpu for machine in cluster.machines)
    x, y, row_end = float(MARGIN), float(TOP), float(TOP)
    for host, machines in machines_by_host(cluster).items():
        edge, label = (PADDING, HOST_LABEL) if host else (0, 0)
        abreast = max(min(len(machines), int((PAGE_WIDTH - 2 * PADDING) // (width + PADDING))), 1)
        frame_width = abreast * (width + PADDING) - PADDING + 2 * edge
        frame_height = label + -(-len(machines) // abreast) * (height + PADDING) - PADDING + 2 * edge
        if x > MARGIN and x + frame_width > MARGIN + PAGE_WIDTH:
            x, y = float(MARGIN), row_end + PADDING
        if host:
            page.rectangle(
                (x, y, frame_width, frame_height), fill="#f5f7fa", stroke=FAINT, tip=f"host {host}", kind="host"
            )
            page.text(x + PADDING, y + 20, shortened(host, 12, frame_width - 2 * PADDING), colour=MUTED)
        for place, machine in enumerate(machines):
            left = x + edge + place % abreast * (width + PADDING)
            top = y + label + edge + place // abreast * (height + PADDING)
            _draw_card(page, machine, (left, top, width, height), most, used)
        x, row_end = x + frame_width + PADDING, max(row_end, y + frame_height)
    return row_end


def _words(machine: Machine) -> str:
    return f"{machine.cores} × {machine.speed:.3g}, {size(machine.memory_mb * 1e6)}"


def _card_size(cluster: Cluster) -> tuple[float, float]:
    names = min(widest([machine.name for machine in cluster.machines], 12, bold=True), NAME_WIDTH)
    specs = widest([_words(machine) for machine in cluster.machines], 11)
    rows = [_cell_rows(machine) for machine in cluster.machines]
    cells = max(sum(count * (CELL + GAP) + 2 * GAP + 4 for count in row) for each in rows for row in each)
    return max(names, specs, cells, 130.0) + 2 * PADDING, 66.0 + max(map(len, rows)) * (CELL + 2 * GAP + 2)


def _cell_rows(machine: Machine) -> list[list[int]]:
    """Return the rows of cells, each a list of how many slots of one process stand side by side."""
    rows: list[list[int]] = [[]]
    left = DRAWN_SLOTS
    for slots in process_sizes(machine):
        shown, left = min(slots, left), max(left - slots, 0)
        for piece in range(0, shown, CELLS_A_ROW):
            count = min(shown - piece, CELLS_A_ROW)
            if rows[-1] and sum(rows[-1]) + count > CELLS_A_ROW:
                rows.append([])
            rows[-1].append(count)
    return rows


def _draw_card(
    page: Page, machine: Machine, place: tuple[float, float, float, float], most: float, used: Fullness | None = None
) -> None:
    left, top, width, _ = place
    tip = machine_tip(machine) + in_use(machine.name, used)
    page.rectangle(place, fill=paint(machine.name, used, PAPER), stroke=MACHINE[1], tip=tip, kind="machine")
    inside = width - 2 * PADDING
    name = shortened(machine.name, 12, inside, bold=True)
    page.text(left + PADDING, top + 19, name, bold=True, colour=INK)
    page.text(left + PADDING, top + 35, _words(machine), points=11, colour=MUTED)
    value = number(machine.cpu)
    room = inside - text_width(value, 10) - 6
    page.rectangle((left + PADDING, top + 43, room, 8), fill="#e4e7eb", round_by=2)
    page.rectangle((left + PADDING, top + 43, room * machine.cpu / most, 8), fill=BAR, round_by=2, tip=f"cpu {value}")
    page.text(left + width - PADDING, top + 51, value, points=10, anchor="end", colour=MUTED)
    y, slot = top + 60, 0
    for row in _cell_rows(machine):
        x = left + PADDING
        for count in row:
            block = count * (CELL + GAP) + GAP
            page.rectangle((x, y, block, CELL + 2 * GAP), fill="none", stroke=FAINT, round_by=3)
            for cell in range(count):
                at = (x + GAP + cell * (CELL + GAP), y + GAP, CELL, CELL)
                page.rectangle(at, fill=SLOT[0], stroke=SLOT[1], round_by=2, tip=f"{machine.name}/{slot}", kind="slot")
                slot += 1
            x += block + GAP + 4
        y += CELL + 2 * GAP + 2
    if machine.slots > DRAWN_SLOTS:
        page.text(left + width - PADDING, top + 19, f"{machine.slots:,} slots", points=10, anchor="end", colour=MUTED)
