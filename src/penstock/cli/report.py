"""`penstock report`: an analysis of a run from its telemetry."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from penstock.cli.formatting import LONGEST_NAME, phase_labels, plural
from penstock.cli.inputs import JsonOption, MasterOption, RunsOption, refuse_master
from penstock.cli.output import console, duration, number, print_json, print_line, size, table
from penstock.cli.progress import spinning
from penstock.cli.report_plots import plot_report
from penstock.cli.spark import folder_read, on_spark
from penstock.pipeline.report import run_report, telemetry_folder
from penstock.pipeline.report_rows import Latencies, PhaseResult, Report
from penstock.runtime.storage.run_folder import refuse_unwritable

MOST_PHASES = 4  # side by side in 80 columns: the first and the last ones
MOST_ROWS = 5  # of lists that may be long; all of them are in report.json
LATE_S = 0.05  # minimum lag of workers that is reported

R = TypeVar("R")


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run: its name, its folder, or latest, which is the default; or a folder of telemetry.",
        ),
    ] = None,
    runs: RunsOption = Path("runs"),
    master: MasterOption = None,
    output: Annotated[Path | None, typer.Option(help="Folder for tables and picture; default: RUN/report.")] = None,
    settle: Annotated[float, typer.Option(help="Seconds after each change that are not measured.", min=0)] = 2.0,
    plot: Annotated[
        bool, typer.Option("--plot/--no-plot", help="Draw latency over time and the time of each component.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Show where tuples spent their time, from a run's telemetry.

    A Spark job reconstructs the time of each component and stream, and compares the run's phases. A phase begins when a
    plan is applied, a task moves, tuple policies are switched, or the run marks one. --output keeps hops and tuples
    (Parquet), the report (JSON) and a picture.

    Example: penstock report word-count-20250131-142501 --output report
    """
    refuse_master(master)
    folder = folder_read(run, runs)
    target = output or (folder.parent if folder.name == "telemetry" else folder) / "report"
    refuse_unwritable(target, "--output")
    found = _run(folder, target, master, settle, quiet=as_json)
    if plot:
        with spinning(f"drawing {target / 'latency.png'}", quiet=as_json):
            plot_report(found, target / "latency.png")
    if as_json:
        print_json(found)
    else:
        show_report(found)
        _print_files(target, plot)


def show_report(report: Report) -> None:
    """Print a report."""
    sections = [
        _header,
        _phases,
        _before_after,
        _end_to_end,
        _where,
        _components,
        _streams,
        _pairs,
        _stragglers,
        _quarantine,
    ]
    for section in sections:
        if (lines := section(report)) is not None:
            for line in lines:
                console.print(line, soft_wrap=isinstance(line, str))
            console.print()


def _run(folder: Path, target: Path, master: str | None, settle: float, quiet: bool) -> Report:
    telemetry_folder(folder)  # reject an invalid name before Spark starts
    with on_spark("report", folder, master, quiet) as (spark, log_step):
        return run_report(spark, folder, target, settle, log_step)


def _header(report: Report) -> list[Any]:
    where = f" [yellow]emulated on {escape(report.emulated)}[/]" if report.emulated else ""
    long = any(len(phase.name) > LONGEST_NAME for phase in report.phases)
    changes = plural(len(report.phases), "phase") if long and len(report.phases) > 1 else ""  # listed below
    policies = changes or " → ".join(dict.fromkeys(phase.name for phase in report.phases))
    missing = report.sampled - report.complete
    sampled = f"{report.sampled:,} sampled source tuples" + (f", {missing:,} of them not complete" if missing else "")
    about = f"{number(report.seconds)} s, {sampled}, {report.records:,} records"
    lag = max((phase.lag or 0.0 for phase in report.phases), default=0.0)
    late = f"workers ran up to {_time(lag)} late (busy host or blocking code); figures include it"
    return [
        f"[bold]{escape(report.application)}[/]{where}: {escape(policies or report.policy)}",
        f"[dim]{escape(report.run)}: {about}[/]",
        *([f"[yellow]{late}[/]"] if lag > LATE_S else []),
    ]


