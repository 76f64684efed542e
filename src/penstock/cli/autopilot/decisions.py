"""`penstock autopilot history` and `explain`: the decisions of a run's autopilot, their reasons and their outcomes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.autopilot.control_target import Reading
from penstock.autopilot.decision import likely_cause, model_changed, replay
from penstock.autopilot.ledger import LEDGER, Decision, Episode, Inputs, LedgerContents, TaskMove, read_ledger
from penstock.cli.formatting import plural
from penstock.cli.inputs import PICTURES, JsonOption, RunArgument, RunOption, RunsOption, policy_names, refuse_file
from penstock.cli.output import console, number, print_json, print_line, print_note, table
from penstock.cli.plots import BAR, BEST, GREY, panels, save_figure, tidy
from penstock.cli.run_view import clock, milliseconds
from penstock.estimate.evaluator import UNSUSTAINED
from penstock.experiments.pictures import Axes
from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.runtime.storage.run_folder import RunInfo, alive, find_run

STYLES = {"kept": "green", "rolled back": "yellow", "failed": "red", "void": "yellow", "stuck": "red"}
COLOURS = {"kept": "#3a8f5c", "rolled back": BEST, "shadow": GREY}
QUIET = ("held",)  # decisions not to act, marked on the axis only
BOUND = "bound, while judged"
APART = 2.0  # a longer gap, in lengths of the shorter of two readings, breaks the line
MOST_MOVES = 12  # in the list


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

    Example: penstock autopilot history --plot latency.png
    """
    refuse_file(plot, PICTURES)
    info, book = open_ledger(run, runs)
    if plot is not None:
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
        print_note(f"warning: {problem}", "yellow")
    return info, book


def realised(episode: Episode) -> float | None:
    """Return the measured relative change of latency; None: there is no measurement."""
    outcome = episode.outcome
    if outcome is None or outcome.realised_s is None:
        return None
    return outcome.realised_s / episode.decision.before_s - 1


def change_in_words(change: float | None) -> str:
    """Write a relative change."""
    return "-" if change is None else f"{change:+.1%}"


def _print(book: LedgerContents, info: RunInfo, plot: Path | None) -> None:
    episodes = book.episodes
    if not episodes:
        print_line(f"run {info.run}: no decision yet")
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
        predicted = change_in_words(-decision.gain) if decision.moves else "-"
        verdict = f"[{STYLES[one.verdict]}]{one.verdict}[/]" if one.verdict in STYLES else one.verdict
        moves = str(len(decision.moves))
        times = (str(decision.number), clock(decision.at), decision.inputs.policy, moves)
        rows.add_row(*times, milliseconds(1e3 * decision.before_s), predicted, change_in_words(realised(one)), verdict)
    console.print(rows)
    counts = {verdict: sum(one.verdict == verdict for one in episodes) for verdict in ("kept", "rolled back")}
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    made = plural(len(episodes), "decision")
    console.print(f"{made}, {verdicts}; why: penstock autopilot explain {episodes[-1].decision.number}")
    if plot is not None:
        print_line(f"drawn in {plot}")


