"""The state of a run for people: the live table, one line for a log, and the summary at the end."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import plural
from penstock.cli.output import duration, number, size, table
from penstock.model.errors import PenstockError
from penstock.model.status import ComponentStatus, MachineStatus, Status, task_list
from penstock.runtime.storage.checkpoints import load_manifest, numbers
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import RunInfo

WIDE = 100  # columns of a terminal with room for everything
BAR = 10  # cells of a machine's bar
BLOCKED = 0.01  # minimum share of time without credit that is shown
STYLES = {
    "starting": "dim",
    "running": "green",
    "recovering": "bold yellow",
    "draining": "yellow",
    "stopped": "bold",
    "failed": "bold red",
}
NAMES = 12  # minimum cells of components' names
GAP = 2  # cells between columns
STEADY = 6  # minimum cells of a column of figures, so that its width stays the same
NAME_WIDTH = 20  # cells of machines' names before they are folded; more if there is room
FIGURE = 5  # cells of a figure of a machine
LATE = "late"  # the note of a machine whose emulation lags
SPARED = ("machines", "out", "tasks", "blocked", "processing", "p50")  # columns that are dropped first, in this order
WINDOWED = ("rate", "queue", "out", "blocked")  # current values, hidden once a run has ended
FEWEST_MACHINES = 3  # minimum rows of machines, however low the terminal


def view(status: Status, width: int, height: int | None = None, note: str = "") -> RenderableType:
    """Draw a run for a terminal of a width in columns and, optionally, a height in lines."""
    below, safety = _below(status, note), [*_format_skips(status, width), *_safety(status)]
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
    """Return whether the run has ended."""
    return status.phase in ("stopped", "failed")


def headline(status: Status) -> list[Text]:
    """Return lines with application, phase, time and policy, then the place, then tuple policies and limits."""
    phase = Text(status.phase, style=STYLES.get(status.phase, "bold"))
    first = Text.assemble((status.application, "bold"), " ", phase, f" {clock(status.seconds)} under {status.policy}")
    policies = ", ".join(f"{name} {text}" for name, text in status.tuples.texts.items())
    further = [policies, limits_line(status.limits), f"autopilot {status.autopilot}" if status.autopilot else ""]
    return [first, Text(place(status), style="dim"), *[Text(line, style="dim") for line in further if line]]


def limits_line(limits: Mapping[str, float]) -> str:
    """Return the limited sources in one line; empty if there are none."""
    return ", ".join(
        f"{source} limited to {number(rate)}/s" if rate else f"{source} paused" for source, rate in limits.items()
    )


def place(status: Status) -> str:
    """Describe where a run is executed, and whether it is emulated."""
    machines = len(status.machines)
    if status.emulated is None:
        return f"on {status.master} ({plural(machines, 'slot')})"
    return f"emulated on {status.emulated} ({plural(machines, 'machine')}), Spark on {status.master}"


def clock(seconds: float) -> str:
    """Format an elapsed time: `12 s`, `3:05 min`, `2:03:05 h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} h"


def milliseconds(value: float | None) -> str:
    """Format a time in milliseconds with about three digits, so that columns keep their width; a dash for None."""
    if value is None:
        return "-"
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def status_line(status: Status) -> str:
    """Return a run's status in one plain line, for a log; after its end, its totals."""
    if ended(status):
        totals = f"{status.emitted:,} in, {status.written:,} out"
        return f"{clock(status.seconds)} {status.phase}: {totals}{_count_note(status)}"
    parts = [f"{clock(status.seconds)} {status.phase}: {number(_rate(status, 'source'))}/s in"]
    parts.append(f"{number(_rate(status, 'sink'))}/s out")
    if status.latency is not None:
        parts.append(f"p50 {milliseconds(status.latency.p50_ms)} ms, p99 {milliseconds(status.latency.p99_ms)} ms")
    parts.append(f"{sum(component.queue for component in status.components):,} queued")
    if status.machines:
        busiest = max(status.machines, key=lambda machine: machine.cpu)
        parts.append(f"cpu ≤ {busiest.cpu:.0%} ({busiest.name})")
    if failed := [machine.name for machine in status.machines if not machine.alive]:
        parts.append(f"failed: {', '.join(failed)}")
    if status.recoveries:
        parts.append(plural(status.recoveries, "recovery", "recoveries"))
    return ", ".join(parts) + (f"; {status.operation}" if status.operation else "")


def tasks_on(status: Status) -> dict[str, list[str]]:
    """Return the tasks on each machine, or on each slot if the status lists slots."""
    found: dict[str, list[str]] = {machine.name: [] for machine in status.machines}
    for task, slot in status.placement.items():
        machine = slot if slot in found else slot.partition("/")[0]
        found.setdefault(machine, []).append(task)
    return found


def _components(status: Status, width: int) -> Table:
    """Draw the components; columns are dropped before a number is cut off."""
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
    """Return the minimum width of a table, in which only names of components may be folded."""
    total = NAMES + GAP
    for name, title in shown.items():
        if name != "component":
            texts = [*title.split("\n"), *(each[name] for each in cells)]
            total += GAP + max(STEADY if name != "tasks" else 0, *map(len, texts))
    return total


def _format_skips(status: Status, width: int) -> list[Text]:
    """Return lines for below a narrow table: the tuples that were skipped or retried."""
    if width >= WIDE:
        return []
    lines = []
    for name, style in (("skipped", "yellow"), ("retried", "")):
        counts = [(component.name, getattr(component, name)) for component in status.components]
        if text := ", ".join(f"{count:,} by {component}" for component, count in counts if count):
            lines.append(Text.assemble((f"{name:<10}", "bold"), (f"  {text}", style)))
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
    """Return lines about the last checkpoint and the recoveries; none if there are neither."""
    lines = []
    if (last := status.checkpoint) is not None:
        text = f"{last.number}, {age(last.age_s)} ago  {size(last.bytes)} in {duration(last.seconds)}"
        text += "" if status.epoch <= 1 else f"  epoch {status.epoch}"
        lines.append(Text.assemble(("checkpoint", "bold"), f"  {text}"))
    if status.recoveries:
        text = f"{status.recoveries:,}, the last: {status.last_recovery}" if status.last_recovery else ""
        lines.append(Text.assemble(("recoveries", "bold"), f"  {text or status.recoveries}"))
    if again := _count_note(status):
        lines.append(Text(f"            counted{again.replace(',', '', 1)}", style="dim"))
    return lines


def _count_note(status: Status) -> str:
    """Describe what the counts of tuples cover, if not each tuple once since the start."""
    text = f", since checkpoint {status.resumed}, from which it was resumed" if status.resumed else ""
    if status.recoveries:
        text += f", with those that came again after {plural(status.recoveries, 'recovery', 'recoveries')}"
    return text


def age(seconds: float) -> str:
    """Format an age: `0.4 s`, `12 s`, `3:05 min`."""
    return f"{max(seconds, 0.0):.1f} s" if seconds < 10 else clock(seconds)


def _machines(status: Status, width: int, most: int | None) -> Group:
    """Draw the machines with their tasks, in at most `most` lines.

    If they do not fit, each machine has one line; failed machines and those with a note come first, then the busiest.
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
    """Return the width of the column of machines' names: the longest, up to a quarter of the terminal."""
    widest = max((len(machine.name) for machine in status.machines), default=0)
    return max(len(what), min(widest, max(NAME_WIDTH, width // 4)))


def _machine_cells(machine: MachineStatus) -> tuple[str, ...]:
    """Return the cells of a machine's row before its tasks."""
    lag = milliseconds(machine.lag_ms)
    name = escape(machine.name) if machine.alive else f"[red]{escape(machine.name)}[/]"
    lag = f"[yellow]{lag}[/]" if machine.note else lag
    return name, str(machine.tasks), _bar(machine), _share(machine.cpu), lag


def _listed(machine: MachineStatus, tasks: Sequence[str]) -> Text:
    """Return a machine's note, and the tasks on it."""
    why = machine.note if machine.note != LATE else ""
    why = why or ("" if machine.alive else "does not answer")
    gap = " " if why and tasks else ""
    return Text.assemble((why, "yellow" if machine.alive else "red"), gap, task_list(tasks))


def _folded(text: Text, room: int) -> Text:
    """Fold a text into lines of at most `room` cells, at blanks and between the numbers of tasks."""
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
    """Return the notes below the tables after an empty line; none if there are no notes."""
    lines = [Text(f"warning: {text}", style="yellow") for text in status.warnings]
    lines += [Text(f"error: {status.error}", style="red")] if status.error else []
    current = f"{status.operation} …" if status.operation else ""
    if (saving := status.saving) is not None:
        current = f"checkpoint {saving.number} …, {age(saving.age_s)} so far: {saving.cause}"
    lines += [Text(current, style="cyan")] if current else []
    lines += [Text(note, style="bold")] if note else []
    return [Text(), *lines] if lines else []


def _rate(status: Status, kind: str) -> float:
    return sum(component.rate_tps for component in status.components if component.kind == kind)


def summary(status: Status, info: RunInfo) -> list[tuple[str, str]]:
    """Return the summary of a run: results, files and next commands, each a name and a text."""
    seconds = max(status.seconds, 1e-9)
    lines = [("ran", f"{status.application} {clock(status.seconds)} {place(status)}, under {status.policy}")]
    if status.tuples.texts:
        lines.append(("policies", ", ".join(f"{name} {text}" for name, text in status.tuples.texts.items())))
    inward = f"{status.emitted:,} in ({number(status.emitted / seconds)}/s)"
    lines.append(
        ("tuples", f"{inward}, {status.written:,} out ({number(status.written / seconds)}/s){_count_note(status)}")
    )
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
    """Return the files of a run that has ended, and the commands to try next."""
    lines = [("telemetry", str(info.telemetry_path))]
    if files := count_published(info):
        lines.append(("output", f"{info.output_path}, {plural(files, 'file')} published"))
    if resumable := find_resume_point(info):
        lines.append(("next", f"penstock runs resume {info.called} {resumable}"))
    return [*lines, ("next", f"penstock report {info.called}")]


def count_published(info: RunInfo) -> int:
    """Return the number of published files in a run's output."""
    return sum(path.is_file() and not path.name.startswith("_") for path in info.output_path.rglob("*"))


def find_resume_point(info: RunInfo) -> str:
    """Describe where a run that has ended would resume; empty if it was completed or cannot be resumed."""
    disk, folder = Posix(), str(info.checkpoints_path)
    stored = numbers(disk, folder)
    for latest in stored:
        with suppress(PenstockError, OSError):
            return "" if load_manifest(disk, folder, latest).last else f"resumes from checkpoint {latest}"
    return "" if stored else "starts again, as no checkpoint is complete"