def _phases(report: Report) -> list[Any] | None:
    """List the phases with their full names, if the tables below abbreviate them."""
    if len(report.phases) < 2 or all(len(phase.name) <= LONGEST_NAME for phase in report.phases):
        return None
    spans = [f"{number(phase.start)} to {number(phase.end)} s" for phase in report.phases]
    return [
        f"[bold]phase {phase.number + 1}[/]  [dim]{span}[/]  {escape(phase.name)}"
        for phase, span in zip(report.phases, spans, strict=True)
    ]


def _before_after(report: Report) -> list[Any] | None:
    if len(report.phases) < 2:
        return None
    first, *others = report.phases
    shown = [first, *others[-(MOST_PHASES - 1) :]]
    labels = phase_labels(report.phases)
    rows = table("", *(labels[phase.number] for phase in shown), title=_titled("before and after", report))
    rows.add_row("throughput, tuples/s", *_compared(shown, "throughput_tps", lambda p: p.throughput_tps, number))
    for name in ("p50", "p95", "p99", "mean"):
        rows.add_row(f"latency {name}", *_compared(shown, name, _latency(name), _time))
    rows.add_row("between machines, tuples/s", *_compared(shown, "remote_tps", lambda p: p.remote_tps, number))
    rows.add_row("tasks on another machine", *("-" if p.moved is None else str(p.moved) for p in shown))
    rows.add_row("maximum delay of workers", *(_time(p.lag) for p in shown))
    rows.add_row("seconds counted", *(number(p.end - p.settled) for p in shown))
    note = f"the first {report.settle_s:g} s after each change do not count; × is relative to {labels[first.number]}"
    left_out = len(report.phases) - len(shown)
    return [rows, f"[dim]{note}{f'; {left_out} more phases are in report.json' if left_out else ''}[/]"]


def _compared(
    phases: Sequence[PhaseResult],
    name: str,
    value: Callable[[PhaseResult], float | None],
    write: Callable[[float], str],
) -> list[str]:
    cells = []
    for phase in phases:
        found = value(phase)
        ratio = phase.ratios.get(name) if phase is not phases[0] else None
        written = "-" if found is None else write(found)
        cells.append(written if ratio is None else f"{written} [bold]×{_ratio(ratio)}[/]")
    return cells


def _latency(name: str) -> Callable[[PhaseResult], float | None]:
    return lambda phase: getattr(phase.latency, name, None)


def _end_to_end(report: Report) -> list[Any]:
    rows = table("", "tuples", "p50", "p95", "p99", "worst", "mean", title=_titled("end to end", report))
    for name, row in _by_phase(report):
        times = (row.p50, row.p95, row.p99, row.worst, row.mean)
        rows.add_row(name, f"{row.count:,}", *(_time(time) for time in times))
    return [rows, "[dim]from when a source tuple is due until all tuples derived from it are processed[/]"]


def _where(report: Report) -> list[Any]:
    columns = ("at source", "out-queue", "network", "in-queue", "processing")
    rows = table("", *columns, title="time per part, mean on a tuple's slowest path")
    for name, row in _by_phase(report):
        parts = (row.source_wait, row.out_wait, row.transfer, row.wait, row.processing)
        rows.add_row(name, *(_time(part) for part in parts))
    return [rows]


def _components(report: Report) -> list[Any]:
    columns = ("tasks", "tuples/s", "wait p50", "p99", "proc. p50", "p99", "both p99")
    rows = table("", *columns, title=_titled("components", report))
    for row in _grouped(rows, report, report.components):
        times = (row.wait_p50, row.wait_p99, row.processing_p50, row.processing_p99, row.total_p99)
        rate = "-" if row.rate_tps is None else number(row.rate_tps)
        rows.add_row(f"  {row.component}", str(row.tasks or "-"), rate, *(_time(time) for time in times))
    return [rows]


def _streams(report: Report) -> list[Any]:
    columns = ("sampled", "machines", "bytes", "net p50", "p99", "out-queue p99")
    rows = table("", *columns, title=_titled("streams", report))
    for row in _grouped(rows, report, report.streams):
        times = (row.transfer_p50, row.transfer_p99, row.out_wait_p99)
        rows.add_row(
            f"  {row.stream}", f"{row.count:,}", f"{row.remote_share:.0%}", size(row.bytes_mean), *(map(_time, times))
        )
    negative = sum(row.negative for row in report.streams)
    notes = ["[dim]machines: the share of tuples that went from one machine to another[/]"]
    if negative:
        notes.append(f"[dim]{negative:,} transfers came out below zero by the error of clocks, and count as zero[/]")
    return [rows, *notes]


