"""Networks in REPETITA's format: nodes with coordinates, directed edges with bandwidth and delay (Gay et al. 2017).

The Topology Zoo and Rocketfuel graphs use this format. It does not describe computing capacity, so the caller provides
it. Bandwidths are in kbit/s. Delays are in microseconds, the format's unit; Rocketfuel graphs in practice contain
milliseconds (Brisbane to Townsville is 7), for which there is `delay_unit_ms=1.0`.
"""

import re
from itertools import count
from pathlib import Path
from typing import NamedTuple

from penstock.model.cluster import NEAR, Cluster, Link, Machine
from penstock.model.errors import FileProblem
from penstock.model.files import read_text
from penstock.model.formats.reading import bad_line, naming, parse_number, parse_whole_number

KILOBIT = 1e-3  # in Mbit
MICROSECOND = 1e-3  # in ms
NODE_FIELDS = 3  # label x y
EDGE_FIELDS = 6  # label src dest weight bw delay

_REFUSED = re.compile(r"[\s/\[\]]+")  # characters that a `Name` cannot contain


class _Line(NamedTuple):
    number: int  # from 1
    text: str


def read_network(
    path: str | Path,
    cores: int = 4,
    speed: float = 1.0,
    memory_mb: float = 4096.0,
    slots: int = 4,
    delay_unit_ms: float = MICROSECOND,
) -> Cluster:
    """Read a `.graph` file: every node becomes a machine named by its label, every edge a directed link.

    Invalid characters of a name become `_`; duplicate labels get a number. Edges with the same source and target become
    one link with the sum of their bandwidths and the maximum of their delays: a stream between two machines takes one
    route and cannot distinguish parallel edges.
    """
    path = Path(path)
    lines = [_Line(n, text.strip()) for n, text in enumerate(read_text(path).splitlines(), 1) if text.strip()]
    nodes, rest = _section(path, lines, "NODES", NODE_FIELDS)
    edges, rest = _section(path, rest, "EDGES", EDGE_FIELDS)
    if rest:
        raise bad_line(path, rest[0].number, f"expected the end after {len(edges)} edges, got {rest[0].text[:40]!r}")
    names = _names([_fields(path, line, NODE_FIELDS)[0] for line in nodes])
    with naming(path):
        return Cluster(
            name=_names([path.stem])[0],
            machines=tuple(
                Machine(name=name, cores=cores, speed=speed, memory_mb=memory_mb, slots=slots) for name in names
            ),
            links=_links(path, edges, names, delay_unit_ms),
            distances=NEAR,
        )


def _section(path: Path, lines: list[_Line], title: str, fields: int) -> tuple[list[_Line], list[_Line]]:
    """Split off a section: its title with a count, a line of column names, and the counted lines."""
    if len(lines) < 2:
        raise FileProblem(f"{path}: expected a line '{title} n' and one of column names, got the end of the file")
    words = lines[0].text.split()
    if len(words) != 2 or words[0] != title:
        raise bad_line(path, lines[0].number, f"expected '{title} n', got {lines[0].text[:40]!r}")
    size = parse_whole_number(path, lines[0].number, title, words[1], least=1 if title == "NODES" else 0)
    if lines[1].text.split()[0] != "label" or len(lines[1].text.split()) != fields:
        raise bad_line(path, lines[1].number, f"expected {fields} column names from 'label' on, got {lines[1].text!r}")
    body, rest = lines[2 : 2 + size], lines[2 + size :]
    if len(body) < size:
        raise FileProblem(f"{path}: {title} promises {size} lines, the file has {len(body)}; correct the number")
    return body, rest


def _fields(path: Path, line: _Line, size: int) -> list[str]:
    fields = line.text.rsplit(None, size - 1)  # a label may contain spaces
    if len(fields) != size:
        raise bad_line(path, line.number, f"expected {size} fields, got {line.text[:40]!r}")
    return fields


def _names(labels: list[str]) -> list[str]:
    names: dict[str, None] = {}
    for label in labels:
        name = _REFUSED.sub("_", label)[:180]
        names[next(n for k in count(1) if (n := name if k == 1 else f"{name}-{k}") not in names)] = None
    return list(names)


def _links(path: Path, edges: list[_Line], names: list[str], delay_unit_ms: float) -> tuple[Link, ...]:
    links: dict[tuple[int, int], Link] = {}
    for line in edges:
        _, source_text, target_text, _, bandwidth, delay = _fields(path, line, EDGE_FIELDS)
        source = parse_whole_number(path, line.number, "src", source_text)
        target = parse_whole_number(path, line.number, "dest", target_text)
        for field, node in (("src", source), ("dest", target)):
            if node >= len(names):
                raise bad_line(path, line.number, f"{field}: expected a node from 0 to {len(names) - 1}, got {node}")
        if source == target:
            raise bad_line(path, line.number, f"dest: expected another node than src {source}")
        link = Link(
            source=names[source],
            target=names[target],
            bandwidth_mbps=parse_number(path, line.number, "bw", bandwidth, least=0.0) * KILOBIT,
            latency_ms=parse_number(path, line.number, "delay", delay, least=0.0) * delay_unit_ms,
            directed=True,
        )
        links[source, target] = _merged(links[source, target], link) if (source, target) in links else link
    return tuple(links.values())


def _merged(one: Link, other: Link) -> Link:
    return Link(
        source=one.source,
        target=one.target,
        bandwidth_mbps=one.bandwidth_mbps + other.bandwidth_mbps,
        latency_ms=max(one.latency_ms, other.latency_ms),
        directed=True,
    )
