"""An application as SVG: components as boxes in layers from left to right, streams as curves as wide as traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.cli.colours import component_colours
from penstock.cli.drawing.facts import facts_in_words, stream_bytes
from penstock.cli.drawing.layers import Layering, arrange, layer
from penstock.cli.drawing.topology import card, stream_label
from penstock.cli.formatting import plural
from penstock.cli.output import duration, size
from penstock.cli.svg.elements import INK, MARGIN, Page, shortened, text_width, widest
from penstock.model.topology import Component, Kind, Stream, Topology

EDGES = {Kind.SOURCE: "#2f9e5b", Kind.OPERATOR: "#52606d", Kind.SINK: "#a6479a"}
STREAM = "#8794a3"
TOP = 64  # the title's room
APART = 28  # between boxes of one layer
ENTRY = 24  # between streams that arrive at one box
BEND = 12
ARROW = 10
NAME_WIDTH = 220
THINNEST, THICKEST = 1.5, 7.0


def topology_svg(topology: Topology) -> bytes:
    """Return the drawing of an application as an SVG file."""
    picture = Picture(topology)
    page = Page(topology.name)
    page.text(MARGIN, 34, topology.name, points=18, bold=True)
    for which, stream in enumerate(topology.streams):
        picture.draw_stream(page, which, stream)
    for position, component in enumerate(topology.components):
        picture.draw_component(page, position, component)
    page.facts(picture.bottom + 36, [*facts_in_words(topology), "the wider a line, the more bytes it carries"])
    return page.finish()


@dataclass(frozen=True)
class Picture:
    """Where the boxes and curves of an application go, in pixels."""

    topology: Topology

    @cached_property
    def layering(self) -> Layering:
        """The topology in layers."""
        return layer(self.topology)

    @cached_property
    def colours(self) -> dict[str, str]:
        """The colour of every component."""
        return component_colours(self.topology.index)

    @cached_property
    def heights(self) -> list[int]:
        """The height of every box; of a bend, the room for a line."""
        arriving = [0] * len(self.topology.components)
        for stream in self.topology.streams:
            arriving[self.topology.index[stream.target]] += 1
        boxes = [
            max(66 + 15 * bool(c.resources), ENTRY * count + 10)
            for c, count in zip(self.topology.components, arriving, strict=True)
        ]
        return boxes + [BEND] * (self.layering.vertices - len(boxes))

    @cached_property
    def tops(self) -> list[int]:
        """The upper edge of every box and bend."""
        return [TOP + start for start in arrange(self.layering, self.heights, APART)]

    @cached_property
    def columns(self) -> list[tuple[float, float]]:
        """The left edge and the width of every layer."""
        columns, left = [], float(MARGIN)
        for listed in self.layering.layers:
            boxes = [self.topology.components[v] for v in listed if v < self.layering.components]
            width = max((widest(_words(component), 12, bold=True) + 24 for component in boxes), default=40.0)
            columns.append((left, width))
            left += width + self._gap_behind(listed)
        return columns

    @property
    def bottom(self) -> float:
        """The lowest edge of all boxes."""
        return max(top + height for top, height in zip(self.tops, self.heights, strict=True))

    def _gap_behind(self, listed: Sequence[int]) -> float:
        into = [s for s, r in zip(self.topology.streams, self.layering.routes, strict=True) if r[-2] in listed]
        return widest([stream_label(stream) for stream in into], 11) + 84

    @cached_property
    def entries(self) -> dict[int, float]:
        """The positions at which streams arrive on their target's edge, in order."""
        found: dict[int, float] = {}
        for position in range(len(self.topology.components)):
            arriving = [n for n, route in enumerate(self.layering.routes) if route[-1] == position]
            arriving.sort(key=lambda n: (self._middle(self.layering.routes[n][-2]), n))
            first = self._middle(position) - ENTRY * (len(arriving) - 1) / 2
            found.update((n, first + ENTRY * place) for place, n in enumerate(arriving))
        return found

    @cached_property
    def traffic(self) -> dict[str, float]:
        """The bytes per source tuple of every stream, by its label."""
        return stream_bytes(self.topology)

    def _middle(self, vertex: int) -> float:
        return self.tops[vertex] + self.heights[vertex] / 2

    def draw_component(self, page: Page, position: int, component: Component) -> None:
        """Put a component's box on the page."""
        fill, edge = self.colours[component.name], EDGES[component.kind]
        left, width = self.columns[self.layering.layer_of(position)]
        top = self.tops[position]
        page.rectangle(
            (left, top, width, self.heights[position]), fill=fill, stroke=edge, tip=_tip(component), kind="component"
        )
        name, *rest = _words(component)
        y = self._middle(position) - (len(rest) * 15) / 2 + 4
        page.text(left + 12, y, name, bold=True, colour=INK)
        for place, words in enumerate(rest, 1):
            page.text(left + 12, y + 16 * place, words, points=11, colour=INK)

    def draw_stream(self, page: Page, which: int, stream: Stream) -> None:
        """Put a stream's curve, its arrow and its label on the page."""
        source, *bends, target = self.layering.routes[which]
        label, y = stream_label(stream), self.entries[which]
        left, width = self.columns[self.layering.layer_of(source)]
        data = [f"M{left + width:.1f},{self._middle(source):.1f}"]
        at = (left + width, self._middle(source))
        for bend in bends:
            left, width = self.columns[self.layering.layer_of(bend)]
            data.append(_curve(at, (left, self._middle(bend))) + f" H{left + width:.1f}")
            at = (left + width, self._middle(bend))
        end = self.columns[self.layering.layer_of(target)][0] - ARROW
        label_start = end - text_width(label, 11) - 10
        data.append(_curve(at, (label_start, y)) + f" H{end:.1f}")
        carried, most = self.traffic[stream.label], max(self.traffic.values())
        thick = THINNEST + (THICKEST - THINNEST) * (carried / most if most else 0.0)
        tip = f"{stream.label}: {label}, {size(stream.tuple_bytes)} per tuple, {size(carried)} per source tuple" + (
            f", by {', '.join(stream.keys)}" if stream.keys else ""
        )
        page.path(" ".join(data), stroke=STREAM, width=thick, arrow=True, tip=tip, kind="stream")
        page.text(end - 4, y - thick / 2 - 3, label, points=11, anchor="end", halo=True)


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a curve that leaves and arrives level."""
    half = (start[0] + end[0]) / 2
    return f"C{half:.1f},{start[1]:.1f} {half:.1f},{end[1]:.1f} {end[0]:.1f},{end[1]:.1f}"


def _words(component: Component) -> list[str]:
    return card(component, False, lambda text: shortened(text, 12, NAME_WIDTH, bold=True))


def _tip(component: Component) -> str:
    lines = [
        f"{component.name}: {component.kind}, {plural(component.parallelism, 'task')}",
        f"{duration(component.cpu)} per tuple on a core of speed 1, {size(component.memory_mb * 1e6)} per task",
        f"processing times {component.service.distribution}",
    ]
    lines += [f"{name} {amount:.3g} per tuple" for name, amount in component.resources.items()]
    return "; ".join(lines)