def _pairs(report: Report) -> list[Any] | None:
    last = max((phase.number for phase in report.phases), default=0)
    far = [row for row in report.edges if row.phase == last and row.source_machine != row.target_machine]
    if not far:
        return None
    slowest = sorted(far, key=lambda row: -row.transfer_p99)[:MOST_ROWS]
    rows = table("", "stream", "sampled", "bytes", "net p50", "p99", left=("stream",))
    rows.title = f"slowest pairs of machines{_in(report, last)}"
    for row in slowest:
        times = (_time(row.transfer_p50), _time(row.transfer_p99))
        pair = f"{row.source_machine} → {row.target_machine}"
        rows.add_row(pair, row.stream, f"{row.count:,}", size(row.bytes_mean), *times)
    return [rows]


def _stragglers(report: Report) -> list[Any]:
    if not report.slow_tasks and not report.slow_machines:
        return ["[bold]stragglers[/] none: no task's p95 is over twice that of its component's others"]
    rows = table("", "machine", "p95", "usual", "ratio", left=("machine",), title=_titled("stragglers", report))
    for task in _grouped(rows, report, _most(report.slow_tasks)):
        times = (_time(task.p95), _time(task.usual))
        rows.add_row(f"  {task.task}", task.machine, *times, f"×{_ratio(task.ratio)}")
    lines: list[Any] = [rows, "[dim]p95 of waiting and processing; usual: the median of the component's tasks[/]"]
    for machine in _most(report.slow_machines):
        where = _in(report, machine.phase)
        lines.append(f"machine [bold]{machine.machine}[/]: its tasks take ×{_ratio(machine.ratio)} of the usual{where}")
    return lines


def _quarantine(report: Report) -> list[Any]:
    count = sum(row.count for row in report.quarantine)
    if not count:
        return ["[bold]quarantine[/] empty: every record could be used"]
    lines = [f"[bold]quarantine[/] {count:,} that could not be used"]
    lines += [f"  {row.count:>6,}  {escape(row.reason)}" for row in report.quarantine[:MOST_ROWS]]
    more = len(report.quarantine) - MOST_ROWS
    return lines + ([f"  and {more} more reasons"] if more > 0 else [])


def _print_files(target: Path, plot: bool) -> None:
    files = {"tables": f"{target / 'hops'}, {target / 'tuples'}", "report": str(target / "report.json")}
    if plot:
        files["picture"] = str(target / "latency.png")
    for name, path in files.items():
        print_line(f"{name:<8} {path}")


def _by_phase(report: Report) -> list[tuple[str, Latencies]]:
    labels = phase_labels(report.phases)
    found = [(labels[phase.number], phase.latency) for phase in report.phases if phase.latency is not None]
    return [*found, ("[dim]whole run[/]", report.end_to_end)]


def _grouped(rows: Table, report: Report, found: Iterable[R]) -> Iterable[R]:
    """Yield rows; if there are several phases, add a heading before those of each."""
    current: int | None = None
    labels = phase_labels(report.phases)
    for row in found:
        phase = getattr(row, "phase", None)
        if phase != current and len(report.phases) > 1 and phase is not None:
            rows.add_row(f"[bold]{labels[phase]}[/]")
        current = phase
        yield row


def _most(rows: Sequence[R]) -> list[R]:
    """Return the first few of each phase."""
    seen: dict[Any, int] = {}
    kept = []
    for row in rows:
        phase = getattr(row, "phase", None)
        seen[phase] = seen.get(phase, 0) + 1
        if seen[phase] <= MOST_ROWS:
            kept.append(row)
    return kept


def _titled(title: str, report: Report) -> str:
    return f"{title}, emulated on {report.emulated}" if report.emulated else title


def _in(report: Report, phase: int) -> str:
    return f" under {phase_labels(report.phases)[phase]}" if len(report.phases) > 1 else ""


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(max(seconds, 0.0))


def _ratio(value: float) -> str:
    return f"{value:.2f}" if 0.1 <= value < 10 else number(value)
