"""A cluster on a terminal: hosts as frames, machines as rows, slots as cells, bars that compare the machines' cpu.

A cluster of many machines is summarised by groups of equal ones, or of similar ones if few are equal.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec
from rich.cells import cell_len
from rich.text import Text

from penstock.cli.drawing.canvas import clean, crop, pad, wrapped
from penstock.cli.drawing.facts import facts_in_words, machines_by_host, process_sizes
from penstock.cli.drawing.network import network_lines
from penstock.cli.formatting import between, card, fails, plural, span
from penstock.cli.output import number, size
from penstock.model.cluster import Cluster, Machine

MANY = 24  # machines; more are drawn as groups of equal ones
NAME_CELLS = 30
LEAST_BAR, WIDEST_BAR = 6, 30
EIGHTHS = "▏▎▍▌▋▊▉█"
HEADINGS = ("machine", "cores × speed", "memory", "cpu", "slots by process")
FRAME = "bright_black"


class MachineRow(NamedTuple):
    """The row of a machine, or of several machines."""

    name: str
    cores: str
    memory: str
    cpu: float
    cells: str
    slots: str
    rest: str


class Columns(NamedTuple):
    """The widths of the columns, in cells."""

    name: int
    cores: int
    memory: int
    bar: int
    cpu: int
    slots: int
    rest: int


def draw_cluster(cluster: Cluster, width: int) -> list[Text]:
    """Return the drawing, line by line, none wider than `width` cells."""
    lines = [Text(crop(cluster.name, width), style="bold"), Text()]
    groups = _alike(cluster) if len(cluster.machines) > MANY else _by_host(cluster)
    rows = [row for _, members in groups for row in members]
    columns = _columns(rows, width - 4)
    lines.append(_headings(columns, width))
    most = max(row.cpu for row in rows)
    for title, members in groups:
        lines += framed([_row(row, columns, most) for row in members], title, width)
    if not columns.rest:
        lines += wrapped([f"{row.name}: {row.rest}" for row in rows if row.rest], width, style="")
    if cluster.routed:
        lines += [Text(), *network_lines(cluster, width)]
    return [*lines, Text(), *wrapped(facts_in_words(cluster), width)]


def slot_cells(machine: Machine) -> str:
    """Return a machine's slots as cells in brackets, a pair of brackets a process."""
    return "".join(f"[{'□' * slots}]" for slots in process_sizes(machine))


def framed(rows: Sequence[Text], title: str, width: int) -> list[Text]:
    """Return rows in a frame of the whole width, its title in the upper edge."""
    inside = width - 4
    heading = f" {crop(title, inside - 2)} " if title else ""
    rule = "─" * (inside - cell_len(heading) + 1)
    lines = [Text().append("╭─", FRAME).append(heading, "bold").append(f"{rule}╮", FRAME)]
    for row in rows:
        row.truncate(inside, overflow="ellipsis", pad=True)
        lines.append(Text().append("│ ", FRAME).append_text(row).append(" │", FRAME))
    return [*lines, Text("╰" + "─" * (width - 2) + "╯", FRAME)]


def _by_host(cluster: Cluster) -> list[tuple[str, list[MachineRow]]]:
    return [
        (host, [_describe([machine], host) for machine in machines])
        for host, machines in machines_by_host(cluster).items()
    ]


def _alike(cluster: Cluster) -> list[tuple[str, list[MachineRow]]]:
    """Group machines by their resources or, if that makes many groups, by cores and slots."""
    groups, title = _grouped(cluster.machines, _everything), "equal ones together"
    if len(groups) > MANY:
        groups, title = _grouped(cluster.machines, _shape), "by cores and slots, cpu on average"
    rows = [_describe(machines, machines[0].host) for machines in groups.values()]
    return [(f"{plural(len(cluster.machines), 'machine')}, {title}", sorted(rows, key=lambda row: -row.cpu))]


def _grouped(machines: Sequence[Machine], key: Callable[[Machine], Hashable]) -> dict[Hashable, list[Machine]]:
    groups: dict[Hashable, list[Machine]] = {}
    for machine in machines:
        groups.setdefault(key(machine), []).append(machine)
    return groups


def _everything(machine: Machine) -> Hashable:
    return msgspec.json.encode(msgspec.structs.replace(machine, name="any", host=None))