def explain(
    decision: Annotated[
        str, typer.Argument(metavar="DECISION", help="The decision's number in penstock autopilot history, or last.")
    ],
    run: RunOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Also print what this policy would have decided on the same inputs; repeatable.",
            autocompletion=policy_names,
        ),
    ] = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Explain a decision: its inputs, its alternatives, its outcome.

    The decision is recomputed from the ledger. If the result differs from the recorded one, the likely cause is
    printed: another file of latency models, or a policy that searches for as long as it has time.

    Example: penstock autopilot explain last --policy r-storm --policy t-storm
    """
    _, book = open_ledger(run, runs)
    episode = find_decision(book, decision)
    again = replay(episode)
    same = again == episode.decision
    others = [replay(episode, other) for other in policy or []]
    if as_json:
        found = {"decision": episode.decision, "outcome": episode.outcome, "reproduced": same, "others": others}
        print_json(found | {"model_changed": bool(model_changed(episode.decision))})
        return
    _print_decision(episode)
    _print_others(episode, again, others, same)


def find_decision(book: LedgerContents, text: str) -> Episode:
    """Return the decision of a number."""
    known = {str(one.decision.number): one for one in book.episodes}
    if not known:
        raise InvalidInput("decision", "no decision in this run yet; wait, or name another --run")
    found = known.get(list(known)[-1] if text == "last" else text)
    if found is None:
        raise UnknownName("decision", f"there is none numbered {text!r}; there are {choices(known)}")
    return found


def _print_decision(episode: Episode) -> None:
    made, outcome = episode.decision, episode.outcome
    inputs, guard = made.inputs, made.inputs.guard
    most = plural(guard.max_moves, "move")
    console.print(f"decision {made.number} by {inputs.policy}: {episode.verdict}", style="bold", markup=False)
    rates = ", ".join(f"{name} {number(rate)}/s" for name, rate in inputs.rates.items())
    means = ", ".join(f"{1e3 * (reading.mean_s or 0.0):.3g}" for reading in inputs.readings)
    lines = [
        ("when", f"{made.time}, {clock(made.at)} after the start"),
        ("load", f"{rates}; busiest {_busiest(made)}"),
        ("latency", f"{1e3 * made.before_s:.3g} ms, the mean of {means}"),
        ("scored by", scored_by(inputs)),
        ("decided", ("to act, " if made.acts else "not to act, ") + made.reason),
        ("guard", f"threshold {guard.threshold:.1%}, at most {most}, {1e3 * made.cost_s:.3g} ms cost"),
        ("bound", f"{1e3 * made.bound_s:.3g} ms, above which it is rolled back within {guard.measuring_s:g} s"),
    ]
    if made.predicted_s is not None:
        lines.append(("predicted", f"{1e3 * made.predicted_s:.3g} ms"))
    if outcome is not None and outcome.realised_s is not None:
        change = change_in_words(realised(episode))
        lines.append(
            ("realised", f"{1e3 * outcome.realised_s:.3g} ms, {change}; predicted {change_in_words(-made.gain)}")
        )
    if outcome is not None and outcome.note:
        lines.append(("why", outcome.note))
    for name, text in lines:
        print_line(f"{name:<11}{text}")
    _print_moves(made.moves)
    _print_alternatives(made)


def scored_by(inputs: Inputs) -> str:
    """Describe what placements were scored by: an estimate, or latency models and loads."""
    if not inputs.model:
        return f"the estimate of {inputs.objective}"
    observed = bool(inputs.readings and inputs.readings[-1].tasks)
    return f"{inputs.model}, by the loads that tasks were {'seen to have' if observed else 'declared to have'}"


def _busiest(made: Decision) -> str:
    cpu = made.inputs.readings[-1].cpu
    if not cpu:
        return "not known"
    name = max(cpu, key=lambda machine: cpu[machine])
    return f"{name} at {cpu[name]:.0%}"


def _print_moves(moves: list[TaskMove]) -> None:
    if not moves:
        return
    rows = table("task", "from", "to", left=("from", "to"))
    for move in moves[:MOST_MOVES]:
        rows.add_row(move.task.replace("[", r"\["), move.before, move.after)
    console.print(rows)
    if len(moves) > MOST_MOVES:
        console.print(f"and {len(moves) - MOST_MOVES} more")


def _print_alternatives(made: Decision) -> None:
    if not made.alternatives:
        return
    rows = table("alternative", "moves", "score", "gain")
    for one in made.alternatives:
        name = f"[bold green]{one.name} ★[/]" if one.chosen else one.name
        score = "not allowed" if one.score is None else number(one.score, 4)
        score = "too slow" if one.score is not None and one.score <= UNSUSTAINED / 2 else score
        rows.add_row(name, str(one.moves), score, change_in_words(one.gain))
    console.print(rows)


def _print_others(episode: Episode, again: Decision, others: list[Decision], same: bool) -> None:
    if not same:
        difference = f"recomputed, it differs: {again.reason}"
        cause = likely_cause(episode.decision)
        print_line(f"{difference}; likely cause: {cause}", "yellow")
    elif changed := model_changed(episode.decision):
        print_line(f"recomputed, it is the same, but {changed}", "yellow")
    if not others:
        return
    rows = table("policy", "moves", "gain", "would act", "why", left=("would act", "why"))
    for one in (episode.decision, *others):
        acts = "yes" if one.acts else "no"
        rows.add_row(
            one.inputs.policy, str(len(one.moves)), change_in_words(one.gain), acts, one.reason.replace("[", r"\[")
        )
    console.print(rows)


def plot_history(book: LedgerContents, title: str, path: Path) -> None:
    """Draw the mean and the 99th percentile of every reading, the bound of every change, and its outcome."""
    figure, axis = panels(1, 1, 9, 4)
    _draw_readings(axis, book.readings)
    named: set[str] = set()
    for episode in book.episodes:
        decision, verdict = episode.decision, episode.verdict
        label = "" if verdict in named else verdict  # an empty label is not in the legend
        named.add(verdict)
        if verdict in QUIET:
            axis.plot([decision.at], [0], "|", color=GREY, clip_on=False, zorder=3, label=label)
            continue
        colour = COLOURS.get(verdict, "#444444")
        axis.axvline(decision.at, color=colour, linewidth=1.0, linestyle="--", label=label)
        axis.text(decision.at, 1.01, f" {decision.number}", transform=axis.get_xaxis_transform(), fontsize=8)
        if (times := in_force(episode)) is not None:
            bound = "" if BOUND in named else BOUND
            named.add(BOUND)
            axis.hlines(1e3 * decision.bound_s, *times, color=colour, linewidth=1.0, label=bound)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("time since the run began (s)")
    axis.set_ylabel("latency (ms)")
    tidy(axis, "y")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path)


def _draw_readings(axis: Axes, readings: Sequence[Reading]) -> None:
    for place, stretch in enumerate(stretches(readings)):
        times = [reading.at for reading in stretch]
        lone = "." if len(stretch) == 1 else ""  # a line through one point is invisible
        labels = ("", "") if place else ("p99", "mean")
        p99 = [1e3 * (reading.p99_s or 0.0) for reading in stretch]
        axis.plot(times, p99, marker=lone, color="#c9d6e4", linewidth=1.2, label=labels[0])
        mean = [1e3 * (reading.mean_s or 0.0) for reading in stretch]
        axis.plot(times, mean, marker=lone, color=BAR, linewidth=1.5, label=labels[1])


def in_force(episode: Episode) -> tuple[float, float] | None:
    """Return the start and end of a change before its outcome; None: it was never in force, or still is.

    It starts when the policy had decided, not when the decision was requested.
    """
    outcome = episode.outcome
    return None if outcome is None or not outcome.in_force_s else (outcome.at - outcome.in_force_s, outcome.at)


def stretches(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Split readings into continuous stretches, at gaps without latencies: during decisions and recoveries."""
    found: list[list[Reading]] = []
    before = None
    for reading in readings:
        if reading.mean_s is None:
            before = None
            continue
        shorter = reading.seconds if before is None else min(reading.seconds, before.seconds)
        if before is None or reading.at - before.at > APART * shorter:
            found.append([])
        found[-1].append(reading)
        before = reading
    return found
