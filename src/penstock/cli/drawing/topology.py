"""An application on a terminal: components as boxes in layers, streams as lines from box to box.

Layers go from left to right, or from top to bottom if that is too wide; if even that is too wide, the components are
listed with their streams below them. Every component has one exit, from which its streams fork, and
an entry of its own for each stream that arrives, with the stream's label: so a join can be read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations

from rich.cells import cell_len
from rich.text import Text

from penstock.cli.colours import component_colours
from penstock.cli.drawing.canvas import Canvas, crop, wrapped
from penstock.cli.drawing.facts import facts_in_words
from penstock.cli.drawing.layers import Layering, Segment, arrange, layer
from penstock.cli.output import duration, size
from penstock.model.topology import Component, Stream, Topology

LINE = "bright_black"
DRAWN = 60  # components; a drawing of more would be unreadable
NAME_CELLS = 28  # longer names are cropped
ATTEMPTS = 60  # at making boxes larger until every line has a path of its own
FEW = 5  # trunks in one gap of which all orders are tried


def draw_topology(topology: Topology, width: int) -> list[Text]:
    """Return the drawing, line by line, none wider than `width` cells."""
    lines = [_title(topology, width), Text()]
    drawn = next(_drawings(topology, width), None)
    lines += drawn if drawn is not None else _listing(topology, width)
    return [*lines, Text(), *wrapped(facts_in_words(topology), width)]


def stream_label(stream: Stream) -> str:
    """Return what stands on a stream's line: its grouping, and its tuples per input tuple if not 1."""
    return stream.grouping + (f" ×{stream.selectivity:.3g}" if stream.selectivity != 1 else "")


def _title(topology: Topology, width: int) -> Text:
    return Text(crop(topology.name, width), style="bold")


def _drawings(topology: Topology, width: int) -> Iterator[list[Text]]:
    """Yield the drawings that fit, the most informative first."""
    if len(topology.components) > DRAWN:
        return
    layering = layer(topology)
    labels = [stream_label(stream) for stream in topology.streams]
    for down, narrow in ((False, False), (False, True), (True, False), (True, True)):
        cards = [card(component, narrow) for component in topology.components]
        sketch = Sketch(layering, cards, labels, down)
        if sketch.settle() and sketch.width <= width:
            yield sketch.paint(list(_styles(topology).values()))


def _styles(topology: Topology) -> dict[str, str]:
    """Return the style of every component's name, in the order of the components."""
    colours = component_colours(topology.index)
    return {component.name: f"bold black on {colours[component.name]}" for component in topology.components}


def card(
    component: Component, narrow: bool, fit: Callable[[str], str] = lambda text: crop(text, NAME_CELLS)
) -> list[str]:
    """Return the lines of a component's box; `fit` shortens what may be long."""
    where = f" on {component.place}" if component.place else ""
    costs = [duration(component.cpu), size(component.memory_mb * 1e6)]
    lines = [
        f"{fit(component.name)} ×{component.parallelism}",
        fit(component.kind + where),
        *(costs if narrow else [" · ".join(costs)]),
    ]
    needs = ", ".join(f"{name} {amount:.3g}" for name, amount in component.resources.items())
    return [*lines, fit(needs)] if needs else lines


