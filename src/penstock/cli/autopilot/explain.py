"""`penstock autopilot explain`: why the autopilot decided as it did, and what another policy would have decided."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.autopilot.decision import likely_cause, model_changed, replay
from penstock.autopilot.ledger import Decision, Episode, Inputs, LedgerContents, TaskMove
from penstock.cli.autopilot.history import open_ledger, percent, realised
from penstock.cli.formatting import plural
from penstock.cli.inputs import JsonOption, RunOption, RunsOption, policy_names
from penstock.cli.output import console, number, print_json, table
from penstock.cli.run_view import clock
from penstock.estimate.evaluator import UNSUSTAINED
from penstock.model.errors import InvalidInput, UnknownName, choices

EXAMPLE = "penstock autopilot explain last --policy r-storm --policy t-storm"
MOST_MOVES = 12  # in the list


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
    """
    _, book = open_ledger(run, runs)
    episode = find(book, decision)
    again = replay(episode)
    same = again == episode.decision
    others = [replay(episode, other) for other in policy or []]
    if as_json:
        found = {"decision": episode.decision, "outcome": episode.outcome, "reproduced": same, "others": others}
        print_json(found | {"model_changed": bool(model_changed(episode.decision))})
        return
    _print(episode)
    _print_others(episode, again, others, same)


def find(book: LedgerContents, text: str) -> Episode:
    """Return the decision of a number."""
    known = {str(one.decision.number): one for one in book.episodes}
    if not known:
        raise InvalidInput("decision", "no decision in this run yet; wait, or name another --run")
    found = known.get(list(known)[-1] if text == "last" else text)
    if found is None:
        raise UnknownName("decision", f"there is none numbered {text!r}; there are {choices(known)}")
    return found


def _print(episode: Episode) -> None:
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
        change = percent(realised(episode))
        lines.append(("realised", f"{1e3 * outcome.realised_s:.3g} ms, {change}; predicted {percent(-made.gain)}"))
    if outcome is not None and outcome.note:
        lines.append(("why", outcome.note))
    for name, text in lines:
        console.print(f"{name:<11}{text}", markup=False, soft_wrap=True)
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
        rows.add_row(name, str(one.moves), score, percent(one.gain))
    console.print(rows)


def _print_others(episode: Episode, again: Decision, others: list[Decision], same: bool) -> None:
    if not same:
        difference = f"recomputed, it differs: {again.reason}"
        cause = likely_cause(episode.decision)
        console.print(f"{difference}; likely cause: {cause}", style="yellow", markup=False, soft_wrap=True)
    elif changed := model_changed(episode.decision):
        console.print(f"recomputed, it is the same, but {changed}", style="yellow", markup=False, soft_wrap=True)
    if not others:
        return
    rows = table("policy", "moves", "gain", "would act", "why", left=("would act", "why"))
    for one in (episode.decision, *others):
        acts = "yes" if one.acts else "no"
        rows.add_row(one.inputs.policy, str(len(one.moves)), percent(one.gain), acts, one.reason.replace("[", r"\["))
    console.print(rows)
