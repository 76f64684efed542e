"""A plan as SVG: machines with the tasks in their slots, a colour per component, and the network between them.

With the load of a plan, free slots and machines are drawn too, links or traffic with their load, and the bottleneck.
Without it, only the used slots and routes are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt

from rich.cells import cell_len

from penstock.cli.colours import component_colours
from penstock.cli.drawing.facts import expected_in_words, facts_in_words
from penstock.cli.drawing.plan import task_labels, tasks_by_slot
from penstock.cli.formatting import bandwidth, fails, percent, plural
from penstock.cli.output import number
from penstock.cli.planned_load import PlannedLoad
from penstock.cli.svg.diagram import Diagram, Node, arrange
from penstock.cli.svg.elements import (
    FAINT,
    INK,
    MARGIN,
    MUTED,
    PAPER,
    Page,
    draw_legend,
    shortened,
    step,
    text_width,
    widest,
)
from penstock.cli.svg.network import (
    SMALL,
    common_words,
    draw_labels,
    draw_switch,
    into_nodes,
    lines_of,
    link_ends,
    link_labels,
    link_tip,
    machine_tip,
    node_of,
    top_switches,
)
from penstock.model.cluster import Machine
from penstock.model.plan import Plan

PAGE_WIDTH = 1080
NAME_WIDTH, LABEL_WIDTH = 180, 160
CHIP, GAP = 16, 3
CHIPS = 12  # of one component in a slot; more tasks share chips
LABEL_CELLS = 20
PADDING = 8
SLOT_LABEL = 12
HEADER = 15.0
BAR = 44.0  # the length of a bar
FREE = 12  # the side of a free slot
FREE_DRAWN = 24  # free slots of a machine; more are counted
PAIRS = 60  # of machines without links between them, the busiest
LABELLED = 24  # of these, the busiest
TRAFFIC = "#8fa9c4"
LIMIT = "#c1121f"
THINNEST, THICKEST = 1.2, 6.0

Tasks = Mapping[str, list[int]]


def plan_svg(plan: Plan, load: PlannedLoad | None = None) -> bytes:
    """Return the drawing of a plan as an SVG file."""
    title = f"{plan.application} on {plan.cluster}"
    page = Page(title)
    page.text(MARGIN, 34, title, points=18, bold=True)
    made_by = [f"by {plan.policy}", f"for {plan.objective}", f"seed {plan.seed}"]
    y = page.facts(56, [*made_by, *facts_in_words(plan)])
    y = page.facts(y, expected_in_words(plan))
    if load is not None:
        y = page.facts(
            y, [f"bottleneck: {load.limit_in_words}", f"shares are at {number(load.rate_tps)} source tuples/s"]
        )
    colours = component_colours(plan.tasks)
    y = _draw_components(page, plan, colours, y + 4)
    picture = PlanPicture(plan, load, colours)
    bottom = picture.draw(page, MARGIN, y + 14)
    if load is not None:
        bottom = draw_legend(page, MARGIN, bottom + 18, failed=False)
    page.facts(bottom + 30, picture.notes)
    return page.finish()


def _draw_components(page: Page, plan: Plan, colours: Mapping[str, str], top: float) -> float:
    """Put the components with their colours on the page; return its lower edge."""
    x = float(MARGIN)
    for name, slots in plan.tasks.items():
        words = f"{shortened(name, 11, NAME_WIDTH)} ×{len(slots)}"
        if x > MARGIN and x + 20 + text_width(words, 11) > MARGIN + PAGE_WIDTH:
            x, top = float(MARGIN), top + 20
        page.rectangle((x, top, 14, 14), fill=colours[name], stroke=MUTED, round_by=3, tip=name, kind="component")
        page.text(x + 20, top + 11, words, points=11)
        x += 38 + text_width(words, 11)
    return top + 14


@dataclass(frozen=True)
class Card:
    """A machine of a plan: what its box says, and the tasks in its slots."""

    name: str
    machine: Machine | None  # None if the cluster is unknown
    slots: Mapping[str, Tasks]  # those with tasks in them
    load: PlannedLoad | None
    cell: float  # the width of a slot

    @cached_property
    def words(self) -> list[tuple[str, bool]]:
        """The lines below the name, and whether each is about the bottleneck."""
        if self.machine is None or self.load is None:
            return []
        load, m = self.load, self.machine
        lines = [
            (f"{m.cores} × {m.speed:.3g}, cpu {percent(load.share('machine', m.name))}", load.limits("machine", m.name))
        ]
        if m.card_mbps:
            directions = [(each, f"{m.name} ({each})") for each in ("out", "in")]
            words = ", ".join(f"{each} {percent(load.share('network', name))}" for each, name in directions)
            lines.append((words, any(load.limits("network", name) for _, name in directions)))
        for kind, name in load.shares:
            if name == m.name and kind != "machine":
                lines.append((f"{kind} {percent(load.share(kind, name))}", load.limits(kind, name)))
        lines += [(words, False) for words in [fails(m.failure_probability)] if words]
        return lines

    @property
    def bar(self) -> float:
        """The width of the cpu bar beside the name."""
        return 0.0 if self.load is None else BAR + 6.0

    @property
    def free(self) -> int:
        """The number of slots without tasks."""
        return 0 if self.machine is None else self.machine.slots - len(self.slots)

    @property
    def free_words(self) -> str:
        """The text beside the free slots."""
        return f"{self.free} free"

    @cached_property
    def columns(self) -> int:
        """The number of slots per row."""
        tallest = max((_height(tasks) for tasks in self.slots.values()), default=1.0)
        return max(min(len(self.slots), ceil(sqrt(len(self.slots) * 2.0 * tallest / self.cell))), 1)

    @cached_property
    def bands(self) -> list[list[tuple[str, Tasks]]]:
        """The slots with tasks, row by row."""
        slots = list(self.slots.items())
        return [slots[start : start + self.columns] for start in range(0, len(slots), self.columns)]

    @property
    def node(self) -> Node:
        """The card as a node of a diagram."""
        free = min(self.free, FREE_DRAWN) * (FREE + GAP) + text_width(self.free_words, SMALL) + 4 if self.free else 0.0
        words = [text_width(self.name, 12, bold=True) + self.bar, widest([words for words, _ in self.words], 10)]
        cells = self.columns * (self.cell + GAP) - GAP if self.slots else 0.0
        width = max(*(min(width, NAME_WIDTH) for width in words), cells, free)
        height = HEADER * (1 + len(self.words)) + sum(_band_height(band) + GAP for band in self.bands)
        return Node(self.name, width + 2 * PADDING, height + 2 * PADDING + (FREE + GAP if self.free else 0.0))

    def draw(self, page: Page, box: Sequence[float], colours: Mapping[str, str]) -> None:
        """Put the card on the page."""
        left, top, right, bottom = box
        limits = self.load is not None and self.load.limiting_machine == self.name
        tip = machine_tip(self.machine) if self.machine else f"machine {self.name}"
        fill = "#f5f7fa" if self.slots else PAPER
        how = {"stroke": LIMIT, "stroke_width": 3.0} if limits else {"stroke": MUTED}
        page.rectangle((left, top, right - left, bottom - top), fill=fill, tip=tip, kind="machine", **how)
        inside = right - left - 2 * PADDING
        x, y = left + PADDING, top + PADDING + 11
        page.text(x, y, shortened(self.name, 12, inside - self.bar, bold=True), bold=True)
        if self.load is not None:
            busy = self.load.share("machine", self.name)
            for width, colour in ((BAR, "#e4e7eb"), (BAR * min(busy, 1.0), step(busy))):
                page.rectangle((right - PADDING - BAR, y - 8, width, 7), fill=colour, round_by=2)
        for words, limiting in self.words:
            y += HEADER
            page.text(x, y, shortened(words, 10, inside), points=10, colour=LIMIT if limiting else MUTED, bold=limiting)
        y += GAP + 1
        for band in self.bands:
            height = _band_height(band)
            for column, (slot, tasks) in enumerate(band):
                self._draw_slot(page, slot, tasks, (x + column * (self.cell + GAP), y, self.cell, height), colours)
            y += height + GAP
        for place in range(min(self.free, FREE_DRAWN)):
            page.rectangle(
                (x + place * (FREE + GAP), y, FREE, FREE),
                stroke=MUTED,
                round_by=2,
                dashed=True,
                tip="free slot",
                kind="free",
            )
        if self.free:
            after = x + min(self.free, FREE_DRAWN) * (FREE + GAP) + 2
            page.text(after, y + FREE - 3, self.free_words, points=SMALL, colour=MUTED)

    def _draw_slot(
        self, page: Page, slot: str, tasks: Tasks, place: tuple[float, float, float, float], colours: Mapping[str, str]
    ) -> None:
        x, y, width, _ = place
        name = f"{self.name}/{slot}"
        limits = self.load is not None and self.load.limits("slot", name)
        how = {"stroke": LIMIT, "stroke_width": 2.5} if limits else {"stroke": FAINT}
        page.rectangle(place, tip=f"slot {name}", kind="slot", **how)
        busy = self.load.shares.get(("slot", name)) if self.load is not None else None
        words = slot if busy is None else f"{slot}: {percent(busy)}"
        page.text(x + GAP + 2, y + 10, words, points=SMALL, colour=LIMIT if limits else MUTED, bold=limits)
        if busy is not None:
            page.rectangle(
                (x + GAP + 2, y + SLOT_LABEL - 1, (width - 2 * GAP - 4) * min(busy, 1.0), 3),
                fill=step(busy),
                round_by=1,
            )
        y += SLOT_LABEL + 3
        for component, numbers in tasks.items():
            for task in _labels(component, numbers):
                page.rectangle(
                    (x + GAP, y, width - 2 * GAP, CHIP), fill=colours[component], round_by=4, tip=task, kind="task"
                )
                page.text(x + GAP + 4, y + 12, shortened(task, 10, width - 2 * GAP - 6), points=10, colour=INK)
                y += CHIP + GAP


@dataclass(frozen=True)
class PlanPicture:
    """The machines of a plan as cards, and what joins them."""

    plan: Plan
    load: PlannedLoad | None
    colours: Mapping[str, str]

    @cached_property
    def cards(self) -> list[Card]:
        """The machines; idle machines without links are omitted if there are many."""
        used = tasks_by_slot(self.plan)
        texts = [
            label
            for slots in used.values()
            for tasks in slots.values()
            for item in tasks.items()
            for label in _labels(*item)
        ]
        cell = max(min(widest(texts, 10), LABEL_WIDTH) + 4 * GAP, 56.0)
        if self.load is None:
            return [Card(name, None, slots, None, cell) for name, slots in used.items()]
        machines = [
            m for m in self.load.cluster.machines if m.name in used or self.load.cluster.routed or self._few_idle
        ]
        return [Card(m.name, m, used.get(m.name, {}), self.load, cell) for m in machines]

    @property
    def _few_idle(self) -> bool:
        return self.load is not None and len(self.load.cluster.machines) - len(tasks_by_slot(self.plan)) <= PAIRS // 3

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The machines between which tuples go, the busiest first; where links are known, those carry them."""
        if self.load is not None:
            traffic = self.load.traffic
            return sorted(traffic, key=lambda pair: -sum(traffic[pair].values()))[:PAIRS]
        return sorted({tuple(sorted((route.source, route.target))) for route in self.plan.routes})  # type: ignore[misc]

    @property
    def notes(self) -> list[str]:
        """The notes below the drawing."""
        if self.load is None:
            return ["free slots and how busy everything is: name the application and the cluster"]
        cluster, notes = self.load.cluster, []
        if cluster.routed:
            notes.append("the wider a line, the more it carries; grey: unused")
            notes += [f"every link: {', '.join(alike)}"] if (alike := common_words(cluster)) else []
        elif self.pairs:
            notes.append("lines: traffic between machines, in both directions together")
            if len(self.load.traffic) > PAIRS:
                notes.append(f"the busiest {PAIRS} of {plural(len(self.load.traffic), 'pair')} of machines")
            if len(self.pairs) > LABELLED:
                notes.append(f"the busiest {LABELLED} have labels; a pointer shows the others")
        idle = {m.name for m in cluster.machines} - {card.name for card in self.cards}
        if idle:
            slots = sum(m.slots for m in cluster.machines if m.name in idle)
            notes.append(f"not drawn: {plural(len(idle), 'idle machine')} with {plural(slots, 'free slot')}")
        return notes

    def draw(self, page: Page, left: float, top: float) -> float:
        """Put everything on the page; return its lower edge."""
        if not self.cards:
            page.text(left, top + 12, "no tasks", colour=MUTED)
            return top + 12
        nodes = [card.node for card in self.cards]
        if self.load is not None and self.load.cluster.routed:
            cluster = self.load.cluster
            tops = top_switches(cluster)
            nodes += [node_of(cluster, switch, (), tops) for switch in cluster.switches]
            diagram = self._draw_links(page, nodes, left, top)
            for switch, box in zip(cluster.switches, diagram.boxes[len(self.cards) :].tolist(), strict=True):
                draw_switch(page, switch, box, None)
        else:
            diagram = self._draw_pairs(page, nodes, left, top)
        for card, box in zip(self.cards, diagram.boxes.tolist(), strict=False):
            card.draw(page, box, self.colours)
        return float(diagram.extent[3])

    def _draw_links(self, page: Page, nodes: Sequence[Node], left: float, top: float) -> Diagram:
        load = self.load
        assert load is not None
        links = load.cluster.links
        share = {link.label: load.share("link", link.label) for link in links if ("link", link.label) in load.shares}
        labels = [
            words if link.label in share else []
            for link, words in zip(
                links, link_labels(load.cluster, lambda one: percent(share.get(one.label, 0.0))), strict=True
            )
        ]
        labels = [
            ["bottleneck", *words] if load.limits("link", link.label) else words
            for link, words in zip(links, labels, strict=True)
        ]
        lines = lines_of(link_ends(load.cluster), load.cluster.node_index, labels)
        diagram = arrange(nodes, lines, left, top, PAGE_WIDTH)
        carried = self._carried()
        most = max((link.bandwidth_mbps * share.get(link.label, 0.0) for link in links), default=0.0)
        for link, line in zip(links, diagram.lines, strict=True):
            busy = link.label in share
            part = link.bandwidth_mbps * share.get(link.label, 0.0) / most if most else 0.0
            limits = load.limits("link", link.label)
            page.line(
                into_nodes(line, both=not link.directed).tolist(),
                stroke=LIMIT if limits else step(share[link.label]) if busy else FAINT,
                width=THINNEST + (THICKEST - THINNEST) * sqrt(part) if busy else THINNEST,
                arrow=link.directed,
                tip="; ".join(
                    [link_tip(link), f"{percent(share.get(link.label, 0.0))} used", *carried.get(link.label, ())]
                ),
                kind="link",
            )
        draw_labels(page, diagram, labels, LIMIT)
        return diagram

    def _carried(self) -> dict[str, list[str]]:
        """Return the routes over every link, by its label."""
        found: dict[str, list[str]] = {}
        for route in self.plan.routes:
            for link in route.links:
                found.setdefault(link, []).append(f"{route.stream} from {route.source} to {route.target}")
        return found

    def _draw_pairs(self, page: Page, nodes: Sequence[Node], left: float, top: float) -> Diagram:
        traffic = {} if self.load is None else {pair: sum(self.load.traffic[pair].values()) for pair in self.pairs}
        labels = [[bandwidth(traffic[pair])] if traffic.get(pair) else [] for pair in self.pairs[:LABELLED]]
        labels += [[]] * (len(self.pairs) - len(labels))
        place = {node.name: position for position, node in enumerate(nodes)}
        diagram = arrange(nodes, lines_of(self.pairs, place, labels), left, top, PAGE_WIDTH)
        most = max(traffic.values(), default=0.0)
        for pair, line in zip(self.pairs, diagram.lines, strict=True):
            part = traffic[pair] / most if most else 0.0
            by_stream = {} if self.load is None else self.load.traffic[pair]
            tip = "; ".join(
                [" and ".join(pair), *(f"{name}: {bandwidth(amount)}" for name, amount in by_stream.items())]
            )
            width = THINNEST + (THICKEST - THINNEST) * sqrt(part)
            page.line(into_nodes(line).tolist(), stroke=TRAFFIC, width=width, tip=tip, kind="traffic")
        draw_labels(page, diagram, labels)
        return diagram


def _labels(component: str, numbers: Sequence[int]) -> list[str]:
    """Return the labels of a component's tasks in one slot: one a task, few for many."""
    if len(numbers) > CHIPS:
        return task_labels(component, numbers, max(cell_len(component), LABEL_CELLS) + LABEL_CELLS)
    return [f"{component}[{number}]" for number in numbers]


def _height(tasks: Tasks) -> float:
    return SLOT_LABEL + 3 + sum(len(_labels(*item)) for item in tasks.items()) * (CHIP + GAP) + GAP


def _band_height(band: Sequence[tuple[str, Tasks]]) -> float:
    return max(_height(tasks) for _, tasks in band)
