"""The plans of `penstock run`: the first one, from a file or a policy, and those of --then."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from penstock.api.dataflow import Dataflow
from penstock.cli.app_spec import Target
from penstock.cli.inputs import check_policies_in, naming, plan_file, refuse_pins
from penstock.estimate.latency_models import LatencyModels, load_models
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.objective import Objective
from penstock.model.plan import Plan, to_placement
from penstock.planning.planner import plan_by
from penstock.policies.registry import placement_policy
from penstock.runtime.run import Run

Planning = Callable[[Cluster], Plan]  # computes a plan for the cluster that the run has


class Plans(NamedTuple):
    """The first plan of a run, and the policies that replace it later."""

    first: Plan | None  # None: the policy computes it when the cluster is known
    policy: str | None
    later: list[tuple[str, Planning]]  # policies to change to, in order


def find_plans(
    target: Target,
    flow: Dataflow,
    policy: str | None,
    file: Path | None,
    then: list[str],
    duration: float | None,
    model: Path | None,
) -> Plans:
    """Return the plans that the options name, each checked before the run starts."""
    cluster, goal, seed = target.cluster, target.config.planning.objective, target.config.execution.seed
    first = _planned(target.spec.app, flow, cluster, policy, file)
    models = _models(model, policy, cluster)
    if models is not None and policy is not None and cluster is not None:
        ((_, compute),) = _plannings(flow, cluster, [policy], goal, seed, models)
        first, policy = compute(cluster), None
    return Plans(first, policy, _plannings(flow, cluster, _changes(then, duration), goal, seed, models))


def change_to(handle: Run, policy: str, compute: Planning) -> Callable[[], str]:
    """Return a function that applies a policy's plan to a running application."""

    def change() -> str:
        moved = handle.apply(compute(handle.cluster))
        if not moved:
            return f"{policy} moves no task"
        held = max(outcome.seconds for outcome in moved)
        return f"{policy} moved {len(moved)} tasks; none was held up longer than {1e3 * held:.3g} ms"

    return change


def _planned(text: str, flow: Dataflow, cluster: Cluster | None, policy: str | None, file: Path | None) -> Plan | None:
    """Return the plan of a file, or None to plan by the policy; reject a plan that does not fit."""
    topology = flow.application  # rejects an invalid application, such as one without a sink
    if cluster is not None:
        refuse_pins(text, topology, cluster)
    if policy is not None and file is not None:
        raise InvalidInput("policy", f"expected --policy or --plan, got {policy!r} and {file}; leave one out")
    if policy is not None:
        placement_policy(policy)
    if file is None:
        return None
    plan = plan_file(file)
    if cluster is None and plan.cluster not in ("embedded", "spark"):
        problem = f"{file} is a plan for cluster {plan.cluster!r}; add --emulate {plan.cluster}"
        raise InvalidInput("emulate", problem)
    if plan.application != topology.name:
        problem = f"{file} is a plan for {plan.application!r}, not for {topology.name!r}; plan again"
        raise InvalidInput("application", problem)
    check_policies_in(plan, file, topology)
    if cluster is not None:
        with naming(file):
            to_placement(plan, topology, cluster)
    return plan


def _models(file: Path | None, policy: str | None, cluster: Cluster | None) -> LatencyModels | None:
    """Return the latency models that policies predict with; reject a policy before the cluster is known."""
    if file is not None and policy is not None and cluster is None:
        problem = f"a policy needs the machines to predict with latency models, got {policy!r} without --emulate"
        raise InvalidInput("model", f"{problem}; add it, or leave --policy out")
    return None if file is None else load_models(file)


def _changes(policies: list[str], duration: float | None) -> list[str]:
    """Return the policies of --then; reject unknown ones, and any without --duration."""
    for name in policies:
        placement_policy(name)
    if policies and duration is None:
        raise InvalidInput("then", f"expected --duration, which determines when to change to {policies[0]}")
    return policies


def _plannings(
    flow: Dataflow,
    cluster: Cluster | None,
    policies: list[str],
    objective: Objective | None,
    seed: int,
    models: LatencyModels | None,
) -> list[tuple[str, Planning]]:
    """Return each policy with its planning function; if the cluster is known, the plan is computed in advance."""

    def planning(policy: str) -> Planning:
        goal = objective or Objective.THROUGHPUT
        if cluster is None:
            return lambda found: plan_by(policy, flow.application, found, goal, seed, models)
        plan = plan_by(policy, flow.application, cluster, goal, seed, models)
        return lambda _: plan

    return [(policy, planning(policy)) for policy in policies]
