"""A routed network on a terminal: who is joined to whom, and how fast.

A small network is drawn as a matrix of bandwidths and the list of its links; a larger one as kinds of nodes and what
joins them. Nodes are of one kind if their neighbourhoods are alike: machines or switches at first, then
distinguished by the kinds of their neighbours, repeatedly while there are few kinds (colour refinement). This finds the
levels of a fat-tree.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from penstock.cli.drawing.canvas import crop, pad
from penstock.cli.drawing.facts import degrees
from penstock.cli.formatting import bandwidth, between, fails, plural, span
from penstock.model.cluster import Cluster, Link

SMALL = 16  # nodes that a matrix has room for
LISTED = 40  # links that a person reads one by one
BUNDLES = 10  # of links; more would be no summary
ROUNDS = 4
NAME_CELLS = 24


def network_lines(cluster: Cluster, width: int) -> list[Text]:
    """Return the drawing of a cluster's links, line by line, none wider than `width` cells."""
    lines: list[Text] = []
    if len(cluster.node_index) <= SMALL:
        lines += _matrix(cluster, width)
    if len(cluster.links) <= LISTED:
        return [*lines, *([Text()] if lines else []), *_list(cluster, width)]
    return [*lines, *([Text()] if lines else []), *_summary(cluster, width)]


def node_kinds(cluster: Cluster) -> dict[str, int]:
    """Return the kind of every node, numbered from 0 in the order in which kinds are met."""
    neighbours: dict[str, list[str]] = {name: [] for name in cluster.node_index}
    for link in cluster.links:
        neighbours[link.source].append(link.target)
        neighbours[link.target].append(link.source)
    kinds = {name: int(name not in cluster.machine_index) for name in cluster.node_index}
    for _ in range(ROUNDS):
        refined: dict[tuple[int, tuple[int, ...]], int] = {}
        finer = {
            name: refined.setdefault((kinds[name], tuple(sorted(kinds[other] for other in joined))), len(refined))
            for name, joined in neighbours.items()
        }
        if len(_bundles(cluster.links, finer)) > BUNDLES:
            break
        kinds = finer
    return kinds


def _matrix(cluster: Cluster, width: int) -> list[Text]:
    """Return bandwidths from row to column; none if that would be too wide."""
    nodes = list(cluster.node_index)
    between: dict[tuple[str, str], float] = defaultdict(float)
    for link in cluster.links:
        between[link.source, link.target] += link.bandwidth_mbps
        if not link.directed:
            between[link.target, link.source] += link.bandwidth_mbps
    values = {pair: _short(amount) for pair, amount in between.items()}
    for numbered in (False, True):
        rows = [f"{place} {name}" if numbered else name for place, name in enumerate(nodes, 1)]
        heads = [str(place) if numbered else crop(name, NAME_CELLS) for place, name in enumerate(nodes, 1)]
        first = max(len("Mbit/s"), *(min(cell_len(row), NAME_CELLS) for row in rows))
        widths = [
            max(cell_len(head), *(len(values.get((row, column), "")) for row in nodes)) + 2
            for head, column in zip(heads, nodes, strict=True)
        ]
        if first + sum(widths) <= width:
            return _matrix_lines(cluster, rows, heads, values, first, widths)
    return []


def _matrix_lines(
    cluster: Cluster,
    rows: Sequence[str],
    heads: Sequence[str],
    values: Mapping[tuple[str, str], str],
    first: int,
    widths: Sequence[int],
) -> list[Text]:
    nodes = list(cluster.node_index)
    line = Text(pad("Mbit/s", first), style="dim")
    for head, cells in zip(heads, widths, strict=True):
        line.append(" " * (cells - cell_len(head)) + head)
    lines = [line]
    for node, label in zip(nodes, rows, strict=True):
        line = Text().append(pad(label, first), "bold cyan" if node in cluster.machine_index else "yellow")
        for other, cells in zip(nodes, widths, strict=True):
            value = values.get((node, other), "╲" if node == other else "·")
            line.append(value.rjust(cells), "" if (node, other) in values else "bright_black")
        lines.append(line)
    return lines


