"""The utilisation of a cluster, on a terminal: a bar for every machine and every link, in columns."""

from collections.abc import Mapping

from rich.cells import cell_len
from rich.text import Text

from penstock.cli.drawing.canvas import pad
from penstock.cli.drawing.network import in_columns
from penstock.cli.formatting import bandwidth
from penstock.model.cluster import Cluster

Fullness = Mapping[str, float | None]
"""By element, the share that is in use; None if it has failed."""

BAR = 10  # cells
BESIDE = 40  # cells that a line has beside the name
MOST = 60  # machines, and links, that are drawn; of more, the fullest
FULL, HIGH = 0.999, 0.8  # minimum shares of red and yellow bars


def draw_usage(cluster: Cluster, used: Fullness, width: int) -> list[Text]:
    """Return the drawing, line by line, none wider than `width` cells."""
    machines = {machine.name: f"{machine.cores} × {machine.speed:.3g}" for machine in cluster.machines}
    lines = [Text("machines", style="dim"), *draw_bars(machines, used, width)]
    if cluster.routed:
        links = {link.label: bandwidth(link.bandwidth_mbps) for link in cluster.links}
        lines += [Text("links", style="dim"), *draw_bars(links, used, width)]
    return lines


def draw_bars(elements: Mapping[str, str], used: Fullness, width: int) -> list[Text]:
    """Return a bar for every element, with what each is like; of many, for the fullest."""
    names = sorted(elements, key=lambda name: -amount(used.get(name)))[:MOST] if len(elements) > MOST else elements
    longest = max(
        min(cell_len(name), max(12, width - BESIDE)) for name in names
    )  # never cropped, so that it can be copied
    widest = max(len(elements[name]) for name in names)
    entries = []
    for name in names:
        entry = Text("  ").append(pad(name, longest), "bold").append(" ").append_text(bar(used.get(name, 0.0)))
        entries.append(entry.append("  " + elements[name].rjust(widest), "dim"))
    lines = in_columns(entries, width)
    left = len(elements) - len(entries)
    return [*lines, Text(f"  and {left} that are less full", style="dim")] if left else lines


def bar(share: float | None) -> Text:
    """Return a bar of fixed width, and its share in words."""
    if share is None:
        return Text("╳" * BAR + " failed", style="red")
    filled = min(BAR, round(share * BAR)) or int(share >= 0.005)
    made = Text().append("█" * filled, colour(share)).append("░" * (BAR - filled), "bright_black")
    return made.append(f"{share:>5.0%}  ")


def colour(share: float) -> str:
    """Return the colour of a used share."""
    return "red" if share >= FULL else "yellow" if share >= HIGH else "green"


def amount(share: float | None) -> float:
    """Return a share that sorts failed elements before full ones."""
    return 2.0 if share is None else share
