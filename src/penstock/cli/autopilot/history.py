"""`penstock autopilot history`: the decisions of a run's autopilot and their outcomes."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.autopilot.ledger import LEDGER, Episode, LedgerContents, read_ledger
from penstock.cli.formatting import plural
from penstock.cli.inputs import JsonOption, RunArgument, RunsOption, refuse_outputs
from penstock.cli.output import console, errors, print_json, table
from penstock.cli.run_view import clock, milliseconds
from penstock.runtime.storage.run_folder import RunInfo, alive, find_run

EXAMPLE = "penstock autopilot history --plot latency.png"
STYLES = {"kept": "green", "rolled back": "yellow", "failed": "red", "void": "yellow", "stuck": "red"}


def history(
    run: RunArgument = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw latency over time with the decisions (.png, .svg, .pdf).")
    ] = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List the autopilot's decisions and their measured effects.

    Predicted and realised are changes of the mean latency, in percent of the latency before.
    """
    refuse_outputs(None, plot)
    info, book = open_ledger(run, runs)
    if plot is not None:
        from penstock.cli.autopilot.history_plots import plot_history  # imports matplotlib

        plot_history(book, f"{info.application}: {info.run}", plot)
    if as_json:
        listed = [{"verdict": one.verdict, "decision": one.decision, "outcome": one.outcome} for one in book.episodes]
        print_json({"run": info.run, "decisions": listed, "problems": list(book.problems)})
    else:
        _print(book, info, plot)


def open_ledger(run: str | None, runs: Path) -> tuple[RunInfo, LedgerContents]:
    """Return a run and its ledger; print a warning for each line that cannot be read."""
    info = find_run(run, runs)
    book = replace(read_ledger(info.path / LEDGER), ended=info.ended is not None or not alive(info.pid))
    for problem in book.problems:
        errors.print(f"warning: {problem}", style="yellow", markup=False, soft_wrap=True)
    return info, book


def realised(episode: Episode) -> float | None:
    """Return the measured relative change of latency; None: there is no measurement."""
    outcome = episode.outcome
    if outcome is None or outcome.realised_s is None:
        return None
    return outcome.realised_s / episode.decision.before_s - 1


def percent(change: float | None) -> str:
    """Write a relative change."""
    return "-" if change is None else f"{change:+.1%}"


def _print(book: LedgerContents, info: RunInfo, plot: Path | None) -> None:
    episodes = book.episodes
    if not episodes:
        console.print(f"run {info.run}: no decision yet", markup=False, soft_wrap=True)
        return
    rows = table(
        "decision",
        "at",
        "policy",
        "moves",
        "before\nms",
        "predicted",
        "realised",
        "verdict",
        left=("policy", "verdict"),
    )
    rows.columns[0].min_width = None
    for one in episodes:
        decision = one.decision
        predicted = percent(-decision.gain) if decision.moves else "-"
        verdict = f"[{STYLES[one.verdict]}]{one.verdict}[/]" if one.verdict in STYLES else one.verdict
        moves = str(len(decision.moves))
        times = (str(decision.number), clock(decision.at), decision.inputs.policy, moves)
        rows.add_row(*times, milliseconds(1e3 * decision.before_s), predicted, percent(realised(one)), verdict)
    console.print(rows)
    counts = {verdict: sum(one.verdict == verdict for one in episodes) for verdict in ("kept", "rolled back")}
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    made = plural(len(episodes), "decision")
    console.print(f"{made}, {verdicts}; why: penstock autopilot explain {episodes[-1].decision.number}")
    if plot is not None:
        console.print(f"drawn in {plot}", markup=False, soft_wrap=True)