def _list(cluster: Cluster, width: int) -> list[Text]:
    """Return the links with bandwidth, latency and failure probability, in as many columns as fit."""
    speed = max(len(bandwidth(link.bandwidth_mbps)) for link in cluster.links)
    facts = [
        "  ".join(
            filter(None, (bandwidth(link.bandwidth_mbps).rjust(speed), _latency(link), fails(link.failure_probability)))
        )
        for link in cluster.links
    ]
    room = max(min(NAME_CELLS, (width - max(map(cell_len, facts)) - 6) // 2), 3)  # names are cropped, figures are not
    source = max(min(cell_len(link.source), room) for link in cluster.links)
    target = max(min(cell_len(link.target), room) for link in cluster.links)
    entries = []
    for link, words in zip(cluster.links, facts, strict=True):
        arrow = "─►" if link.directed else "──"
        entries.append(Text(f"{pad(link.source, source)} {arrow} {pad(link.target, target)}  {words}"))
    return in_columns(entries, width)


def _latency(link: Link) -> str:
    return f"{link.latency_ms:.3g} ms"


def in_columns(entries: Sequence[Text], width: int) -> list[Text]:
    """Return entries side by side in columns of equal width, read downwards."""
    widest = max(entry.cell_len for entry in entries)
    columns = max((width + 4) // (widest + 4), 1)
    rows = -(-len(entries) // columns)
    lines = []
    for row in range(rows):
        line = Text()
        for place, entry in enumerate(entries[row::rows]):
            line.append("    " if place else "").append_text(entry).append(" " * (widest - entry.cell_len))
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def _summary(cluster: Cluster, width: int) -> list[Text]:
    """Return the kinds of nodes, then what joins them."""
    kinds, degree = node_kinds(cluster), degrees(cluster)
    members: dict[int, list[str]] = defaultdict(list)
    for name, kind in kinds.items():
        members[kind].append(name)
    lines = [Text("nodes that are joined alike", style="dim")]
    for kind in sorted(members):
        names = members[kind]
        are_machines = names[0] in cluster.machine_index
        what = plural(len(names), "machine") if are_machines else plural(len(names), "switch", "switches")
        style = "bold cyan" if are_machines else "yellow"
        line = Text(f"  {what:<13} ").append(pad(span(names), 2 * NAME_CELLS), style)
        line.append(f"  {_range([degree[name] for name in names])} each")
        lines.append(line)
    lines += [Text(), Text("links between them", style="dim")]
    lines += [_bundle(ends, links, members) for ends, links in _bundles(cluster.links, kinds).items()]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _bundles(links: Sequence[Link], kinds: Mapping[str, int]) -> dict[tuple[int, int], list[Link]]:
    bundles: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in links:
        low, high = sorted((kinds[link.source], kinds[link.target]))
        bundles[low, high].append(link)
    return dict(sorted(bundles.items()))


def _bundle(ends: tuple[int, int], links: Sequence[Link], members: Mapping[int, list[str]]) -> Text:
    line = Text(f"  {plural(len(links), 'link'):<10} ")
    line.append(crop(span(members[ends[0]]), NAME_CELLS)).append(" ── ", "bright_black")
    line.append(crop(span(members[ends[1]]), NAME_CELLS))
    speeds = sorted({link.bandwidth_mbps for link in links})
    latencies = sorted({link.latency_ms for link in links})
    often = sorted({link.failure_probability for link in links})
    facts = [between([bandwidth(speed) for speed in speeds]), between([f"{delay:.3g} ms" for delay in latencies])]
    facts += [between([fails(probability) or "never fails" for probability in often])] if often[-1] else []
    return line.append(f"  {', '.join(facts)}")


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return plural(low, "link") if low == high else f"{low} to {high} links"


def _short(amount: float) -> str:
    return f"{amount:.3g}" if amount < 1000 else f"{amount / 1000:.3g}k"
