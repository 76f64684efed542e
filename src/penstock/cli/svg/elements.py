"""The pieces of an SVG drawing: rectangles, texts, lines, each with its tooltip; the colours of utilisation.

Pages are complete in themselves: no fonts, scripts or styles from elsewhere. Text is measured by a rule of thumb, on
the wide side, since the reader's font is not known. Colours go from pale for low utilisation to red for full; failed
elements are grey.
"""

from collections.abc import Sequence
from math import hypot
from typing import Any
from xml.etree import ElementTree as Tree

from rich.cells import cell_len

from penstock.cli.drawing.canvas import clean, wrapped
from penstock.cli.drawing.usage import Fullness

INK, MUTED, FAINT, PAPER = "#1f2933", "#616e7c", "#cbd2d9", "#ffffff"
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
MARGIN = 24
LEAST_WIDTH = 620  # of lines of text
ARROW = 10  # the length of an arrow's head
LINE_HEIGHT = 1.4  # of the font's size


Box = tuple[float, float, float, float]  # left, top, width, height


class Page:
    """A drawing in the making; it grows to hold what is put on it."""

    def __init__(self, title: str) -> None:
        self._root = Tree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": FONT})
        Tree.SubElement(self._root, "title").text = clean(title)
        self._definitions = Tree.SubElement(self._root, "defs")
        self._paper = Tree.SubElement(self._root, "rect", {"fill": PAPER})
        self._width = self._height = 0.0

    def rectangle(
        self,
        place: Box,
        *,
        fill: str = PAPER,
        stroke: str = "none",
        stroke_width: float = 1,
        dashed: bool = False,
        round_by: float = 6,
        tip: str = "",
        kind: str = "",
    ) -> None:
        """Put a rectangle on the page."""
        x, y, width, height = place
        self._reach(x + width, y + height)
        where = {"x": _n(x), "y": _n(y), "width": _n(width), "height": _n(height), "rx": _n(round_by)}
        how = {"fill": fill, "stroke": stroke} | ({"stroke-width": _n(stroke_width)} if stroke_width != 1 else {})
        self._add("rect", {**where, **how, **({"stroke-dasharray": "3 2"} if dashed else {})}, tip, kind)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        points: float = 12,
        colour: str = INK,
        bold: bool = False,
        anchor: str = "start",
        halo: bool = False,
    ) -> None:
        """Put a line of text on the page; `y` is its base line, `anchor` says which end of it `x` is."""
        width = text_width(words, points, bold)
        self._reach(x + {"start": width, "middle": width / 2, "end": 0.0}[anchor], y + points / 3)
        attributes = {"x": _n(x), "y": _n(y), "font-size": _n(points), "fill": colour, "text-anchor": anchor}
        if bold:
            attributes["font-weight"] = "bold"
        if halo:
            attributes |= {"stroke": PAPER, "stroke-width": "4", "stroke-linejoin": "round", "paint-order": "stroke"}
        Tree.SubElement(self._root, "text", attributes).text = clean(words)

    def path(
        self,
        data: str,
        *,
        stroke: str,
        width: float,
        arrow: bool = False,
        dashed: bool = False,
        tip: str = "",
        kind: str = "",
    ) -> None:
        """Put a line on the page, along an SVG path."""
        attributes = {
            "d": data,
            "fill": "none",
            "stroke": stroke,
            "stroke-width": _n(width),
            "stroke-linejoin": "round",
        }
        if arrow:
            attributes["marker-end"] = f"url(#{self._arrow_head(stroke)})"
        if dashed:
            attributes["stroke-dasharray"] = "4 4"
        self._add("path", attributes, tip, kind)

    def line(self, points: Sequence[Sequence[float]], *, width: float, arrow: bool = False, **how: Any) -> None:
        """Put a line on the page from point to point; an arrow's head ends where the line does."""
        (*_, (x1, y1), (x2, y2)) = points
        cut = min(ARROW / (hypot(x2 - x1, y2 - y1) or 1.0), 0.9) if arrow else 0.0
        shown = [*points[:-1], (x2 - cut * (x2 - x1), y2 - cut * (y2 - y1))]
        for x, y in points:
            self._reach(x, y)
        data = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in shown)
        self.path(data, width=width, arrow=arrow, **how)

    def facts(self, y: float, parts: Sequence[str], points: float = 12) -> float:
        """Put facts joined by dots on lines no wider than the page so far; return the position of the next line."""
        room = int((max(self._width, LEAST_WIDTH) - MARGIN) / text_width("n", points))
        for line in wrapped(parts, room):
            self.text(MARGIN, y, line.plain, points=points, colour=MUTED)
            y += points * LINE_HEIGHT
        return y

    def finish(self) -> bytes:
        """Return the page as a file."""
        width, height = self._width + MARGIN, self._height + MARGIN
        size = {"width": _n(width), "height": _n(height)}
        for name, value in {**size, "viewBox": f"0 0 {_n(width)} {_n(height)}"}.items():
            self._root.set(name, value)
        for name, value in size.items():
            self._paper.set(name, value)
        Tree.indent(self._root)
        return bytes(Tree.tostring(self._root, encoding="utf-8", xml_declaration=True)) + b"\n"

    def _add(self, tag: str, attributes: dict[str, str], tip: str, kind: str) -> None:
        element = Tree.SubElement(self._root, tag, {**attributes, **({"class": kind} if kind else {})})
        if tip:
            Tree.SubElement(element, "title").text = clean(tip)

    def _reach(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)

    def _arrow_head(self, colour: str) -> str:
        name = f"arrow-{colour.lstrip('#')}"
        if all(known.get("id") != name for known in self._definitions):
            head = Tree.SubElement(
                self._definitions,
                "marker",
                {"id": name, "viewBox": "0 0 10 12", "refX": "0", "refY": "6", "orient": "auto"}
                | {"markerWidth": "10", "markerHeight": "12", "markerUnits": "userSpaceOnUse"},
            )
            Tree.SubElement(head, "path", {"d": "M0,0 L10,6 L0,12 Z", "fill": colour})
        return name


