"""Asks policies for placements, checks the results, and predicts their performance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter

import numpy as np

from penstock.estimate.evaluator import Evaluation, Evaluator
from penstock.estimate.flow import FlowEstimate, FlowModel
from penstock.estimate.latency import LatencyModel, LatencyModels, Loads, Prediction
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput, PenstockError, member
from penstock.model.instance import Instance
from penstock.model.kernel import interpreting, preparing
from penstock.model.objective import Objective
from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.plan import Plan, to_plan
from penstock.model.topology import Application, Topology
from penstock.policies.api import PlacementView
from penstock.policies.checks import violations
from penstock.policies.registry import placement_policy

REFERENCES = ("i-storm", "flink")  # TATA's reward is relative to these policies


FINDERS = ("round-robin", "local-search")  # policies to try if another finds no placement
ARRANGED = (
    Constraint.MEMORY,
    Constraint.SLOTS,
    Constraint.ANTI_AFFINITY,
)  # constraints that another placement may satisfy


class NoPlacement(PenstockError):
    """The policy found no placement for the application."""


class InvalidResult(RuntimeError):
    """A policy returned a placement that violates a rule: a defect of the policy, not of its input."""


@dataclass(frozen=True)
class Decision:
    """The result of a policy, and its predicted performance."""

    policy: str
    result: Placement | Infeasible
    evaluation: Evaluation | None  # None without a placement
    seconds: float  # time to decide

    @property
    def placed(self) -> bool:
        """Whether the policy found a placement."""
        return isinstance(self.result, Placement)


@dataclass(frozen=True)
class Planner:
    """Plans an application on a cluster for an objective, or, with `latency`, for minimum predicted latency."""

    topology: Topology
    cluster: Cluster
    objective: Objective | str = Objective.THROUGHPUT  # a name is converted to its member
    seed: int = 0
    model: FlowModel | None = None
    latency: LatencyModel | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", member("objective", Objective, self.objective))

    @cached_property
    def evaluator(self) -> Evaluator:
        """Predicts the performance of placements."""
        return Evaluator(self.topology, self.cluster, self.model)

    @cached_property
    def view(self) -> PlacementView:
        """The input of the policies."""
        if self.latency is not None:
            return PlacementView(self.topology, self.cluster, "latency", self.latency.scorer())
        reference = self.reference if self.objective is Objective.BALANCED else None
        scorer = self.evaluator.scorer(self.objective, reference)
        return PlacementView(self.topology, self.cluster, self.objective, scorer)

    @cached_property
    def reference(self) -> FlowEstimate:
        """The mean throughput and delay of the reference policies, for the balanced objective (TATA, eq. (11)-(13))."""
        bare = PlacementView(self.topology, self.cluster)
        found = [e for name in REFERENCES if (e := self._decide(name, bare).evaluation) is not None]
        if not found:
            names = " nor ".join(REFERENCES)
            problem = f"balanced needs a reference, and neither {names} finds a placement; choose another objective"
            raise InvalidInput("objective", problem)
        throughput = float(np.mean([evaluation.throughput_tps for evaluation in found]))
        delay = float(np.mean([evaluation.delay_ms for evaluation in found]))
        if not (0 < throughput < np.inf and 0 < delay < np.inf):
            problem = f"balanced needs a reference that costs something, got {throughput:g}/s and {delay:g} ms"
            raise InvalidInput("objective", f"{problem}; choose another objective")
        return FlowEstimate(throughput, delay)

    def decide(self, policy: str) -> Decision:
        """Ask one policy, specified by name and parameters as in the registry."""
        return self._decide(policy, self.view)

    def another(self, decision: Decision) -> str:
        """Return a policy that finds a placement if `decision` has none, without a proof that none exists; else ""."""
        refusal = decision.result
        if isinstance(refusal, Placement) or refusal.proven or refusal.constraint not in ARRANGED:
            return ""
        own = decision.policy.partition(":")[0]
        return next((name for name in FINDERS if name != own and self.decide(name).placed), "")

    def _decide(self, policy: str, view: PlacementView) -> Decision:
        with interpreting():
            return self._decided(policy, view)

    def _decided(self, policy: str, view: PlacementView) -> Decision:
        chosen = placement_policy(policy)
        rng = np.random.default_rng(self.seed)
        with preparing() as kernels:
            started = perf_counter()
            result = chosen.place(view, rng)
            seconds = perf_counter() - started - kernels.seconds
        if isinstance(result, Infeasible):
            return Decision(policy, result, None, seconds)
        if broken := violations(view, result):
            raise InvalidResult(f"{policy}: {broken[0]}")
        return Decision(policy, result, self.evaluator.evaluate(result), seconds)

    def score(self, decision: Decision) -> float:
        """Return the score of a decision for the objective, higher is better; -inf without a placement."""
        if decision.evaluation is None:
            return -np.inf
        if self.latency is not None and isinstance(decision.result, Placement):
            return float(self.latency.scorer()(np.array([decision.result.slots], dtype=np.int32))[0])
        reference = self.reference if self.objective is Objective.BALANCED else None
        return decision.evaluation.score(self.objective, reference)

    def predict(self, decision: Decision) -> Prediction | None:
        """Return the predicted latency of a decision; None without a placement or latency models."""
        if self.latency is None or not isinstance(decision.result, Placement):
            return None
        return self.latency.predict(decision.result.slots)

    def sustains(self, decision: Decision) -> bool:
        """Return whether a decision's placement sustains the offered load; True if the offered load is unknown."""
        offered = self.topology.offered_tps if isinstance(self.topology, Application) else None
        if offered is None or decision.evaluation is None:
            return offered is None
        return decision.evaluation.throughput_tps >= offered * (1 - 1e-9)

    def best(self, decisions: Sequence[Decision]) -> Decision | None:
        """Return the best decision with a placement, among those that sustain the offered load if there are any.

        Ties are broken by higher throughput, then lower delay, then less traffic, then order.
        """
        placed = [decision for decision in decisions if decision.evaluation is not None]
        placed = [decision for decision in placed if self.sustains(decision)] or placed
        if not placed:
            return None
        top = max(self.score(decision) for decision in placed)
        least = top - 1e-9 * abs(top) if np.isfinite(top) else top  # infinite if nothing has a cost
        return min((d for d in placed if self.score(d) >= least), key=_rank)

    def plan(self, decision: Decision) -> Plan:
        """Return the plan of a decision."""
        if not isinstance(decision.result, Placement) or decision.evaluation is None:
            raise ValueError("a decision without a placement has no plan")
        evaluation = decision.evaluation
        expected = {
            "throughput_tps": evaluation.throughput_tps,
            "delay_ms": evaluation.delay_ms,
            "traffic_bytes_per_tuple": evaluation.traffic.machines,
        }
        if (predicted := self.predict(decision)) is not None:
            expected["latency_ms"] = 1e3 * predicted.expected_s
        return to_plan(
            self.topology,
            self.cluster,
            decision.result,
            policy=decision.policy,
            objective=self.objective,
            seed=self.seed,
            expected={name: value for name, value in expected.items() if np.isfinite(value)},
        )


