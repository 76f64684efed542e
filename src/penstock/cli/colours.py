"""The colour of every component, the same in all drawings: applications and plans, as SVG and on a terminal.

The colours are Paul Tol's "light" scheme, which people with any kind of colour vision can distinguish, and on which
dark text is readable. A colour follows from the name: components are sorted by name, and each gets the colour that its
name hashes to, or the next free one. Neither the plan nor the order in which an application lists its components
matters.
"""

from collections.abc import Iterable
from zlib import crc32

STRONG = ("#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00")
PALE = ("#c9ddf1", "#f8cfc1", "#b4e4d6", "#f8f1cf", "#ffdde4", "#d6f1ff", "#e4ebad", "#dddd99")
COLOURS = STRONG + PALE


def component_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for every component; no two share one while there are colours left, the strong ones first."""
    chosen: dict[str, str] = {}
    free: list[str] = []
    for number, name in enumerate(sorted(set(names))):
        if not free:
            free = list(PALE if number == len(STRONG) else STRONG)
        wanted = crc32(name.encode()) % len(STRONG)
        ring = PALE if free[0] in PALE else STRONG
        chosen[name] = next(c for c in (*ring[wanted:], *ring[:wanted]) if c in free)
        free.remove(chosen[name])
    return chosen