def text_width(words: str, points: float, bold: bool = False) -> float:
    """Return about how wide a text is, rather too wide than too narrow."""
    return cell_len(clean(words)) * points * (0.68 if bold else 0.6)


def widest(texts: Sequence[str], points: float, bold: bool = False) -> float:
    """Return about how wide the widest of some texts is."""
    return max((text_width(words, points, bold) for words in texts), default=0.0)


def shortened(words: str, points: float, width: float, bold: bool = False) -> str:
    """Return a text that fits into a width, its middle left out if necessary: names often differ at their ends."""
    short, kept = words, len(words)
    while kept > 1 and text_width(short, points, bold) > width:
        kept -= 1
        short = f"{words[: kept - kept // 2]}…{words[len(words) - kept // 2 :]}"
    return short


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


FAILED = "#c4c9cf"
STEPS = (  # by minimum share
    (0.0, "#e3e9f0", "idle"),
    (1e-9, "#b4dfbe", "below 50 %"),
    (0.5, "#6fc184", "50 to 80 %"),
    (0.8, "#f5c96b", "80 to 100 %"),
    (0.999, "#e8785f", "full"),
)


def paint(element: str, used: Fullness | None, otherwise: str) -> str:
    """Return the colour of an element; `otherwise` if utilisation is unknown."""
    if used is None:
        return otherwise
    share = used.get(element, 0.0)
    return FAILED if share is None else step(share)


def step(share: float) -> str:
    """Return the colour of a share in use."""
    return [colour for least, colour, _ in STEPS if share >= least][-1]


def has_failed(element: str, used: Fullness | None) -> bool:
    """Return whether an element is known to have failed."""
    return used is not None and used.get(element, 0.0) is None


def words_of(element: str, used: Fullness | None) -> str:
    """Format the utilisation of an element; empty if it is unknown."""
    if used is None:
        return ""
    share = used.get(element, 0.0)
    return "failed" if share is None else f"{share:.0%} used"


def in_use(element: str, used: Fullness | None) -> str:
    """Format the utilisation as the end of a longer text."""
    words = words_of(element, used)
    return f"; {words}" if words else ""


def draw_legend(page: Page, left: float, top: float, failed: bool = True) -> float:
    """Put the legend of the colours on the page; return its lower edge."""
    x = left
    for colour, words in [*((colour, words) for _, colour, words in STEPS), *([(FAILED, "failed")] if failed else [])]:
        page.rectangle((x, top, 14, 14), fill=colour, stroke=MUTED, round_by=3)
        page.text(x + 20, top + 11, words, points=11, colour=MUTED)
        x += 34 + text_width(words, 11)
    return top + 14
