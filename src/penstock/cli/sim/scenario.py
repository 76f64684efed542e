"""What `penstock sim slotted` and `penstock sim twin` simulate: options, application, cluster, placement, arrivals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from penstock.api.sources.pace import ArrivalProcess
from penstock.cli.flows import both
from penstock.cli.inputs import check_policies_in, completing, naming, plan_file, policy_names
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.placement import Infeasible, Placement
from penstock.model.plan import Plan, planned_topology, to_placement
from penstock.model.topology import Application
from penstock.planning.planner import Planner
from penstock.policies.registry import PolicyKind, names
from penstock.workloads.arrivals import Replay, arrivals

USUAL_POLICY = "t-heron"


RoutingsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Routing policy, NAME or NAME:PARAMETER=VALUE; repeatable; all: all others; default: the plan's, or all.",
        autocompletion=completing(*names(PolicyKind.ROUTING), "all"),
    ),
]
SendingOption = Annotated[
    str | None,
    typer.Option(
        help="Sending policy, which orders a machine's out-queues, with --link; default: the plan's, or fifo.",
        autocompletion=completing(*names(PolicyKind.SENDING)),
    ),
]
ArrivalsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PROCESS",
        help="Arrivals of all sources together: a trace (FILE or FILE:rate=900,speed=300), or "
        "constant, poisson, on-off (on, burst), self-similar (hurst, cv), diurnal (amplitude, "
        "period, phase), step (factor, at), each with rate= in tuples per second: "
        "on-off:rate=900,burst=2; default: Poisson at the application's own rate, or at 80 % "
        "of its capacity.",
    ),
]
SlotsOption = Annotated[int | None, typer.Option(help="Number of slots; default: 10,000.", min=1)]
SlotOption = Annotated[
    float | None, typer.Option("--slot-ms", help="Length of a slot in milliseconds; default: the plan's, or 10.")
]
WarmUpOption = Annotated[
    int | None, typer.Option("--warm-up", help="Slots before measuring starts; default: a tenth of them.", min=0)
]
WarmUpSecondsOption = Annotated[
    float | None, typer.Option("--warm-up", help="Seconds before measuring starts; default: a tenth of them.", min=0)
]
PolicyOption = Annotated[
    str | None,
    typer.Option(help=f"Policy that places the tasks; default: {USUAL_POLICY}.", autocompletion=policy_names),
]
PlanOption = Annotated[Path | None, typer.Option(help="Plan file to use instead of --policy, with its tuple policies.")]
LookAheadOption = Annotated[
    int | None, typer.Option("--look-ahead", metavar="SLOTS", help="Slots that sources see ahead.", min=0)
]
ForecasterOption = Annotated[
    str | None,
    typer.Option(
        help="Forecaster of what they see; default: the actual arrivals; alone: one slot ahead.",
        autocompletion=completing(*names(PolicyKind.FORECAST)),
    ),
]
LinkOption = Annotated[
    int | None,
    typer.Option(metavar="TUPLES", help="Maximum tuples that leave a machine per slot; default: no limit.", min=1),
]
SeedsOption = Annotated[
    list[int] | None, typer.Option(help="Random seed; repeatable: results are means over seeds.", min=0)
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Check in every slot that no tuple is lost or duplicated; slower.")
]
RateOption = Annotated[
    float | None, typer.Option(help="Poisson arrivals, tuples per second of all sources together.", min=0)
]
DurationOption = Annotated[float | None, typer.Option(help="Measured seconds; default: 60.", min=0)]
CostsOption = Annotated[Path | None, typer.Option(help="Costs of the engine, from penstock sim calibrate.")]
RecordsOption = Annotated[Path | None, typer.Option(help="A folder for telemetry, which penstock report reads.")]
PlotOption = Annotated[Path | None, typer.Option(help="Draw backlogs and response times (.png, .svg, .pdf).")]


class Scenario(NamedTuple):
    """An application with its tasks on a cluster."""

    application: Application
    cluster: Cluster
    plan: Plan | None
    placement: Placement
    placed_by: str  # the plan's file or the policy
    seeds: Sequence[int]


def find_scenario(
    application: str,
    cluster: str,
    parameters: Mapping[str, Any],
    plan: Path | None,
    policy: str | None,
    seeds: Sequence[int] | None,
) -> Scenario:
    """Return the scenario of a command line; a plan, or else a policy, places its tasks."""
    wanted, machines = both(application, cluster, parameters)
    distinct = list(dict.fromkeys(seeds or [0]))
    chosen = _plan(plan, policy, wanted)
    if plan is None or chosen is None:
        name = policy or USUAL_POLICY
        return Scenario(wanted, machines, None, _placed(wanted, machines, name, distinct[0]), name, distinct)
    with naming(plan):
        wanted = planned_topology(chosen, wanted)
        return Scenario(wanted, machines, chosen, to_placement(chosen, wanted, machines), str(plan), distinct)


def find_arrivals(text: str | None) -> ArrivalProcess | None:
    """Return the arrival process of a text; a recording is read at once to report a missing file early."""
    if text is None:
        return None
    process = arrivals(text)
    if process.slot != 1.0:
        raise InvalidInput("arrivals.slot", f"expected none, got {process.slot:g}; use --slot-ms")
    if isinstance(process, Replay):
        process.trace  # noqa: B018  reading it is the check
    return process


def _plan(plan: Path | None, policy: str | None, application: Application) -> Plan | None:
    """Return the plan to simulate, its tuple policies checked; reject one together with a policy."""
    if plan is None:
        return None
    if policy is not None:
        raise InvalidInput("policy", f"expected a plan or a policy, got --plan {plan} and {policy}; leave one out")
    found = plan_file(plan)
    if found.application == application.name:  # otherwise the application is the error to report
        check_policies_in(found, plan, application)
    return found


def _placed(application: Application, cluster: Cluster, policy: str, seed: int) -> Placement:
    result = Planner(application, cluster, seed=seed).decide(policy).result
    if isinstance(result, Infeasible):
        raise InvalidInput("policy", f"{policy} finds no placement: {result.reason}")
    return result
