"""`penstock plan`: choose where each task runs, and predict throughput, latency and energy."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import asdict, replace
from rich.table import Table

from penstock.cli import inputs, plan_latency, plan_sizing
from penstock.cli.app_spec import tuple_policies
from penstock.cli.flows import both
from penstock.cli.formatting import policies_in_words
from penstock.cli.output import console, duration, fitted, number, policy_cell, print_json, print_line, size, table
from penstock.cli.planned_load import planned_load
from penstock.cli.plots import plot_decisions
from penstock.cli.progress import counting
from penstock.cli.svg import plan_svg
from penstock.estimate.energy import RADIOS, Energy, Power
from penstock.estimate.energy import energy as estimate_energy
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.files import save as save_file
from penstock.model.files import write_whole
from penstock.model.parallelism import resized
from penstock.model.placement import Infeasible, Placement
from penstock.model.spec import build
from penstock.model.topology import Topology
from penstock.model.tuples import TuplePolicies
from penstock.planning.advice import advise
from penstock.planning.planner import Decision, Planner
from penstock.policies.api import BoundingPolicy
from penstock.policies.registry import placement_policy
from penstock.policies.streams import kept_note

GAP_S = 1.0  # maximum time to search for a bound
NO_GAP = 5e-5  # a gap that is printed as 0.00 %
SHOWN_MACHINES = 6  # of the energy by machine

ModelOption = Annotated[
    Path | None,
    typer.Option(help="Latency models, from penstock models train latency: policies then minimise latency."),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        help="Tuples per second of all sources, for --model or --parallelism auto; default: the application's own, or "
        "that of --tables."
    ),
]
TablesOption = Annotated[
    Path | None,
    typer.Option(help="Tables, from penstock models tables: --model then uses the load of a run's last minutes."),
]
RunOption = Annotated[str | None, typer.Option(help="Run in --tables, if it has several: a name, or latest.")]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Print the bottleneck of the best and what would relieve it; with --model also its slowest paths.",
    ),
]
EnergyOption = Annotated[
    str | None,
    typer.Option(
        metavar="RADIO",
        help="Print joules per source tuple on machines with this radio: wi-fi, lte, or "
        "lte:cpu_watts=5; default of cpu_watts: 2.",
    ),
]
SaveOption = Annotated[Path | None, typer.Option(help="Save the best as a plan (.toml, .json).")]
PlotOption = Annotated[Path | None, typer.Option(help="Draw the comparison (.png, .svg, .pdf).")]
SvgOption = Annotated[Path | None, typer.Option(help="Draw the best placement on the cluster (.svg).")]


def plan(
    application: inputs.ApplicationArgument,
    cluster: inputs.ClusterArgument,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    policy: inputs.PoliciesOption = None,
    objective: inputs.ObjectiveOption = "throughput",
    parallelism: plan_sizing.ParallelismOption = None,
    model: ModelOption = None,
    rate: RateOption = None,
    tables: TablesOption = None,
    run: RunOption = None,
    seed: inputs.SeedOption = 0,
    explain: ExplainOption = False,
    energy: EnergyOption = None,
    save: SaveOption = None,
    routing: inputs.RoutingOption = None,
    sending: inputs.SendingOption = None,
    slot_ms: inputs.SlotOption = None,
    plot: PlotOption = None,
    svg: SvgOption = None,
    as_json: inputs.JsonOption = False,
) -> None:
    """Choose where each task runs; predict throughput and latency.

    Compares the placements of the named policies. Throughput is in source tuples per second with settled
    back-pressure; delay is the network's part of the path from source to sink; traffic is what leaves a machine per
    source tuple. All are estimates: nothing runs. Tuple policies are kept in the saved plan, for run and apply. With
    --model the trained latency replaces delay and the objective.
    For sparcle-refined it also prints how far its rate may be from the best, as far as one second of search shows;
    sparcle-refined:bound=true searches for up to 30 s. With --parallelism the plan's number of tasks differs from the
    application's; auto finds it, by default with greedy-sorted.

    Example: penstock plan log-processing hetero-small --policy all --explain --save plan.toml
    """
    names = inputs.chosen_policies(policy or ["all"])
    for path, endings in ((save, inputs.TABLES), (plot, inputs.PICTURES), (svg, inputs.SVG)):
        inputs.refuse_file(path, endings, application, cluster)
    wanted, machines = both(application, cluster, inputs.chosen_parameters(parameter, parameters))
    goal, power = inputs.chosen_objective(objective), _power(energy)
    automatic, numbers = plan_sizing.chosen_parallelism(parallelism)
    wanted = resized(wanted, numbers)
    tuples = _tuple_policies(wanted, routing, sending, slot_ms, save)
    sizing: plan_sizing.Sizing | None = None
    if automatic:
        plan_sizing.refuse_sizing_options(goal, model)
        sizing = plan_sizing.find_sizing(wanted, machines, names if policy else None, rate, seed, quiet=as_json)
        planner, decisions = sizing.planned(machines, seed)
    else:
        latency = plan_latency.latency_of(wanted, machines, model, rate, tables, run)
        planner = Planner(wanted, machines, goal, seed, latency=latency)
        decisions = list(_with_progress(planner, names, quiet=as_json))
    best = planner.best(decisions)
    if plot is not None:
        plot_decisions(planner, decisions, plot)
    if best is not None:
        _write(planner, best, tuples, save, svg)
    if as_json:
        _print_json(planner, decisions, best, explain, tuples, power, sizing)
    else:
        if sizing is not None:
            plan_sizing.print_sizing(sizing)
        _print(planner, decisions, best, explain, power)
        _print_files(best, save, (plot, svg if best is not None else None), tuples, planner)
    if best is None:
        raise typer.Exit(1)


def _write(planner: Planner, best: Decision, tuples: TuplePolicies, save: Path | None, svg: Path | None) -> None:
    """Write the plan and the drawing that were requested."""
    if save is not None:
        save_file(replace(planner.plan(best), tuples=tuples), save)
    if svg is not None:
        _draw(planner, best, svg)


def _tuple_policies(
    topology: Topology, routing: list[str] | None, sending: str | None, slot_ms: float | None, save: Path | None
) -> TuplePolicies:
    """Return the tuple policies of the plan; reject invalid ones, and any if no plan is saved."""
    options = {"routing": routing, "sending": sending, "slot_ms": slot_ms}
    for name, value in options.items():
        if value is not None and save is None:
            problem = f"it is kept in a saved plan, got {value!r} without one; add --save FILE"
            raise InvalidInput(name, problem)
    return tuple_policies(topology, routing, sending, slot_ms)


def _with_progress(planner: Planner, names: Sequence[str], quiet: bool) -> Iterator[Decision]:
    with counting("deciding", len(names), quiet) as advance:
        for name in names:
            advance(name, 0)
            yield _with_gap(planner, planner.decide(name))
            advance(name, 1)


def _print(
    planner: Planner, decisions: Sequence[Decision], best: Decision | None, explain: bool, power: Power | None
) -> None:
    topology, cluster = planner.topology, planner.cluster
    title = (
        f"{topology.name} ({topology.task_count} tasks) on {cluster.name} "
        f"({len(cluster.machines)} machines, {cluster.slot_count} slots)"
    )
    console.print(f"[bold]{title}[/]\n")
    console.print(fitted(_table(planner, decisions, best, power)))
    for decision in decisions:
        if isinstance(decision.result, Infeasible):
            reason = decision.result.reason
            found = _finder(planner, decision, best)
            hint = f"; {found} finds one" if found else ""
            console.print(f"[red]{decision.policy}[/]: no placement: {reason}{hint}", soft_wrap=True)
        elif note := decision.result.note:
            console.print(f"[dim]{decision.policy}: {note}[/]", soft_wrap=True)
    if power is not None:
        console.print(_energy_assumptions(power), style="dim", soft_wrap=True)
    if best is None:
        return
    overloaded = [d.policy for d in decisions if d.placed and not planner.sustains(d)]
    if overloaded:
        offered = number(getattr(planner.topology, "offered_tps", 0.0))
        console.print(f"[yellow]cannot sustain the offered {offered}/s: {', '.join(overloaded)}[/]", soft_wrap=True)
    plan_latency.print_training(planner)
    for decision in decisions:
        plan_latency.print_cautions(planner, decision)
    goal = planner.objective if planner.latency is None else "predicted latency"
    console.print(f"\n★ best by {goal}; bold: best in its column. Estimates, nothing ran.", style="dim")
    if explain:
        _print_advice(planner, best)
        _print_energy(planner, best, power)
        if (predicted := planner.predict(best)) is not None:
            plan_latency.print_paths(predicted)


def _table(planner: Planner, decisions: Sequence[Decision], best: Decision | None, power: Power | None) -> Table:
    """Return a table of predictions with a row per policy; the best of each column is bold."""
    time = "delay" if planner.latency is None else "latency"
    taken = ("energy\nJ/tuple",) if power is not None else ()
    heads = ("policy", "throughput\n/s", f"{time}\nms", "traffic\n/tuple", *taken, "machines", "memory")
    rows = table(*heads, "decided\nin")
    energies = [_energy(planner, decision, power) for decision in decisions]
    placed = [d.evaluation for d in decisions if d.evaluation is not None]
    tops = {
        "throughput": max((e.throughput_tps for e in placed), default=0.0),
        time: min((_time_ms(planner, d) for d in decisions if d.placed), default=0.0),
        "traffic": min((e.traffic.machines for e in placed), default=0.0),
        "energy": min((found.joules for found in energies if found is not None), default=0.0),
    }

    def cell(column: str, value: float, text: str) -> str:
        return f"[bold]{text}[/]" if abs(value - tops[column]) <= 1e-9 * abs(tops[column]) else text

    for decision, found in zip(decisions, energies, strict=True):
        name = policy_cell(decision.policy, decision is best)
        e = decision.evaluation
        if e is None:
            memory = "[red]no[/]" if getattr(decision.result, "constraint", "") == "memory" else "-"
            rows.add_row(name, *["-"] * (4 + len(taken)), memory, duration(decision.seconds))
            continue
        rows.add_row(
            name,
            cell("throughput", e.throughput_tps, number(e.throughput_tps)),
            cell(time, _time_ms(planner, decision), number(_time_ms(planner, decision))),
            cell("traffic", e.traffic.machines, size(e.traffic.machines)),
            *([] if found is None else [cell("energy", found.joules, number(found.joules))]),
            str(e.machines),
            "fits" if e.fits_memory else "[red]no[/]",
            duration(decision.seconds),
        )
    return rows


def _time_ms(planner: Planner, decision: Decision) -> float:
    """Return a decision's predicted latency or, without models, its network delay."""
    predicted = planner.predict(decision)
    if predicted is not None:
        return 1e3 * predicted.expected_s
    return float("inf") if decision.evaluation is None else decision.evaluation.delay_ms