def latency_model(
    models: LatencyModels, topology: Topology, cluster: Cluster, rates: Mapping[str, float] | None = None
) -> LatencyModel:
    """Return a predictor of latencies from declared costs, at the given rates by source or the application's own."""
    instance = Instance(topology, cluster)
    models.check(topology)
    return LatencyModel(instance, models, Loads.declared(instance, rates))


def observed_latency_model(
    models: LatencyModels,
    topology: Topology,
    cluster: Cluster,
    tables: Path,
    *,
    run: str | None = None,
    rate: float | None = None,
) -> LatencyModel:
    """Return a predictor of latencies from the loads observed in the last minutes of a run, (2.2) and (2.3).

    tables: the pipeline's output folder; run: its name, if the tables contain several; rate: total source tuples per
    second to which the observed load is scaled.
    """
    from penstock.pipeline.reading import read_run

    instance = Instance(topology, cluster)
    models.check(topology)
    seen = read_run(tables, run)
    loads = Loads.observed(instance, seen.features, seen.shares, window_s=seen.window_s)
    given = float(loads.task_tps[instance.tasks.source].sum())
    if rate is not None and given <= 0:
        problem = f"the sources of run {seen.run!r} emitted nothing in its last minutes; choose another run"
        raise InvalidInput("tables", problem)
    return LatencyModel(instance, models, loads if rate is None else loads.scaled(rate / given))


def _rank(decision: Decision) -> tuple[float, float, float]:
    """Return the sort key for decisions with equal scores, rounded so that equal values compare equal."""
    evaluation = decision.evaluation
    assert evaluation is not None, "only placed decisions are ranked"
    measures = (-evaluation.throughput_tps, evaluation.delay_ms, evaluation.traffic.machines)
    return tuple(float(f"{measure:.9g}") for measure in measures)  # type: ignore[return-value]


def plan_by(
    policy: str,
    application: Application,
    cluster: Cluster,
    objective: Objective | str = Objective.THROUGHPUT,
    seed: int = 0,
    models: LatencyModels | None = None,
) -> Plan:
    """Return the plan of a policy for an application on a cluster; raise `NoPlacement` if it finds none.

    With the `application` and `cluster` of a run, the plan can be passed to `Run.apply`. With latency models the plan
    minimises predicted latency instead of the objective.
    """
    latency = None if models is None else latency_model(models, application, cluster)
    planner = Planner(application, cluster, objective, seed, latency=latency)
    decision = planner.decide(policy)
    if not decision.placed:
        reason = getattr(decision.result, "reason", "it gave none")
        other = planner.another(decision)
        hint = f"; {other} finds one" if other else ""
        raise NoPlacement(f"policy: {policy} finds no placement on {cluster.name!r}: {reason}{hint}")
    return planner.plan(decision)
