"""`penstock sim slotted`: simulate an application in time slots, and compare routing policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.api.sources.pace import ArrivalProcess
from penstock.cli.inputs import (
    ApplicationArgument,
    ClusterArgument,
    JsonOption,
    ParametersOption,
    SetOption,
    chosen_parameters,
    naming,
    refuse_outputs,
)
from penstock.cli.output import console
from penstock.cli.progress import counting
from penstock.cli.sim.options import (
    ArrivalsOption,
    CheckOption,
    ForecasterOption,
    LinkOption,
    LookAheadOption,
    PlanOption,
    PlotOption,
    PolicyOption,
    RoutingsOption,
    SeedsOption,
    SendingOption,
    SlotOption,
    SlotsOption,
    WarmUpOption,
)
from penstock.cli.sim.scenario import find_arrivals, find_scenario
from penstock.cli.sim.slotted_tables import SlottedReport, print_report, print_report_json
from penstock.model.errors import InvalidInput
from penstock.model.plan import Plan
from penstock.policies.registry import forecaster as make_forecaster
from penstock.policies.streams import SPREADING
from penstock.simulation.slotted import (
    DEFAULT_SLOT_MS,
    DEFAULT_SLOTS,
    LookAhead,
    RoutingComparison,
    SlottedApplication,
    all_routings,
    planned_routing,
    simulate_application,
)

EXAMPLE = (
    "penstock sim slotted word-count li-10 --routing shuffle --routing potus:v=3 --arrivals on-off:rate=4000,burst=0.5"
)


def slotted(
    application: ApplicationArgument,
    cluster: ClusterArgument,
    parameter: SetOption = None,
    parameters: ParametersOption = None,
    routing: RoutingsOption = None,
    sending: SendingOption = None,
    arrivals: ArrivalsOption = None,
    slots: SlotsOption = None,
    slot_ms: SlotOption = None,
    warm_up: WarmUpOption = None,
    policy: PolicyOption = None,
    plan: PlanOption = None,
    look_ahead: LookAheadOption = None,
    forecaster: ForecasterOption = None,
    link: LinkOption = None,
    seed: SeedsOption = None,
    check: CheckOption = False,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate an application in time slots, and compare routing policies.

    Response is from a source tuple's arrival to the last that follows from it. Cost is what a slot's tuples cross
    between machines, in links (1 between machines if there are none); × least relates it to the least at which any
    routing can carry the load (below 1: it does not). Backlog is what waits in all queues, queue the longest out-queue
    observed, waits the mean wait in one, Jain how equal they are (1: all the same). Left are source tuples not finished
    at the end: they count with their age. Narrow terminals show fewer columns, --json shows more.

    It follows POTUS's equations: tasks decide once per slot, tuples sent in one slot arrive in the next. Streams by key
    keep their grouping; their keys, a thousand, are equally likely.
    """
    refuse_outputs(None, plot, application, cluster)
    scenario = find_scenario(application, cluster, chosen_parameters(parameter, parameters), plan, policy, seed)
    process, look = find_arrivals(arrivals), _look(look_ahead, forecaster)
    own = None if scenario.plan is None else scenario.plan.tuples.slot_ms
    length = own or DEFAULT_SLOT_MS if slot_ms is None else slot_ms
    setting = SlottedApplication(scenario.application, scenario.cluster, scenario.placement, length, link)
    routings = _routings(setting, routing, scenario.plan, plan)
    sends = sending or (_planned_sending(scenario.plan) if link is not None else None)
    timed = {"slots": slots, "warm_up": warm_up, "look": look, "seeds": scenario.seeds, "check": check}
    found = _simulated(setting, routings, sends, process, timed, quiet=as_json)
    notes = _notes(setting, scenario.plan, sends)
    report = SlottedReport(setting, found, scenario.placed_by, arrivals, look, list(scenario.seeds), notes)
    _show(report, check, plot, as_json)


def _simulated(
    setting: SlottedApplication,
    routings: list[str],
    sends: str | None,
    process: ArrivalProcess | None,
    timed: dict[str, Any],
    quiet: bool,
) -> RoutingComparison:
    """Simulate each routing with each seed, with a progress bar."""
    timed = {**timed, "slots": timed["slots"] or DEFAULT_SLOTS}
    with counting("simulating", len(routings) * len(timed["seeds"]), quiet=quiet) as advance:
        return simulate_application(
            setting, routings, sends=sends, arrivals=process, **timed, on_result=lambda spec: advance(spec, 1)
        )


def _show(report: SlottedReport, check: bool, plot: Path | None, as_json: bool) -> None:
    """Print the results, and draw them if a file is named."""
    if plot is not None:
        from penstock.cli.sim.slotted_plots import plot_simulation  # imports matplotlib

        plot_simulation(report.found, f"{report.setting.topology.name} on {report.setting.cluster.name}", plot)
    if as_json:
        print_report_json(report)
        return
    print_report(report)
    if check:
        console.print("checked: in every slot every tuple was in exactly one place", style="dim")
    if plot is not None:
        console.print(f"drew {plot}")


def _look(ahead: int | None, forecaster: str | None) -> LookAhead:
    if forecaster is None:
        return LookAhead(ahead or 0)
    make_forecaster(forecaster)
    if ahead == 0:
        problem = f"expected 1 slot or more with --forecaster {forecaster}, got 0; leave one out"
        raise InvalidInput("look_ahead", problem)
    return LookAhead(1 if ahead is None else ahead, forecaster)


def _routings(
    setting: SlottedApplication, requested: Sequence[str] | None, plan: Plan | None, file: Path | None
) -> list[str]:
    """Return the routings to compare: the requested ones, else the plan's, else all; `all` includes the plan's."""
    planned = None
    if plan is not None and (requested is None or "all" in requested):
        with naming(file or ""):
            planned = planned_routing(plan.tuples, setting.topology)
    wanted = list(requested or [planned or "all"])
    named = list(dict.fromkeys(spec for spec in [*([planned] if planned else []), *wanted] if spec != "all"))
    return all_routings(setting, named) if "all" in wanted else named


def _planned_sending(plan: Plan | None) -> str | None:
    sending = "" if plan is None else plan.tuples.sending
    return None if sending in ("", "none") else sending


def _notes(setting: SlottedApplication, plan: Plan | None, sends: str | None) -> list[str]:
    """Return notes on ignored settings: a plan's sending without --link, streams that keep their grouping."""
    notes = []
    planned = _planned_sending(plan)
    if planned is not None and sends is None:
        notes.append(f"the plan's sending, {planned}, has nothing to decide without --link TUPLES")
    fixed = [f"{one.label} ({one.grouping})" for one in setting.topology.streams if one.grouping not in SPREADING]
    if fixed and len(fixed) < len(setting.topology.streams):
        notes.append(f"streams that keep their grouping, whatever the routing: {', '.join(fixed)}")
    return notes
