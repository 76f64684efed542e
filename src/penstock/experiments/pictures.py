"""Style of the pictures of reproductions: axes with units, means with their spread, distinguishable curves.

Curves may overlap, so colour alone does not distinguish them: each colour has a marker and a dash of its own.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.model.files import write_whole
from penstock.model.taskgraph import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture
else:  # matplotlib takes long to import, and tasks on Spark draw nothing
    Axes = Picture = Any

__all__ = [
    "COLOURS",
    "Axes",
    "Picture",
    "bars_beside",
    "blank",
    "curve_style",
    "finish",
    "label",
    "number_powers",
    "shade",
    "write_picture",
]  # fmt: skip

COLOURS = ("#4878a8", "#d1603d", "#5b9a68", "#8a6bb1", "#b8860b", "#4aa3a2", "#b0506f", "#666666", "#9c755f")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))  # curves may lie on one another
SHADE = 0.1  # opacity of the spread around a mean


def blank(width: float, height: float, layout: Literal["constrained"] | None = None) -> Picture:
    """Return an empty picture, its size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def write_picture(picture: Picture, path: Path) -> Path:
    """Write a picture atomically, in the format of its suffix."""
    drawn = BytesIO()
    picture.savefig(drawn, dpi=140, format=path.suffix.lstrip(".").lower())
    write_whole(path, drawn.getvalue())
    return path


def curve_style(colour: str) -> dict[str, Any]:
    """Return colour, marker and dash of a curve; hollow markers keep overlapping ones visible."""
    number = COLOURS.index(colour) if colour in COLOURS else 0
    own = {"color": colour, "marker": MARKS[number], "linestyle": DASHES[number % len(DASHES)]}
    return {**own, "markerfacecolor": "none", "markersize": 4.0, "linewidth": 1.3}


def shade(axis: Axes, across: Any, mean: Floats, spread: Floats, colour: str) -> None:
    """Shade one standard deviation around means, but not down to 0, because an axis may be logarithmic."""
    low = np.maximum(mean - spread, mean / 10)
    axis.fill_between(across, low, mean + spread, color=colour, alpha=SHADE, linewidth=0)


def label(axis: Axes, across: str, up: str, title: str = "") -> None:
    """Label an axis and remove distracting lines."""
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.set_title(title, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)


def finish(
    axis: Axes, across: str = "", up: str = "", title: str = "", legend: bool = True, below: bool = False
) -> None:
    """Label an axis and its curves; below: put the legend below the axis."""
    label(axis, across, up, title)
    if below:
        axis.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    elif legend:
        axis.legend(fontsize=7, frameon=False)


def bars_beside(axis: Axes, number: int, several: int, heights: Sequence[float] | Floats, **style: Any) -> None:
    """Draw one of several series of bars, which stand beside each other in groups: one of a series in each."""
    width = 0.8 / several
    across = np.arange(len(heights)) + (number - (several - 1) / 2) * width
    axis.bar(across, heights, 0.9 * width, error_kw={"linewidth": 0.8}, **style)


def number_powers(axis: Any, subs: Sequence[float], text: str) -> None:
    """Number a logarithmic axis at multiples of the powers of ten, and nowhere else."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(text)
    axis.set_minor_formatter("")