@dataclass
class Sketch:
    """Where everything in a drawing goes.

    Along is the direction of the streams, across the other: columns and rows of the terminal or, when drawing down,
    rows and columns. In the gap between two layers, all that leaves a vertex runs along from its exit to the vertex's
    trunk, across on the trunk, and along again to the entries. No entry is level with another vertex's exit, so
    lines of different vertices only ever cross.
    """

    layering: Layering
    cards: Sequence[Sequence[str]]
    labels: Sequence[str]
    down: bool
    sizes: list[int] = field(default_factory=list)  # across, of every vertex
    starts: list[int] = field(default_factory=list)  # across
    exits: dict[int, int] = field(default_factory=dict)  # across, by vertex
    entries: dict[Segment, int] = field(default_factory=dict)  # across
    trunks: dict[int, int] = field(default_factory=dict)  # lane of a vertex's trunk in the gap behind its layer
    layer_at: list[int] = field(default_factory=list)  # along
    layer_size: list[int] = field(default_factory=list)  # along

    def settle(self) -> bool:
        """Find places for everything; false when lines would run into one another."""
        self.sizes = [self._least_size(vertex) for vertex in range(self.layering.vertices)]
        for _ in range(ATTEMPTS):
            self.starts = arrange(self.layering, self.sizes, 3 if self.down else 1)
            crowded = self._ports()
            if crowded is None:
                self._lay_along()
                return True
            self.sizes[crowded] += 1
        return False

    @property
    def width(self) -> int:
        """The width of the drawing, in columns."""
        across = max(start + size for start, size in zip(self.starts, self.sizes, strict=True))
        return across if self.down else self.layer_at[-1] + self.layer_size[-1]

    def paint(self, styles: Sequence[str]) -> list[Text]:
        """Return the drawing, with a style for every component."""
        canvas = Canvas()
        for segment in self.layering.segments:
            self._paint_segment(canvas, segment)
        for vertex, style in enumerate(styles):
            self._paint_box(canvas, vertex, style)
        for segment in self.layering.segments:
            self._paint_end(canvas, segment)
        return canvas.lines(LINE)

    def _is_bend(self, vertex: int) -> bool:
        return vertex >= self.layering.components

    def _into(self, vertex: int) -> list[Segment]:
        return [segment for segment in self.layering.segments if segment.target == vertex]

    def _out_of(self, vertex: int) -> list[Segment]:
        return [segment for segment in self.layering.segments if segment.source == vertex]

    def _step(self, segment: Segment) -> int:
        """Return how much room across an entry takes; drawing down, its label stands across it."""
        labelled = self.down and not self._is_bend(segment.target)
        return cell_len(self.labels[segment.stream]) + 2 if labelled else 1

    def _least_size(self, vertex: int) -> int:
        if self._is_bend(vertex):
            return 1
        lines = self.cards[vertex]
        content = max(cell_len(line) for line in lines) + 2 if self.down else len(lines)
        return max(content, sum(self._step(segment) for segment in self._into(vertex))) + 2

    def _room(self, vertex: int) -> range:
        """Return the positions across at which lines may touch a vertex: not at a box's corners."""
        start, end = self.starts[vertex], self.starts[vertex] + self.sizes[vertex]
        return range(start, end) if self._is_bend(vertex) else range(start + 1, end - 1)

    def _centre(self, vertex: int) -> int:
        return self.starts[vertex] + (self.sizes[vertex] - 1) // 2

    def _ports(self) -> int | None:
        """Choose exits and entries, gap by gap; return a vertex that is too small, if there is one."""
        self.exits, self.entries = {}, {}
        for listed, following in zip(self.layering.layers, self.layering.layers[1:], strict=False):
            for vertex in listed:
                if self._is_bend(vertex):
                    self.exits[vertex] = self.entries[self._into(vertex)[0]]
                else:
                    self.exits[vertex] = self._exit(vertex)
            sending = {self.exits[vertex]: vertex for vertex in listed if self._out_of(vertex)}
            for vertex in following:
                if not self._enter(vertex, sending):
                    return vertex
        return None

    def _exit(self, vertex: int) -> int:
        """Return where a component's streams leave: straight ahead to its only target if possible."""
        onward = self._out_of(vertex)
        straight = self._centre(onward[0].target) if len(onward) == 1 else -1
        return straight if straight in self._room(vertex) else self._centre(vertex)

    def _enter(self, vertex: int, sending: dict[int, int]) -> bool:
        """Choose where streams arrive at a vertex, level with no other vertex's exit; false if there is no room."""
        arriving = sorted(self._into(vertex), key=lambda segment: self.exits[segment.source])
        room = self._room(vertex)
        wanted = [min(max(self.exits[s.source], room[0]), room[-1]) for s in arriving]
        if len(arriving) == 1 and self.exits[arriving[0].source] not in room:
            wanted = [self._centre(vertex)]
        barred = [{at for at, sender in sending.items() if sender != s.source} for s in arriving]
        seats = seat(wanted, [self._step(s) for s in arriving], room, barred)
        if seats is not None:
            self.entries.update(zip(arriving, seats, strict=True))
        return seats is not None

    def _lay_along(self) -> None:
        """Place the layers and the trunks between them along."""
        layers, at = self.layering.layers, 0
        self.trunks, self.layer_at, self.layer_size = {}, [], []
        for number, listed in enumerate(layers):
            boxes = [vertex for vertex in listed if not self._is_bend(vertex)]
            thick = [len(self.cards[v]) if self.down else max(map(cell_len, self.cards[v])) + 2 for v in boxes]
            self.layer_at.append(at)
            self.layer_size.append(max(thick, default=0) + 2)
            at += self.layer_size[number] + self._gap(listed)

    def _gap(self, listed: Sequence[int]) -> int:
        """Lay the trunks behind a layer, and return how far away the next layer begins."""
        bent = [v for v in listed if any(self.entries[s] != self.exits[v] for s in self._out_of(v))]
        spans = {v: self._span(v) for v in bent}
        lanes = 0
        placed: list[int] = []
        for vertex in self._order(bent):
            beside = [self.trunks[other] for other in placed if _overlap(spans[other], spans[vertex])]
            self.trunks[vertex] = max(beside, default=-1) + 1
            lanes = max(lanes, self.trunks[vertex] + 1)
            placed.append(vertex)
        if self.down:
            return 2 + lanes
        labels = [self.labels[s.stream] for v in listed for s in self._out_of(v) if not self._is_bend(s.target)]
        return max((cell_len(label) + 5 for label in labels), default=2) + 2 * lanes

    def _span(self, vertex: int) -> tuple[int, int]:
        ends = [self.exits[vertex], *(self.entries[segment] for segment in self._out_of(vertex))]
        return min(ends), max(ends)

    def _order(self, bent: Sequence[int]) -> Sequence[int]:
        """Return the trunks of a gap in the order along that crosses the fewest lines."""
        if len(bent) > FEW:
            return bent
        return min(permutations(bent), key=self._trunk_crossings)

    def _trunk_crossings(self, order: Sequence[int]) -> int:
        count = 0
        for place, first in enumerate(order):
            for second in order[place + 1 :]:
                low, high = self._span(second)
                count += sum(low < self.entries[s] < high for s in self._out_of(first))
                low, high = self._span(first)
                count += low < self.exits[second] < high
        return count

    def _cell(self, along: int, across: int) -> tuple[int, int]:
        return (along, across) if self.down else (across, along)

    def _paint_segment(self, canvas: Canvas, segment: Segment) -> None:
        number = self.layering.layer_of(segment.source)
        leave = self.layer_at[number] + self.layer_size[number]
        if self._is_bend(segment.source):
            leave -= self.layer_size[number]
        leave -= 1  # under the box's edge, so that a trunk just behind it joins
        arrive = self.layer_at[number + 1] - 1
        out, into = self.exits[segment.source], self.entries[segment]
        if out == into:
            canvas.line(self._cell(leave, out), self._cell(arrive, into), segment.source)
            return
        lane = self.trunks[segment.source]
        trunk = self.layer_at[number] + self.layer_size[number] + (lane if self.down else 2 * lane + 1)
        canvas.line(self._cell(leave, out), self._cell(trunk, out), segment.source)
        canvas.line(self._cell(trunk, out), self._cell(trunk, into), segment.source)
        canvas.line(self._cell(trunk, into), self._cell(arrive, into), segment.source)

    def _paint_box(self, canvas: Canvas, vertex: int, style: str) -> None:
        number = self.layering.layer_of(vertex)
        row, column = self._cell(self.layer_at[number], self.starts[vertex])
        height, width = self._cell(self.layer_size[number], self.sizes[vertex])
        canvas.box(row, column, height, width, "")
        lines = self.cards[vertex]
        first = row + 1 + (height - 2 - len(lines)) // 2
        for line_number, line in enumerate(lines):
            canvas.write(first + line_number, column + 2, line, style if line_number == 0 else "")
        if self._out_of(vertex):
            exit_cell = self._cell(self.layer_at[number] + self.layer_size[number] - 1, self.exits[vertex])
            canvas.write(*exit_cell, "┬" if self.down else "├")

    def _paint_end(self, canvas: Canvas, segment: Segment) -> None:
        """Draw the head of an arrow and the stream's label, where a stream arrives at a component."""
        if self._is_bend(segment.target):
            return
        label = self.labels[segment.stream]
        row, column = self._cell(self.layer_at[self.layering.layer_of(segment.target)] - 1, self.entries[segment])
        if self.down:
            canvas.write(row, column, "▼", LINE)
            canvas.write(row - 1, column - cell_len(label) // 2, label)
        else:
            canvas.write(row, column, "►", LINE)
            canvas.write(row, column - 3 - cell_len(label), f" {label} ")


def seat(wanted: Sequence[int], steps: Sequence[int], room: range, barred: Sequence[set[int]]) -> list[int] | None:
    """Return places in `room` for entries in order, each in the middle of its step of room, near the wanted ones.

    An entry never gets a place that is barred to it; None if there is no such arrangement.
    """

    @cache
    def best(entry: int, start: int) -> tuple[float, tuple[int, ...]]:
        if entry == len(wanted):
            return 0.0, ()
        if start + sum(steps[entry:]) > room.stop:
            return float("inf"), ()
        later = best(entry, start + 1)
        place = start + steps[entry] // 2
        if place in barred[entry]:
            return later
        cost, rest = best(entry + 1, start + steps[entry])
        cost += abs(place - wanted[entry])
        return (cost, (place, *rest)) if cost <= later[0] else later

    for start in reversed(room):  # fills the cache from the far end, so that recursion stays shallow
        for entry in range(len(wanted)):
            best(entry, start)
    cost, places = best(0, room.start)
    return list(places) if cost < float("inf") else None


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _listing(topology: Topology, width: int) -> list[Text]:
    """Return the components one below the other, each with the streams that leave it."""
    lines: list[Text] = []
    styles = _styles(topology)
    for position in topology.order:
        component = topology.components[position]
        name, kind, *rest = card(component, narrow=False)
        text = Text().append(crop(name, width), styles[component.name])
        room = width - cell_len(text.plain) - 2
        lines.append(text.append("  " + crop("  ".join([kind, *rest]), room)) if room > 3 else text)
        leaving = [stream for stream in topology.streams if stream.source == component.name]
        for stream in leaving:
            branch = "└" if stream is leaving[-1] else "├"
            lines.append(Text(crop(f" {branch}► {stream.target}  {stream_label(stream)}", width), style=LINE))
    return lines
