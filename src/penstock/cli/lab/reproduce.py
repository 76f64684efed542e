"""`penstock lab reproduce`: run the experiments of a paper's figures, and check its claims."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from penstock.cli.inputs import JsonOption, MasterOption, completing
from penstock.cli.output import console, print_json, table
from penstock.cli.progress import tracking
from penstock.experiments import reproduction
from penstock.experiments.figure import Claim, Figure
from penstock.experiments.live_cases import live_session, reproduce_live
from penstock.pipeline.session import session
from penstock.runtime.storage.run_folder import refuse_unwritable

PAPERS = Path("papers")


def reproduce(
    work: Annotated[
        str,
        typer.Argument(
            help="potus (routing), hone (sending), predictive (learnt latencies), sparcle (placement in networks) "
            "or tata (learned placement).",
            autocompletion=completing(*reproduction.WORKS),
        ),
    ],
    figure: Annotated[
        list[str] | None,
        typer.Option(help="A figure, such as 4 or 5c; 5 includes 5a to 5z; repeatable; list: list them."),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Use fewer slots, seeds and points: under two minutes.")] = False,
    output: Annotated[Path | None, typer.Option(help="Folder for the results; default: papers/WORK/results.")] = None,
    master: MasterOption = None,
    seed: Annotated[int, typer.Option(help="Added to the seeds of all cases.", min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a paper's figures and check its claims.

    Each figure is a Spark job that leaves a table (CSV) and a picture; all claims are in claims.csv. A full run writes
    to papers/WORK/results and updates the table of claims in papers/WORK/README.md. A quick run writes to
    papers/WORK/results/quick, and is too short to be quoted. A claim that fails is a result, not an error.

    Live figures are real runs on emulated machines, one after another on a host that should be idle: all of hone's take
    about 45 minutes. A quick run omits them unless --figure names them.

    Besides the paper's figures there are some of our own, such as potus's settings and beyond; --figure list lists
    them all.

    Example: penstock lab reproduce potus --quick
    """
    figures = reproduction.figures_of(work)
    if figure == ["list"]:
        _print_figures(figures, as_json)
        return
    selected = reproduction.chosen([one for one in figures if figure or not (quick and one.live)], figure or [])
    folder = output or PAPERS / work / "results" / ("quick" if quick else "")
    refuse_unwritable(folder, "--output")
    found: list[reproduction.Reproduced] = []
    written: list[Path] = []
    for live in (False, True):  # the results of sweeps are saved before long live runs start
        if part := [one for one in selected if one.live is live]:
            run = _run_live if live else _run_swept
            found.append(run(part, quick, master, seed, folder, as_json))
            written = [*written[:-1], *reproduction.keep(folder, part, found[-1])]
    claims = [claim for one in found for claim in one.claims]
    cases = sum(one.cases for one in found)
    page = PAPERS / work / "README.md"
    claimed = reproduction.claims_table(reproduction.read_claims(folder / "claims.csv"))
    if output is None and not quick and reproduction.put_table(page, claimed):
        written.append(page)
    if as_json:
        print_json({"work": work, "cases": cases, "claims": [_as_json(one) for one in claims],
                    "files": [str(path) for path in written]})  # fmt: skip
        return
    _print_claims(claims, f"{work}: {cases:,} cases" + (", a quick run" if quick else ""))
    _print_files(written)


def _run_swept(
    figures: Sequence[Figure], quick: bool, master: str | None, seed: int, _folder: Path, quiet: bool
) -> reproduction.Reproduced:
    """Run the cases of figures as one Spark job."""
    with tracking("starting Spark", quiet) as show, session("reproduce", master) as spark:
        doing = f"reproducing on {spark.sparkContext.master}"
        return reproduction.reproduce(spark, figures, quick, seed, lambda done, total: show(done, total, doing))


def _run_live(
    figures: Sequence[Figure], quick: bool, master: str | None, seed: int, folder: Path, quiet: bool
) -> reproduction.Reproduced:
    """Run the cases of live figures one after another."""
    with tracking("starting Spark", quiet) as show, live_session(master):
        return reproduce_live(figures, quick, seed, folder, show)


def _as_json(claim: Claim) -> dict[str, object]:
    """Return a claim for JSON; the value of an independent check is not reported as the paper's."""
    checked = {"paper": None, "check": claim.paper} if claim.checked else {"check": None}
    return {**claim._asdict(), **checked}


def _print_figures(figures: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        print_json([{"figure": one.number, "title": one.title} for one in figures])
        return
    rows = table("figure", "title", left=("title",))
    for one in figures:
        rows.add_row(one.number, one.title)
    console.print(rows)


def _print_claims(claims: Sequence[Claim], title: str) -> None:
    """Print claims figure by figure: verdict, the paper's value, ours, the tolerance, and why."""
    held = sum(one.holds for one in claims)
    console.print(f"[bold]{escape(title)}; {held} of {len(claims)} claims hold[/]")
    for figure, group in groupby(claims, lambda one: one.figure):
        console.print(f"\n[bold]{'figure ' if figure[0].isdigit() else ''}{escape(figure)}[/]")
        rows = Table.grid("", "", padding=(0, 2, 0, 0))
        for one in group:
            rows.add_row("[green]✓[/]" if one.holds else "[red]✗[/]", f"[bold]{escape(one.claim)}[/]")
            facts = {
                "check" if one.checked else "paper": one.paper,
                "ours": one.ours,
                "judged by": one.tolerance,
                "why": one.why,
            }
            for name, text in facts.items():
                if text:
                    rows.add_row("", _labelled(name, escape(text)))
        console.print(rows)


def _labelled(name: str, text: str) -> Table:
    """Return a line of two columns, its label in the first."""
    made = Table.grid("", "", padding=(0, 2, 0, 0))
    made.columns[0].min_width = 9
    made.add_row(f"[dim]{name}[/]", text)
    return made


def _print_files(written: Sequence[Path]) -> None:
    tables = [path for path in written if path.name.startswith("figure-")]
    console.print(f"\nfigures  {tables[0].parent}/figure-*.csv, .png ({len(tables) // 2})", soft_wrap=True)
    for path in written[len(tables) :]:
        console.print(f"{'claims' if path.suffix == '.csv' else 'page':8} {path}", soft_wrap=True)
