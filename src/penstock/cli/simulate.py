"""`penstock simulate`: which way should tuples go in my application, and which queue should send first?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import app
from penstock.cli.inputs import (
    ApplicationArgument,
    ClusterArgument,
    JsonOption,
    both,
    check_policies_in,
    naming,
    plan_file,
    policy_names,
    refuse_outputs,
)

if TYPE_CHECKING:
    from penstock.cli.simulate_tables import Told
    from penstock.control.simulating import Look, Setting
    from penstock.model.cluster import Cluster
    from penstock.model.placement import Placement
    from penstock.model.plan import Plan
    from penstock.model.topology import Application
    from penstock.workloads.arrivals import ArrivalProcess

EXAMPLES = """Examples:

  penstock simulate word-count li-10

  penstock simulate word-count li-10 --routing shuffle --routing potus:v=3 --arrivals on-off:rate=4000,burst=0.5

  penstock simulate my-app.toml my-cluster.toml --plan plan.toml --arrivals trace.csv:rate=900 --plot my.png

  penstock simulate word-count li-10 --routing potus --look-ahead 5 --forecaster kalman --seed 0 --seed 1 --seed 2

  penstock simulate word-count li-10 --link 60 --sending longest-backlog-first --routing least-loaded

  penstock simulate word-count li-10 --events --policy t-storm --rate 5000 --duration 60