def _print_advice(planner: Planner, best: Decision) -> None:
    advice = advise(planner, best)
    if advice is None:
        console.print("\nNothing limits it: no component costs anything.")
        return
    limit = advice.bottleneck
    console.print(
        f"\n[bold]{best.policy}[/]: {limit.kind} [bold]{limit.name}[/] limits the throughput "
        f"to {number(limit.rate_tps)} source tuples/s"
    )
    used = [f"{task} {share:.0%}" for task, share in advice.users[:6]]
    more = f" and {len(advice.users) - 6} more" if len(advice.users) > 6 else ""
    console.print(f"  used by {', '.join(used)}{more}", soft_wrap=True)
    for relief in advice.reliefs if limit.rate_tps > 0 else ():
        gain = relief.rate_tps / limit.rate_tps - 1
        console.print(f"  relief: {relief.change}: {number(relief.rate_tps)}/s ({gain:+.0%})", soft_wrap=True)
    _print_utilisation(planner, best)


def _print_utilisation(planner: Planner, best: Decision) -> None:
    """Print how busy the machines are: at the offered load if it is known, else at the highest rate."""
    rate, busy = _utilisation(planner, best)
    if not busy:
        return
    listed = [f"{name} {share:.0%}" for name, share in list(busy.items())[:8]]
    more = f" and {len(busy) - 8} more" if len(busy) > 8 else ""
    console.print(f"  busy at {number(rate)}/s: {', '.join(listed)}{more}", soft_wrap=True)


