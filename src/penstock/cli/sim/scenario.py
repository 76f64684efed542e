"""The scenario of a simulation: application, cluster, placement and arrivals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.api.sources.pace import ArrivalProcess
from penstock.cli.flows import both
from penstock.cli.inputs import check_policies_in, naming, plan_file
from penstock.cli.sim.options import USUAL_POLICY
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.placement import Infeasible, Placement
from penstock.model.plan import Plan, to_placement
from penstock.model.topology import Application
from penstock.planning.planner import Planner
from penstock.workloads.arrivals import Replay, arrivals


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