"""
USUAL_POLICY = "t-heron"


def _completer(kind: str, *more: str) -> Callable[[str], list[str]]:
    """Return what completes the name of a policy of a kind."""

    def complete(incomplete: str) -> list[str]:
        from penstock.policies.registry import PolicyKind, names

        return [name for name in (*names(PolicyKind(kind)), *more) if name.startswith(incomplete)]

    return complete


@app.command(epilog=EXAMPLES)
def simulate(
    application: ApplicationArgument,
    cluster: ClusterArgument,
    routing: Annotated[
        list[str] | None,
        typer.Option(
            help="Which way tuples go: NAME or NAME:PARAMETER=VALUE; repeat to compare; all: every other one. Without "
            "it the plan's, or all.",
            autocompletion=_completer("routing", "all"),
        ),
    ] = None,
    sending: Annotated[
        str | None,
        typer.Option(
            help="Which out-queue of a machine sends first; with --link. Without it the plan's, or fifo.",
            autocompletion=_completer("sending"),
        ),
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            metavar="PROCESS",
            help="What comes to all sources together: a trace (FILE or FILE:rate=900,speed=300), or constant, poisson, "
            "on-off (on, burst), self-similar (hurst, cv), diurnal (amplitude, period, phase), step (factor, at), each "
            "with rate=, tuples a second: on-off:rate=900,burst=2. Without it, Poisson at the application's own rate, "
            "or at 80 % of what it can carry.",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="How many slots of time; 10,000 unless said.", min=1)] = None,
    slot_ms: Annotated[
        float | None, typer.Option("--slot-ms", help="A slot's length in milliseconds; the plan's, or 10, unless said.")
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(
            "--warm-up", help="Slots (with --events: seconds) at first that do not count; without it, a tenth.", min=0
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help=f"Who places the tasks; without it, {USUAL_POLICY}.", autocompletion=policy_names),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Instead of --policy: a plan file that says where tasks are; its tuple policies are used."),
    ] = None,
    look_ahead: Annotated[
        int | None, typer.Option("--look-ahead", metavar="SLOTS", help="How far ahead sources see.", min=0)
    ] = None,
    forecaster: Annotated[
        str | None,
        typer.Option(
            help="What they see; without it, exactly what will come. Alone: one slot ahead.",
            autocompletion=_completer("forecast"),
        ),
    ] = None,
    link: Annotated[
        int | None,
        typer.Option(metavar="TUPLES", help="Tuples that may leave a machine a slot; without it, any number.", min=1),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Repeat for means over several.", min=0)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Verify in every slot that no tuple is lost or doubled; slower.")
    ] = False,
    events: Annotated[
        bool, typer.Option("--events", help="Event by event in place of slot by slot: the twin of an emulated run.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(help="With --events: Poisson arrivals, tuples a second of all sources together.", min=0),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="With --events: seconds that count; 60 unless said.", min=0)
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="With --events: a file of what an engine takes, as penstock calibrate writes it."),
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="With --events: a folder for telemetry, which penstock report reads.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw backlogs and response times (.png, .svg, .pdf).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an application slot by slot, and compare ways of routing its tuples.

    Response is from a source tuple's arrival to the last that follows from it. Cost is what a slot's tuples cross
    between machines, in links (1 between machines where there are none); × least relates it to the least at which any
    routing can carry the load (below 1 is one that does not). Backlog is what waits in all queues, queue the longest
    out-queue there was, waits the mean wait in one, Jain how equal they are (1: all the same). Left are source tuples
    not finished at the end: they count with their age. Narrow terminals show fewer columns, --json shows more.

    It follows POTUS's equations: tasks decide once a slot, tuples sent in one slot are there in the next. Streams by
    key keep their grouping; their keys, a thousand, are equally likely.

    With --events there are no slots: every tuple is served, sent and queued at its own time, as on emulated machines
    (shared cores, network cards, links, credits), and latency, throughput and where time goes are shown.
    """
    from penstock.cli.counting import counting
    from penstock.cli.simulate_tables import Told
    from penstock.control.simulating import USUAL_SLOTS, simulate_application

    refuse_outputs(None, plot, application, cluster)
    wanted, machines = both(application, cluster)
    process, look = _process(arrivals), _look(look_ahead, forecaster)
    seeds = list(dict.fromkeys(seed or [0]))
    given = _given(plan, policy, wanted)
    evented = {"rate": rate, "duration": duration, "costs": costs, "records": records}
    if events:
        from penstock.cli.simulate_events import Asked, Case, refuse_slotted, simulate_by_events

        slotted = {"routing": routing, "sending": sending, "slots": slots, "slot-ms": slot_ms, "link": link}
        refuse_slotted({**slotted, "look-ahead": look_ahead, "forecaster": forecaster, "check": check})
        placement = _setting(wanted, machines, given, plan, policy or USUAL_POLICY, None, None, seeds[0]).placement
        case = Case(wanted, machines, placement, str(plan or policy or USUAL_POLICY), seeds)
        simulate_by_events(case, Asked(rate, process, duration, warm_up, costs, records, plot, as_json))
        return
    from penstock.cli.simulate_events import refuse_evented

    refuse_evented(evented)
    setting = _setting(wanted, machines, given, plan, policy or USUAL_POLICY, slot_ms, link, seeds[0])
    routings = _routings(setting, routing, given, plan)
    sends = sending or (_planned_sending(given) if link is not None else None)
    timed: dict[str, Any] = {"slots": slots or USUAL_SLOTS, "warm_up": warm_up, "look": look, "seeds": seeds}
    with counting("simulating", len(routings) * len(seeds), quiet=as_json) as tell:
        found = simulate_application(
            setting, routings, sends=sends, arrivals=process, **timed, check=check, on_result=lambda spec: tell(spec, 1)
        )
    notes = _notes(setting, given, sends)
    _show(Told(setting, found, str(plan or policy or USUAL_POLICY), arrivals, look, seeds, notes), check, plot, as_json)


def _show(told: "Told", check: bool, plot: Path | None, as_json: bool) -> None:
    """Draw what was found, where that is asked for, and print it."""
    from penstock.cli.output import console
    from penstock.cli.simulate_tables import print_found, print_found_json

    if plot is not None:
        from penstock.cli.simulate_plots import plot_simulation

        plot_simulation(told.found, f"{told.setting.topology.name} on {told.setting.cluster.name}", plot)
    if as_json:
        print_found_json(told)
        return
    print_found(told)
    if check:
        console.print("checked: in every slot every tuple was in exactly one place", style="dim")
    if plot is not None:
        console.print(f"drew {plot}")