def _utilisation(planner: Planner, decision: Decision) -> tuple[float, dict[str, float]]:
    """Return a rate and the share of each used machine's cpu that is busy at it, the busiest first."""
    if not isinstance(decision.result, Placement) or decision.evaluation is None:
        return 0.0, {}
    rate = getattr(planner.topology, "offered_tps", None) or decision.evaluation.throughput_tps
    if rate == float("inf"):
        return rate, {}
    cpu = {machine.name: machine.cpu for machine in planner.cluster.machines}
    named = {e.name: e.load * rate / cpu[e.name] for e in decision.evaluation.at(rate) if e.kind == "machine"}
    return rate, {name: share for name, share in sorted(named.items(), key=lambda pair: -pair[1]) if share > 0}


def _draw(planner: Planner, best: Decision, path: Path) -> None:
    """Draw a decision's placement with its load."""
    made = planner.plan(best)
    write_whole(path, plan_svg(made, planned_load(made, planner.topology, planner.cluster)))


def _print_files(
    best: Decision | None, save: Path | None, drawn: Sequence[Path | None], tuples: TuplePolicies, planner: Planner
) -> None:
    if save is not None:
        named = ", ".join(policies_in_words(tuples))
        saved = f"saved {save}{f' with {named}' if named else ''}"
        console.print(saved if best is not None else f"nothing saved as {save}: no placement", soft_wrap=True)
        if note := kept_note(tuples, planner.topology):
            print_line(note, "dim")
    for path in drawn:
        if path is not None:
            console.print(f"drew {path}", soft_wrap=True)