def _shape(machine: Machine) -> Hashable:
    return machine.cores, machine.slots, machine.processes


def _describe(machines: Sequence[Machine], framed_as: str | None) -> MachineRow:
    """Return the row of machines with equal cores and slots; the bar shows their mean cpu."""
    one = machines[0]
    count = f"{len(machines)} × " if len(machines) > 1 else ""
    slots = plural(one.slots, "slot") + (f" in {one.processes}" if one.processes > 1 else "")
    return MachineRow(
        name=count + span([machine.name for machine in machines]),
        cores=f"{one.cores} × {between([f'{machine.speed:.3g}' for machine in sorted(machines, key=_speed)])}",
        memory=between([size(machine.memory_mb * 1e6) for machine in sorted(machines, key=_memory)]),
        cpu=sum(machine.cpu for machine in machines) / len(machines),
        cells=slot_cells(one),
        slots=slots,
        rest=_rest(one, framed_as) if len({_everything(machine) for machine in machines}) == 1 else "",
    )


def _speed(machine: Machine) -> float:
    return machine.speed


def _memory(machine: Machine) -> float:
    return machine.memory_mb


def _columns(rows: Sequence[MachineRow], width: int) -> Columns:
    """Divide the width among columns; the bars get the remainder."""
    name = max(min(max(cell_len(clean(row.name)) for row in rows), NAME_CELLS, max(width // 3, 8)), len(HEADINGS[0]))
    cores = max(cell_len(HEADINGS[1]), *(cell_len(row.cores) for row in rows))
    memory = max(cell_len(HEADINGS[2]), *(cell_len(row.memory) for row in rows))
    cpu = max(cell_len(number(row.cpu)) for row in rows)
    rest = max(cell_len(clean(row.rest)) for row in rows)
    free = width - name - cores - memory - cpu - 2 * (5 if rest else 4) - 1
    cells = max(len("slots"), *(cell_len(row.cells) for row in rows))
    slots = cells if cells + LEAST_BAR <= free else max(cell_len(row.slots) for row in rows)
    rest = rest if rest <= free - slots - LEAST_BAR else 0  # whole, or below the machines
    bar = min(max(free - slots - rest, LEAST_BAR), WIDEST_BAR)
    return Columns(name, cores, memory, bar, cpu, max(slots, min(len(HEADINGS[4]), free - bar - rest)), rest)


def _headings(columns: Columns, width: int) -> Text:
    machine, cores, memory, cpu, slots = HEADINGS
    text = "  " + pad(machine, columns.name) + "  " + pad(cores, columns.cores) + "  " + memory.rjust(columns.memory)
    text += "  " + pad(cpu, columns.bar + columns.cpu + 1) + "  " + (slots if columns.slots >= len(slots) else "slots")
    return Text(crop(text, width), style="dim")


def _row(row: MachineRow, columns: Columns, most: float) -> Text:
    line = Text(no_wrap=True).append(pad(row.name, columns.name), "bold cyan").append("  ")
    line.append(pad(row.cores, columns.cores)).append("  ")
    line.append(row.memory.rjust(columns.memory)).append("  ")
    line.append(pad(_bar(row.cpu / most, columns.bar), columns.bar), "blue").append(" ")
    line.append(number(row.cpu).rjust(columns.cpu)).append("  ")
    shown = row.cells if cell_len(row.cells) <= columns.slots else row.slots
    line.append(pad(shown, columns.slots), "green")
    return line.append("  ").append(crop(row.rest, columns.rest), "dim") if columns.rest else line


def _rest(machine: Machine, framed_as: str | None) -> str:
    """Return uncommon facts of a machine: a named host of their own, a network card that limits, memory a slot, …"""
    parts = [f"on {machine.host}"] if machine.host and machine.host != framed_as else []
    parts += [card(*machine.card_mbps)] if machine.card_mbps else []
    parts += [f"{size(machine.slot_memory_mb * 1e6)} a slot"] if machine.slot_memory_mb else []
    parts += [f"{name} {amount:.3g}" for name, amount in machine.resources.items()]
    parts += [fails(machine.failure_probability)] if machine.failure_probability else []
    return ", ".join(parts)


def _bar(share: float, cells: int) -> str:
    eighths = max(round(share * cells * 8), 1)
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")
