"""The colours of utilisation: from pale for low to red for full; grey for failed elements."""

from penstock.cli.drawing.usage import Fullness
from penstock.cli.svg.elements import MUTED, Page, text_width

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
        page.rectangle(x, top, 14, 14, fill=colour, stroke=MUTED, round_by=3)
        page.text(x + 20, top + 11, words, points=11, colour=MUTED)
        x += 34 + text_width(words, 11)
    return top + 14