def _print_json(
    planner: Planner,
    decisions: Sequence[Decision],
    best: Decision | None,
    explain: bool,
    tuples: TuplePolicies,
    power: Power | None,
    sizing: plan_sizing.Sizing | None,
) -> None:
    answer: dict[str, Any] = {
        "application": planner.topology.name,
        "cluster": planner.cluster.name,
        "objective": str(planner.objective) if planner.latency is None else "latency",
        "best": best.policy if best else None,
        "tuples": tuples,
        "decisions": [_record(planner, decision, best, power) for decision in decisions],
        **({} if sizing is None else {"sizing": plan_sizing.sizing_record(sizing)}),
    }
    if explain and best is not None and (advice := advise(planner, best)) is not None:
        answer["advice"] = {
            "bottleneck": {**advice.bottleneck._asdict(), "rate_tps": advice.bottleneck.rate_tps},
            "users": dict(advice.users),
            "reliefs": [relief._asdict() for relief in advice.reliefs],
        }
    if explain and best is not None and (predicted := planner.predict(best)) is not None:
        answer["paths"] = plan_latency.paths_record(predicted)
    print_json(answer)


def _finder(planner: Planner, decision: Decision, best: Decision | None) -> str:
    """Return a policy that finds a placement if `decision` has none, without a proof that none exists; else ""."""
    if best is None:
        return planner.another(decision)
    return best.policy if isinstance(decision.result, Infeasible) and not decision.result.proven else ""


def _record(planner: Planner, decision: Decision, best: Decision | None, power: Power | None) -> dict[str, Any]:
    if isinstance(decision.result, Infeasible) or decision.evaluation is None:
        refusal = decision.result
        reason: dict[str, Any] = {}
        if isinstance(refusal, Infeasible):
            reason = {"constraint": refusal.constraint, "reason": refusal.reason, "proven": refusal.proven}
            reason["found_by"] = _finder(planner, decision, best) or None
        return {"policy": decision.policy, "placed": False, "seconds": decision.seconds, **reason}
    e = decision.evaluation
    made = planner.plan(decision)
    return {
        "policy": decision.policy,
        "placed": True,
        "seconds": decision.seconds,
        "throughput_tps": e.throughput_tps,
        "delay_ms": e.delay_ms,
        **plan_latency.latency_record(planner, decision),
        **_energy_record(planner, decision, power),
        "traffic_bytes_per_tuple": e.traffic._asdict(),
        "machines": e.machines,
        "slots": e.slots,
        "fits_memory": e.fits_memory,
        "bottleneck": None if e.bottleneck is None else f"{e.bottleneck.kind} {e.bottleneck.name}",
        "gap": decision.result.gap,
        "note": decision.result.note,
        "tasks": made.tasks,
        "routes": made.routes,
        "utilisation": dict(zip(("rate_tps", "machines"), _utilisation(planner, decision), strict=True)),
    }


