"""`penstock simulate`: which way should tuples go in my application, and which queue should send first?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cli.app import app
from penstock.cli.inputs import (
    ApplicationArgument,
    ClusterArgument,
    JsonOption,
    ParametersOption,
    SetOption,
    both,
    check_policies_in,
    chosen_parameters,
    naming,
    plan_file,
    refuse_outputs,
)
from penstock.cli.simulate_options import (
    USUAL_POLICY,
    ArrivalsOption,
    CheckOption,
    CostsOption,
    DurationOption,
    EventsOption,
    ForecasterOption,
    LinkOption,
    LookAheadOption,
    PlanOption,
    PlotOption,
    PolicyOption,
    RateOption,
    RecordsOption,
    RoutingsOption,
    SeedsOption,
    SendingOption,
    SlotOption,
    SlotsOption,
    WarmUpOption,
)

if TYPE_CHECKING:
    from penstock.cli.simulate_tables import Told
    from penstock.model.cluster import Cluster
    from penstock.model.placement import Placement
    from penstock.model.plan import Plan
    from penstock.model.topology import Application
    from penstock.simulation.slotted import LookAhead, RoutingComparison, SlottedApplication
    from penstock.workloads.arrivals import ArrivalProcess

EXAMPLES = """Examples:

  penstock simulate word-count li-10

  penstock simulate word-count li-10 --routing shuffle --routing potus:v=3 --arrivals on-off:rate=4000,burst=0.5

  penstock simulate my-app.toml my-cluster.toml --plan plan.toml --arrivals trace.csv:rate=900 --plot my.png

  penstock simulate word-count li-10 --routing potus --look-ahead 5 --forecaster kalman --seed 0 --seed 1 --seed 2

  penstock simulate word-count li-10 --link 60 --sending longest-backlog-first --routing least-loaded

  penstock simulate word-count li-10 --events --policy t-storm --rate 5000 --duration 60
"""


@app.command(epilog=EXAMPLES)
def simulate(
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
    events: EventsOption = False,
    rate: RateOption = None,
    duration: DurationOption = None,
    costs: CostsOption = None,
    records: RecordsOption = None,
    plot: PlotOption = None,
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
    from penstock.cli.simulate_events import Asked, Case, refuse_evented, refuse_slotted, simulate_by_events
    from penstock.cli.simulate_tables import Told

    refuse_outputs(None, plot, application, cluster)
    wanted, machines = both(application, cluster, chosen_parameters(parameter, parameters))
    process, look = _process(arrivals), _look(look_ahead, forecaster)
    seeds = list(dict.fromkeys(seed or [0]))
    tasks = _Tasks(wanted, machines, _given(plan, policy, wanted), plan, policy or USUAL_POLICY, seeds)
    if events:
        slotted = {"routing": routing, "sending": sending, "slots": slots, "slot-ms": slot_ms, "link": link}
        refuse_slotted({**slotted, "look-ahead": look_ahead, "forecaster": forecaster, "check": check})
        case = Case(wanted, machines, _setting(tasks, None, None).placement, tasks.placed_by, seeds)
        simulate_by_events(case, Asked(rate, process, duration, warm_up, costs, records, plot, as_json))
        return
    refuse_evented({"rate": rate, "duration": duration, "costs": costs, "records": records})
    setting = _setting(tasks, slot_ms, link)
    routings = _routings(setting, routing, tasks.given, plan)
    sends = sending or (_planned_sending(tasks.given) if link is not None else None)
    timed = {"slots": slots, "warm_up": warm_up, "look": look, "seeds": seeds, "check": check}
    found = _simulated(setting, routings, sends, process, timed, quiet=as_json)
    notes = _notes(setting, tasks.given, sends)
    _show(Told(setting, found, tasks.placed_by, arrivals, look, seeds, notes), check, plot, as_json)


class _Tasks(NamedTuple):
    """The tasks to simulate, and who says where they are."""

    application: "Application"
    cluster: "Cluster"
    given: "Plan | None"
    file: Path | None  # of the plan
    policy: str  # where there is none
    seeds: list[int]

    @property
    def placed_by(self) -> str:
        """Who says where they are."""
        return str(self.file or self.policy)


def _simulated(
    setting: "SlottedApplication",
    routings: list[str],
    sends: str | None,
    process: "ArrivalProcess | None",
    timed: dict[str, Any],
    quiet: bool,
) -> "RoutingComparison":
    """Simulate each routing with each seed, counting along."""
    from penstock.cli.counting import counting
    from penstock.simulation.slotted import USUAL_SLOTS, simulate_application

    timed = {**timed, "slots": timed["slots"] or USUAL_SLOTS}
    with counting("simulating", len(routings) * len(timed["seeds"]), quiet=quiet) as tell:
        return simulate_application(
            setting, routings, sends=sends, arrivals=process, **timed, on_result=lambda spec: tell(spec, 1)
        )


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


def _look(ahead: int | None, forecaster: str | None) -> "LookAhead":
    from penstock.model.errors import InvalidInput
    from penstock.policies.registry import forecaster as make
    from penstock.simulation.slotted import LookAhead

    if forecaster is None:
        return LookAhead(ahead or 0)
    make(forecaster)
    if ahead == 0:
        problem = f"expected 1 slot or more beside --forecaster {forecaster}, got 0: nobody would look; leave one out"
        raise InvalidInput("look_ahead", problem)
    return LookAhead(1 if ahead is None else ahead, forecaster)


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


def _setting(tasks: _Tasks, slot_ms: float | None, link: int | None) -> "SlottedApplication":
    """Return the application in slots, its tasks where the plan or the policy has them."""
    from penstock.model.plan import to_placement
    from penstock.simulation.slotted import USUAL_SLOT_MS, SlottedApplication

    application, cluster, given = tasks.application, tasks.cluster, tasks.given
    if given is None:
        placement, own = _placed(application, cluster, tasks.policy, tasks.seeds[0]), None
    else:
        with naming(tasks.file or ""):
            placement, own = to_placement(given, application, cluster), given.tuples.slot_ms
    return SlottedApplication(
        application, cluster, placement, own or USUAL_SLOT_MS if slot_ms is None else slot_ms, link
    )


def _placed(application: "Application", cluster: "Cluster", policy: str, seed: int) -> "Placement":
    from penstock.model.errors import InvalidInput
    from penstock.model.placement import Infeasible
    from penstock.planning.planner import Planner

    result = Planner(application, cluster, seed=seed).decide(policy).result
    if isinstance(result, Infeasible):
        raise InvalidInput("policy", f"{policy} finds no placement: {result.reason}")
    return result


def _routings(
    setting: "SlottedApplication", asked: Sequence[str] | None, given: "Plan | None", file: Path | None
) -> list[str]:
    """Return the routings to compare: those asked for, else the plan's, else all; of `all` the plan's as it has it."""
    from penstock.simulation.slotted import all_routings, planned_routing

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


def _notes(setting: "SlottedApplication", given: "Plan | None", sends: str | None) -> list[str]:
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
