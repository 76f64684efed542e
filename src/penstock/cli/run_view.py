"""The state of a run as a person sees it: the live table, one line for a log, and the summary at the end."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import plural
from penstock.cli.output import duration, number, size, table
from penstock.model.errors import PenstockError
from penstock.model.status import ComponentStatus, MachineStatus, Status
from penstock.runtime.storage.checkpoints import numbers, read_manifest
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import RunInfo

WIDE = 100  # columns of a terminal with room for everything
BAR = 10  # cells of a machine's bar
BLOCKED = 0.01  # share of the time from which on lack of credit is worth a word
STYLES = {
    "starting": "dim",
    "running": "green",
    "recovering": "bold yellow",
    "draining": "yellow",
    "stopped": "bold",
    "failed": "bold red",
}
NAMES = 12  # cells that components' names get at least
GAP = 2  # cells between columns
STEADY = 6  # cells of a column of figures at least, so that it does not jump as they change
NAME_WIDTH = 20  # cells that machines' names may take before they are folded, and more where there is room
FIGURE = 5  # cells of a figure of a machine
LATE = "late"  # the note of a machine whose emulation is
SPARED = ("machines", "out", "tasks", "blocked", "processing", "p50")  # columns that give way to others, in this order
WINDOWED = ("rate", "queue", "out", "blocked")  # columns of the moment: they say nothing of a run that is over
FEWEST_MACHINES = 3  # rows that they get on the lowest terminal


def view(status: Status, width: int, height: int | None = None, note: str = "") -> RenderableType:
    """Draw a run for a terminal of so many columns and, where a height is given, of so many lines."""
    below, safety = _below(status, note), [*_mishaps(status, width), *_safety(status)]
    taken = (
        len(status.components) + 11 + bool(status.tuples.texts) + bool(status.limits) + bool(status.autopilot)
    )  # headings, empty lines, end to end
    taken += sum(1 + len(line) // width for line in [*below, *safety])
    rows = None if height is None else max(height - taken, FEWEST_MACHINES)
    return Group(
        *headline(status),
        Text(),
        _components(status, width),
        Text(),
        *_end_to_end(status, width),
        *safety,
        Text(),
        _machines(status, width, rows),
        *below,
    )


def ended(status: Status) -> bool:
    """Whether the run is over."""
    return status.phase in ("stopped", "failed")


def headline(status: Status) -> list[Text]:
    """Say in two lines what runs since when and under what, and where; below which policies and limits are in force."""
    phase = Text(status.phase, style=STYLES.get(status.phase, "bold"))
    first = Text.assemble((status.application, "bold"), " ", phase, f" {clock(status.seconds)} under {status.policy}")
    policies = ", ".join(f"{name} {text}" for name, text in status.tuples.texts.items())
    further = [policies, limits_line(status.limits), f"autopilot {status.autopilot}" if status.autopilot else ""]
    return [first, Text(place(status), style="dim"), *[Text(line, style="dim") for line in further if line]]


def limits_line(limits: Mapping[str, float]) -> str:
    """Say which sources are limited, in a line; empty where none is."""
    return ", ".join(
        f"{source} limited to {number(rate)}/s" if rate else f"{source} paused" for source, rate in limits.items()
    )


def place(status: Status) -> str:
    """Say where a run runs, and always whether that is emulated."""
    machines = len(status.machines)
    if status.emulated is None:
        return f"on {status.master} ({plural(machines, 'slot')})"
    return f"emulated on {status.emulated} ({plural(machines, 'machine')}), Spark on {status.master}"


def clock(seconds: float) -> str:
    """Write how long something has run: `12 s`, `3:05 min`, `2:03:05 h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} h"


def milliseconds(value: float | None) -> str:
    """Write a time in milliseconds in about three digits, so that columns stay still; a dash for none."""
    if value is None:
        return "-"
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def status_line(status: Status) -> str:
    """Write a run in one plain line, for a log; of one that is over, what it did in all."""
    if ended(status):
        return f"{clock(status.seconds)} {status.phase}: {status.emitted:,} in, {status.written:,} out{_again(status)}"
    parts = [f"{clock(status.seconds)} {status.phase}: {number(_rate(status, 'source'))}/s in"]
    parts.append(f"{number(_rate(status, 'sink'))}/s out")
    if status.latency is not None:
        parts.append(f"p50 {milliseconds(status.latency.p50_ms)} ms, p99 {milliseconds(status.latency.p99_ms)} ms")
    parts.append(f"{sum(component.queue for component in status.components):,} queued")
    if status.machines:
        busiest = max(status.machines, key=lambda machine: machine.cpu)
        parts.append(f"cpu ≤ {busiest.cpu:.0%} ({busiest.name})")
    if gone := [machine.name for machine in status.machines if not machine.alive]:
        parts.append(f"failed: {', '.join(gone)}")
    if status.recoveries:
        parts.append(plural(status.recoveries, "recovery", "recoveries"))
    return ", ".join(parts) + (f"; {status.operation}" if status.operation else "")


def tasks_on(status: Status) -> dict[str, list[str]]:
    """Return the tasks on each machine, or on each slot where slots are what is watched."""
    found: dict[str, list[str]] = {machine.name: [] for machine in status.machines}
    for task, slot in status.placement.items():
        machine = slot if slot in found else slot.partition("/")[0]
        found.setdefault(machine, []).append(task)
    return found


def task_list(tasks: Sequence[str]) -> str:
    """Write many tasks shortly: `split[0-2,5] count[1]`."""
    numbers: dict[str, list[int]] = {}
    for task in tasks:
        component, _, rest = task.rpartition("[")
        numbers.setdefault(component, []).append(int(rest.rstrip("]")))
    return " ".join(f"{component}[{_ranges(sorted(found))}]" for component, found in numbers.items())


def _ranges(numbers: Sequence[int]) -> str:
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _components(status: Status, width: int) -> Table:
    """Draw the components; columns are left out rather than that a number is cut."""
    wide, components = width >= WIDE, status.components
    odd = {
        "blocked": any(component.blocked >= BLOCKED for component in components),
        "skipped": wide and any(component.skipped for component in components),
        "retried": wide and any(component.retried for component in components),
    }
    columns = {"component": "component", "tasks": "tasks", "machines": "machines", "rate": "rate\n/s", "queue": "queue"}
    columns |= {"out": "out-\nqueue", "processing": "processing\nms", "p50": "p50\nms", "p99": "p99\nms"}
    columns |= {name: name for name, some in odd.items() if some}
    left_out = (() if wide else ("machines", "out")) + (WINDOWED if ended(status) else ())
    shown = {name: title for name, title in columns.items() if name not in left_out}
    cells = [_cells(component) for component in components]
    for name in SPARED:
        if _width(shown, cells) > width:
            shown.pop(name, None)
    rows = table(*shown.values())
    for column in rows.columns[1:]:
        column.min_width = STEADY if column.header != "tasks" else None
    for each in cells:
        rows.add_row(
            *(f"[yellow]{each[name]}[/]" if name in odd and each[name] != "-" else each[name] for name in shown)
        )
    return rows


def _cells(component: ComponentStatus) -> dict[str, str]:
    return {
        "component": escape(component.name),
        "tasks": str(component.tasks),
        "machines": str(component.machines),
        "rate": number(component.rate_tps),
        "queue": f"{component.queue:,}",
        "out": f"{component.waiting_out:,}",
        "processing": milliseconds(component.processing_ms),
        "p50": milliseconds(component.p50_ms),
        "p99": milliseconds(component.p99_ms),
        "blocked": f"{component.blocked:.0%}" if component.blocked >= BLOCKED else "-",
        "skipped": f"{component.skipped:,}" if component.skipped else "-",
        "retried": f"{component.retried:,}" if component.retried else "-",
    }


def _width(shown: dict[str, str], cells: Sequence[dict[str, str]]) -> int:
    """Return the columns of a terminal that a table takes at least: only names of components may be folded."""
    total = NAMES + GAP
    for name, title in shown.items():
        if name != "component":
            texts = [*title.split("\n"), *(each[name] for each in cells)]
            total += GAP + max(STEADY if name != "tasks" else 0, *map(len, texts))
    return total


def _mishaps(status: Status, width: int) -> list[Text]:
    """Say below a narrow table what has no room in it: the tuples that were skipped or tried again."""
    if width >= WIDE:
        return []
    lines = []
    for name, style in (("skipped", "yellow"), ("retried", "")):
        counts = [(component.name, getattr(component, name)) for component in status.components]
        if told := ", ".join(f"{count:,} by {component}" for component, count in counts if count):
            lines.append(Text.assemble((f"{name:<10}", "bold"), (f"  {told}", style)))
    return lines


def _end_to_end(status: Status, width: int) -> list[Text]:
    latency = status.latency
    if latency is None:
        times = "[dim]nothing sampled has finished yet[/]"
    else:
        p50, p99, mean, worst = map(milliseconds, (latency.p50_ms, latency.p99_ms, latency.mean_ms, latency.worst_ms))
        times = f"p50 [bold]{p50}[/] ms  p99 [bold]{p99}[/] ms  mean {mean}  worst {worst}"
        times += f"  [dim]{latency.count:,} sampled[/]"
    flow = f"{status.emitted:,} in  {status.written:,} out"
    flow += "" if status.in_flight is None or ended(status) else f"  {status.in_flight:,} in flight"
    flow += f"  [yellow]{status.timed_out:,} timed out[/]" if status.timed_out else ""
    if width >= WIDE:
        return [Text.from_markup(f"[bold]end to end[/]  {times}   {flow}", overflow="ellipsis")]
    return [Text.from_markup(f"[bold]end to end[/]  {times}"), Text.from_markup(f"            {flow}")]


def _safety(status: Status) -> list[Text]:
    """Say what would be left if all were lost now, and what was lost so far; nothing where no checkpoint is made."""
    lines = []
    if (last := status.checkpoint) is not None:
        told = f"{last.number}, {age(last.age_s)} ago  {size(last.bytes)} in {duration(last.seconds)}"
        told += "" if status.epoch <= 1 else f"  epoch {status.epoch}"
        lines.append(Text.assemble(("checkpoint", "bold"), f"  {told}"))
    if status.recoveries:
        told = f"{status.recoveries:,}, the last: {status.last_recovery}" if status.last_recovery else ""
        lines.append(Text.assemble(("recoveries", "bold"), f"  {told or status.recoveries}"))
    if again := _again(status):
        lines.append(Text(f"            counted{again.replace(',', '', 1)}", style="dim"))
    return lines


def _again(status: Status) -> str:
    """Say what the counts of tuples are of, where that is not each tuple once since the beginning."""
    told = f", since checkpoint {status.resumed}, from which it was resumed" if status.resumed else ""
    if status.recoveries:
        told += f", with those that came again after {plural(status.recoveries, 'recovery', 'recoveries')}"
    return told


def age(seconds: float) -> str:
    """Write how long ago something was: `0.4 s`, `12 s`, `3:05 min`."""
    return f"{max(seconds, 0.0):.1f} s" if seconds < 10 else clock(seconds)


def _machines(status: Status, width: int, most: int | None) -> Group:
    """Draw the machines with all that is on them; in so many lines at most, where a number is given.

    Where it is too small for that, every machine has one line, and those have one of which there is something to say,
    then the busiest.
    """
    what, shown, left = "slot" if status.emulated is None else "machine", status.machines, ""
    tasks, names = tasks_on(status), _name_width(status, what, width)
    listed = {machine.name: _listed(machine, tasks[machine.name]) for machine in shown}
    lags = max((len(milliseconds(machine.lag_ms)) for machine in shown), default=0)
    room = max(width - names - BAR - 2 * FIGURE - max(lags, FIGURE) - 6 * GAP, NAMES)
    folded = {name: _folded(text, room) for name, text in listed.items()}
    whole = most is None or sum(1 + text.plain.count("\n") for text in folded.values()) <= most
    if most is not None and not whole and len(shown) > most:
        order = sorted(shown, key=lambda machine: (machine.alive, not machine.note, -machine.cpu))
        first = {machine.name for machine in order[: most - 1]}
        shown = [machine for machine in shown if machine.name in first]
        left = f"{len(status.machines) - len(shown)} less busy ones not shown"
    rows = table(what, "tasks", "cpu", "", "late\nms", "on it", left=("cpu", "on it"))
    for column, least in zip(rows.columns, (names, FIGURE, BAR, FIGURE, FIGURE, None), strict=True):
        column.no_wrap, column.min_width = True, least
    rows.columns[0].max_width, rows.columns[0].no_wrap, rows.columns[5].no_wrap = names, not whole, not whole
    for machine in shown:
        text = listed[machine.name]
        text.truncate(room, overflow="ellipsis")
        rows.add_row(*_machine_cells(machine), folded[machine.name] if whole else text)
    return Group(rows, *([Text(left, style="dim")] if left else []))


def _name_width(status: Status, what: str, width: int) -> int:
    """Return the cells that machines' names get: those of the longest, up to a quarter of the terminal."""
    widest = max((len(machine.name) for machine in status.machines), default=0)
    return max(len(what), min(widest, max(NAME_WIDTH, width // 4)))


def _machine_cells(machine: MachineStatus) -> tuple[str, ...]:
    """Return what a machine's row has before its tasks."""
    lag = milliseconds(machine.lag_ms)
    name = escape(machine.name) if machine.alive else f"[red]{escape(machine.name)}[/]"
    lag = f"[yellow]{lag}[/]" if machine.note else lag
    return name, str(machine.tasks), _bar(machine), _share(machine.cpu), lag


def _listed(machine: MachineStatus, tasks: Sequence[str]) -> Text:
    """Return what there is to say of a machine, and the tasks on it."""
    why = machine.note if machine.note != LATE else ""
    why = why or ("" if machine.alive else "does not answer")
    gap = " " if why and tasks else ""
    return Text.assemble((why, "yellow" if machine.alive else "red"), gap, task_list(tasks))


def _folded(text: Text, room: int) -> Text:
    """Return a text in lines of so many cells, broken at blanks and between the numbers of tasks."""
    starts, used = [], 0
    for part in re.finditer(r"[^ ,]*(?:, *| +|$)", text.plain):
        if used and used + len(part[0].rstrip()) > room:
            starts.append(part.start())
            used = 0
        used += len(part[0])
    lines = text.divide(starts)
    for line in lines:
        line.rstrip()
    return Text("\n").join(lines)


def _share(cpu: float) -> str:
    return f"{cpu:.1%}" if cpu < 0.0995 else f"{cpu:.0%}"


def _bar(machine: MachineStatus) -> str:
    full = min(round(machine.cpu * BAR), BAR)
    style = "red" if machine.cpu >= 0.95 else "yellow" if machine.cpu >= 0.8 else "green"
    return f"[{style}]{'█' * full}[/][dim]{'░' * (BAR - full)}[/]"


def _below(status: Status, note: str) -> list[Text]:
    """Return what there is to say beside the figures, after an empty line; nothing where there is nothing."""
    lines = [Text(f"warning: {text}", style="yellow") for text in status.warnings]
    lines += [Text(f"error: {status.error}", style="red")] if status.error else []
    lines += [Text(f"{status.operation} …", style="cyan")] if status.operation else []
    lines += [Text(note, style="bold")] if note else []
    return [Text(), *lines] if lines else []


def _rate(status: Status, kind: str) -> float:
    return sum(component.rate_tps for component in status.components if component.kind == kind)


def summary(status: Status, info: RunInfo) -> list[tuple[str, str]]:
    """Say how a run went, where its files are and what to type next: a name and a text a line."""
    seconds = max(status.seconds, 1e-9)
    lines = [("ran", f"{status.application} {clock(status.seconds)} {place(status)}, under {status.policy}")]
    if status.tuples.texts:
        lines.append(("policies", ", ".join(f"{name} {text}" for name, text in status.tuples.texts.items())))
    inward = f"{status.emitted:,} in ({number(status.emitted / seconds)}/s)"
    lines.append(("tuples", f"{inward}, {status.written:,} out ({number(status.written / seconds)}/s){_again(status)}"))
    if status.latency is not None:
        p50, p99 = milliseconds(status.latency.p50_ms), milliseconds(status.latency.p99_ms)
        lines.append(("latency", f"p50 {p50} ms, p99 {p99} ms, {status.latency.count:,} sampled towards the end"))
    if status.timed_out:
        lines.append(("", f"{status.timed_out:,} sampled tuples were not seen to the end in time"))
    skips = [
        (plural(component.skipped, "tuple"), component.name) for component in status.components if component.skipped
    ]
    kept = "with those that came again; dead letters have each once" if status.recoveries else "kept as dead letters"
    lines += [("skipped", f"{tuples} by {name}, {kept}") for tuples, name in skips]
    if status.recoveries:
        lines.append(("recovered", f"{plural(status.recoveries, 'time')}, the last: {status.last_recovery}"))
    lines += [("warning", warning) for warning in status.warnings]
    return [*lines, *next_steps(info)]


def next_steps(info: RunInfo) -> list[tuple[str, str]]:
    """Say where the files of a run that has ended are, and what to type next."""
    lines = [("telemetry", str(info.telemetry_path))]
    if files := published(info):
        lines.append(("output", f"{info.output_path}, {plural(files, 'file')} published"))
    if resumable := goes_on(info):
        lines.append(("next", f"penstock runs resume {info.called} {resumable}"))
    return [*lines, ("next", f"penstock report {info.called}")]


def published(info: RunInfo) -> int:
    """Return how many files are in a run's output, but for those that nobody is to see yet."""
    return sum(path.is_file() and not path.name.startswith("_") for path in info.output_path.rglob("*"))


def goes_on(info: RunInfo) -> str:
    """Say from where a run that has ended could go on; empty where it has come to its end, or cannot."""
    if info.config is None:
        return ""
    disk, folder = Posix(), str(info.checkpoints_path)
    there = numbers(disk, folder)
    for latest in there:
        with suppress(PenstockError, OSError):
            return "" if read_manifest(disk, folder, latest).last else f"resumes from checkpoint {latest}"
    return "" if there else "starts again, as no checkpoint is complete"