def _with_gap(planner: Planner, decision: Decision) -> Decision:
    """Return a decision with its optimality gap, if its policy can bound it and has not done so."""
    found, policy = decision.result, placement_policy(decision.policy)
    if not isinstance(policy, BoundingPolicy) or not isinstance(found, Placement) or found.gap is not None:
        return decision
    bounded = policy.bounded(planner.view, found, GAP_S)
    if bounded.gap is not None and bounded.gap > NO_GAP:
        bounded = dataclasses.replace(
            bounded, note=f"{bounded.note}; bound=true may show that it is less, in up to 30 s"
        )
    return dataclasses.replace(decision, result=bounded)


def _power(text: str | None) -> Power | None:
    """Parse the power that machines are assumed to draw: `wi-fi`, or `lte:cpu_watts=4`."""
    if text is None:
        return None
    radio, _, settings = text.partition(":")
    if radio not in RADIOS:
        raise UnknownName("energy", f"no radio is named {radio!r}; {nearest(radio, RADIOS)}")
    return build(f"energy.{radio}", Power, settings, asdict(RADIOS[radio]))


def _energy(planner: Planner, decision: Decision, power: Power | None) -> Energy | None:
    """Return the energy of a placement per source tuple; None without a placement or a power."""
    if power is None or not isinstance(decision.result, Placement):
        return None
    return estimate_energy(planner.evaluator.tasks, planner.evaluator.slots, planner.cluster, decision.result, power)


def _print_energy(planner: Planner, best: Decision, power: Power | None) -> None:
    """Print the energy of the best per source tuple: in total, by activity and by machine."""
    found = _energy(planner, best, power)
    if found is None:
        return
    parts = ", ".join(f"{name} {number(float(part.sum()))} J" for name, part in found._asdict().items())
    console.print(f"  energy per source tuple: {number(found.joules)} J ({parts})", soft_wrap=True)
    if listed := list(_by_machine(planner, found).items()):
        more = f" and {len(listed) - SHOWN_MACHINES} more" if len(listed) > SHOWN_MACHINES else ""
        machines = ", ".join(f"{name} {number(joules)} J" for name, joules in listed[:SHOWN_MACHINES])
        console.print(f"    by {machines}{more}", soft_wrap=True)


def _energy_assumptions(power: Power) -> str:
    """Describe the assumed power; clusters do not describe any."""
    radio = f"{power.send_joules_a_megabit:g} J for a megabit sent, {power.receive_joules_a_megabit:g} J received"
    return f"energy: assumed {power.cpu_watts:g} W of a busy machine, {radio}; nothing of what is drawn idle"


def _energy_record(planner: Planner, decision: Decision, power: Power | None) -> dict[str, Any]:
    """Return the energy of a decision for JSON; empty without a power."""
    found = _energy(planner, decision, power)
    if power is None or found is None:
        return {}
    parts = {f"{name}_j": float(part.sum()) for name, part in found._asdict().items()}
    record = {
        "joules_a_tuple": found.joules,
        **parts,
        "machines": _by_machine(planner, found),
        "assumed": asdict(power),
    }
    return {"energy": record}


def _by_machine(planner: Planner, found: Energy) -> dict[str, float]:
    """Return the joules per source tuple of each machine that uses any, the highest first."""
    joules = found.processing + found.sending + found.receiving
    named = {machine.name: float(own) for machine, own in zip(planner.cluster.machines, joules, strict=True)}
    return {name: own for name, own in sorted(named.items(), key=lambda pair: -pair[1]) if own > 0}