def _process(spec: str | None) -> "ArrivalProcess | None":
    """Return the arrival process of a text; a recording is read, so that a missing one is told at once."""
    from penstock.model.errors import InvalidInput
    from penstock.workloads.arrivals import Replay, arrivals

    if spec is None:
        return None
    process = arrivals(spec)
    if process.slot != 1.0:
        raise InvalidInput("arrivals.slot", f"expected none, got {process.slot:g}; use --slot-ms")
    if isinstance(process, Replay):
        process.trace  # noqa: B018  reading it is the check
    return process


def _look(ahead: int | None, forecaster: str | None) -> "Look":
    from penstock.control.simulating import Look
    from penstock.model.errors import InvalidInput
    from penstock.policies.registry import forecaster as make

    if forecaster is None:
        return Look(ahead or 0)
    make(forecaster)
    if ahead == 0:
        problem = f"expected 1 slot or more beside --forecaster {forecaster}, got 0: nobody would look; leave one out"
        raise InvalidInput("look_ahead", problem)
    return Look(1 if ahead is None else ahead, forecaster)


def _given(plan: Path | None, policy: str | None, application: "Application") -> "Plan | None":
    """Return the plan that is to be simulated, its tuple policies checked; refuse one beside a policy."""
    from penstock.model.errors import InvalidInput

    if plan is None:
        return None
    if policy is not None:
        raise InvalidInput("policy", f"expected a plan or a policy, got --plan {plan} and {policy}; leave one out")
    found = plan_file(plan)
    if found.application == application.name:  # else that is what is told
        check_policies_in(found, plan, application)
    return found


def _setting(
    application: "Application",
    cluster: "Cluster",
    given: "Plan | None",
    file: Path | None,
    policy: str,
    slot_ms: float | None,
    link: int | None,
    seed: int,
) -> "Setting":
    """Return the application in slots, its tasks where the plan or the policy has them."""
    from penstock.control.simulating import USUAL_SLOT_MS, Setting
    from penstock.model.plan import to_placement

    if given is None:
        placement, own = _placed(application, cluster, policy, seed), None
    else:
        with naming(file or ""):
            placement, own = to_placement(given, application, cluster), given.tuples.slot_ms
    return Setting(application, cluster, placement, own or USUAL_SLOT_MS if slot_ms is None else slot_ms, link)


def _placed(application: "Application", cluster: "Cluster", policy: str, seed: int) -> "Placement":
    from penstock.control.planner import Planner
    from penstock.model.errors import InvalidInput
    from penstock.model.placement import Infeasible

    result = Planner(application, cluster, seed=seed).decide(policy).result
    if isinstance(result, Infeasible):
        raise InvalidInput("policy", f"{policy} finds no placement: {result.reason}")
    return result


def _routings(setting: "Setting", asked: Sequence[str] | None, given: "Plan | None", file: Path | None) -> list[str]:
    """Return the routings to compare: those asked for, else the plan's, else all; of `all` the plan's as it has it."""
    from penstock.control.simulating import all_routings, planned_routing

    planned = None
    if given is not None and (asked is None or "all" in asked):
        with naming(file or ""):
            planned = planned_routing(given.tuples, setting.topology)
    wanted = list(asked or [planned or "all"])
    named = list(dict.fromkeys(spec for spec in [*([planned] if planned else []), *wanted] if spec != "all"))
    return all_routings(setting, named) if "all" in wanted else named


def _planned_sending(given: "Plan | None") -> str | None:
    sending = "" if given is None else given.tuples.sending
    return None if sending in ("", "none") else sending


def _notes(setting: "Setting", given: "Plan | None", sends: str | None) -> list[str]:
    """Say what a user might expect to be otherwise: a plan's sending without a link, streams that no routing rules."""
    from penstock.policies.streams import SPREADING

    notes = []
    planned = _planned_sending(given)
    if planned is not None and sends is None:
        notes.append(f"the plan's sending, {planned}, has nothing to decide without --link TUPLES")
    fixed = [f"{one.label} ({one.grouping})" for one in setting.topology.streams if one.grouping not in SPREADING]
    if fixed and len(fixed) < len(setting.topology.streams):
        notes.append(f"streams that keep their grouping, whatever the routing: {', '.join(fixed)}")
    return notes
