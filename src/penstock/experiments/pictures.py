"""Style of the pictures of reproductions: axes with units, means with their spread, distinguishable curves.

Curves may overlap, so colour alone does not distinguish them: each colour has a marker and a dash of its own.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.model.taskgraph import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#4878a8", "#d1603d", "#5b9a68", "#8a6bb1", "#b8860b", "#4aa3a2", "#b0506f", "#666666", "#9c755f")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))
SHADE = 0.1  # opacity of the spread around a mean


def deviation(values: Floats) -> float:
    """Return the standard deviation of single runs; 0 for a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def look(colour: str) -> dict[str, Any]:
    """Return colour, marker and dash of a curve; hollow markers keep overlapping ones visible."""
    number = COLOURS.index(colour) if colour in COLOURS else 0
    own = {"color": colour, "marker": MARKS[number], "linestyle": DASHES[number % len(DASHES)]}
    return {**own, "markerfacecolor": "none", "markersize": 4.0, "linewidth": 1.3}


def shade(axis: "Axes", across: Any, mean: Floats, spread: Floats, colour: str) -> None:
    """Shade one standard deviation around means, but not down to 0, because an axis may be logarithmic."""
    low = np.maximum(mean - spread, mean / 10)
    axis.fill_between(across, low, mean + spread, color=colour, alpha=SHADE, linewidth=0)


def label(axis: "Axes", across: str, up: str, title: str = "") -> None:
    """Label an axis and remove distracting lines."""
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.set_title(title, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)
