"""`penstock models tables`: turn telemetry into tables, as a Spark job."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from penstock.cli.formatting import plural
from penstock.cli.inputs import JsonOption, MasterOption, RunsOption, refuse_master
from penstock.cli.output import console, number, print_json, print_line, print_note, table
from penstock.cli.spark import folder_read, on_spark
from penstock.exploration.index import INDEX, RUNS
from penstock.pipeline.job import SETTINGS, Summary, check, is_small, refuse_within, run_pipeline
from penstock.runtime.storage.run_folder import refuse_unwritable

MOST_REASONS = 10


def tables(
    telemetry: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="RUN|DIR",
            help="A run: its name, its folder, or latest; or a folder of telemetry or of run folders.",
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the tables, outside that of --input.")],
    stream: Annotated[
        bool, typer.Option("--stream", help="Process only new files, as a stream that then ends.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Like --stream, but continue until interrupted.")] = False,
    window: Annotated[float, typer.Option(help="Length of a window in seconds.")] = 30.0,
    lateness: Annotated[
        float, typer.Option(help="Seconds behind its worker's newest record after which a record is late.")
    ] = 600.0,
    runs: RunsOption = Path("runs"),
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Turn telemetry into tables of hops, tuples and windows.

    Load shares and reports are made, too (Parquet); invalid records go to quarantine. A stream that is killed continues
    when it is started again, and makes the same tables as a batch.

    Example: penstock models tables --input runs/word-count-20250131-142501 --output tables
    """
    read = folder_read(telemetry, runs)
    refuse_master(master)
    refuse_unwritable(output, "--output")
    place, below = check(read, window, lateness, follow)  # rejects invalid input before Spark starts
    refuse_within(output, read, place)
    if not follow:
        _warn_unfinished(place)
    brief = not follow and is_small(place, below)
    with on_spark("pipeline", read, master, as_json, SETTINGS, brief) as (spark, log_step):
        summary = run_pipeline(
            spark, read, output, window_s=window, stream=stream, follow=follow, lateness_s=lateness, step=log_step
        )
    if as_json:
        print_json(summary)
    else:
        _show(summary, output)


def _warn_unfinished(folder: Path) -> None:
    """Warn of an exploration that has not ended: it writes its index last."""
    files = sum(1 for _ in folder.glob(f"{RUNS}.parquet"))
    if files and not (folder / INDEX).exists():
        problem = f"{folder}: has no {INDEX}, its exploration is running or was killed"
        remedy = f"only the {plural(files, 'placement')} that it has written are taken"
        print_note(f"{problem}; {remedy}")


def _show(summary: Summary, output: Path) -> None:
    rows = table("", "rows", title=f"tables of {summary.runs:,} run{'s' if summary.runs != 1 else ''}")
    for name in ("records", "hops", "tuples", "task_windows", "edge_windows"):
        rows.add_row(name.replace("_", " "), f"{getattr(summary, name):,}")
    rows.add_row("quarantine", f"{sum(summary.quarantined.values()):,}")
    for reason, count in list(summary.quarantined.items())[:MOST_REASONS]:
        rows.add_row(f"  {escape(reason)}", f"{count:,}")
    more = len(summary.quarantined) - MOST_REASONS
    if more > 0:
        rows.add_row(f"  [dim]{more} more reasons[/]", "")
    rows.add_row("seconds", number(summary.seconds))
    console.print(rows)
    print_line(f"tables   {output}")
