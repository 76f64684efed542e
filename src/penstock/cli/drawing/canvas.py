"""A sheet of terminal cells: text, boxes, and lines that join into box-drawing characters where they meet.

Lines have owners. Lines of one owner join where they meet; if lines of different owners cross, the vertical one is
drawn over the horizontal one, so that a crossing cannot be taken for a junction.
"""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8

_GLYPHS = {
    UP: "│",
    DOWN: "│",
    UP | DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
    LEFT | RIGHT: "─",
    DOWN | RIGHT: "╭",
    DOWN | LEFT: "╮",
    UP | RIGHT: "╰",
    UP | LEFT: "╯",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
}


def clean(text: str) -> str:
    """Return a text without characters that would move the cursor or break a line."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def crop(text: str, width: int) -> str:
    """Return a text of at most `width` cells, fit for a terminal; what is cut off shows as an ellipsis."""
    shown = clean(text)
    return shown if cell_len(shown) <= width else set_cell_size(shown, max(width - 1, 0)).rstrip() + "…"


def pad(text: str, width: int) -> str:
    """Return a text of exactly `width` cells, cropped or filled with blanks."""
    return set_cell_size(crop(text, width), width)


def wrapped(parts: Sequence[str], width: int, style: str = "dim") -> list[Text]:
    """Return parts joined by dots, on as few lines as hold them."""
    rows: list[str] = []
    for part in parts:
        shown = crop(part, width)
        if rows and cell_len(rows[-1]) + 3 + cell_len(shown) <= width:
            rows[-1] += f" · {shown}"
        else:
            rows.append(shown)
    return [Text(row, style=style) for row in rows]


class Canvas:
    """Cells by row and column, growing downwards and to the right as they are drawn on."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], tuple[str, str]] = {}
        self._lines: dict[tuple[int, int], dict[int, int]] = {}

    def write(self, row: int, column: int, text: str, style: str = "") -> None:
        """Put a text into a row; a wide character takes two cells, a combining one none of its own."""
        for character in text:
            width = cell_len(character)
            if width == 0:
                before, its_style = self._cells.get((row, column - 1), ("", style))
                self._cells[row, column - 1] = (before + character, its_style)
                continue
            self._cells[row, column] = (character, style)
            if width == 2:
                self._cells[row, column + 1] = ("", style)
            column += width

    def box(self, row: int, column: int, height: int, width: int, style: str) -> None:
        """Draw a frame and clear what is inside it."""
        self.write(row, column, "╭" + "─" * (width - 2) + "╮", style)
        for inner in range(row + 1, row + height - 1):
            self.write(inner, column, "│" + " " * (width - 2) + "│", style)
        self.write(row + height - 1, column, "╰" + "─" * (width - 2) + "╯", style)

    def line(self, start: tuple[int, int], end: tuple[int, int], owner: int) -> None:
        """Draw a horizontal or vertical line between two cells, both included."""
        (row, column), (last_row, last_column) = sorted((start, end))
        assert row == last_row or column == last_column, "lines run along rows or columns"
        if row == last_row:
            cells, back, on = [(row, c) for c in range(column, last_column + 1)], LEFT, RIGHT
        else:
            cells, back, on = [(r, column) for r in range(row, last_row + 1)], UP, DOWN
        for number, cell in enumerate(cells):
            arms = (back if number else 0) | (on if number < len(cells) - 1 else 0)
            owners = self._lines.setdefault(cell, {})
            owners[owner] = owners.get(owner, 0) | arms

    def lines(self, style: str = "") -> list[Text]:
        """Return what was drawn, row by row; `style` is that of the lines."""
        cells = {cell: (_glyph(list(owners.values())), style) for cell, owners in self._lines.items()}
        cells |= self._cells
        rows: dict[int, dict[int, tuple[str, str]]] = {}
        for (row, column), cell in cells.items():
            rows.setdefault(row, {})[column] = cell
        return [_text(rows.get(row, {})) for row in range(max(rows, default=-1) + 1)]


def _glyph(arms: Sequence[int]) -> str:
    if len(arms) > 1 and any(arm in (UP, DOWN, UP | DOWN) for arm in arms):
        return "│"
    joined = 0
    for arm in arms:
        joined |= arm
    return _GLYPHS.get(joined, " ")


def _text(cells: dict[int, tuple[str, str]]) -> Text:
    line = Text(no_wrap=True)
    for column in range(max(cells, default=-1) + 1):
        character, style = cells.get(column, (" ", ""))
        line.append(character, style or None)
    line.rstrip()
    return line
