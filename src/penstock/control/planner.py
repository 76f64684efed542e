"""Ask policies where tasks should run, check their answers, and say what each would give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import numpy as np

from penstock.estimate.evaluator import Evaluation, Evaluator, Objective
from penstock.estimate.flow import PLANNING, FlowEstimate, FlowModel
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.placement import Infeasible, Placement
from penstock.model.plan import Plan, to_plan
from penstock.model.routes import widest_path
from penstock.model.topology import Topology
from penstock.policies.api import PlacementView
from penstock.policies.checks import violations
from penstock.policies.registry import make

REFERENCES = ("i-storm", "flink")  # what TATA's reward is relative to


class InvalidResult(RuntimeError):
    """A policy broke a rule of placements: a defect of the policy, not of its input."""


@dataclass(frozen=True)
class Decision:
    """What a policy answered, and what that would give."""

    policy: str
    result: Placement | Infeasible
    evaluation: Evaluation | None  # None: no placement
    seconds: float  # time to decide

    @property
    def placed(self) -> bool:
        """Whether the policy found a placement."""
        return isinstance(self.result, Placement)


@dataclass(frozen=True)
class Planner:
    """Plans one application on one cluster for one objective."""

    topology: Topology
    cluster: Cluster
    objective: Objective = Objective.THROUGHPUT
    seed: int = 0
    model: FlowModel = PLANNING

    @cached_property
    def evaluator(self) -> Evaluator:
        """What says what a placement gives."""
        return Evaluator(self.topology, self.cluster, self.model)

    @cached_property
    def view(self) -> PlacementView:
        """What the policies see."""
        reference = self.reference if self.objective is Objective.BALANCED else None
        scorer = self.evaluator.scorer(self.objective, reference)
        view = PlacementView(self.topology, self.cluster, self.objective, scorer)
        if self.cluster.routed:  # loads the kernel, so that no policy is charged for it
            widest_path(view.links, np.zeros(len(view.links.bandwidth)), 1.0, 0, 0)
        return view

    @cached_property
    def reference(self) -> FlowEstimate:
        """The mean throughput and delay of the reference policies, for the balanced objective (TATA, eq. (11)-(13))."""
        bare = PlacementView(self.topology, self.cluster)
        found = [e for name in REFERENCES if (e := self._decide(name, bare).evaluation) is not None]
        if not found:
            names = " nor ".join(REFERENCES)
            problem = f"balanced needs a reference, and neither {names} finds a placement; choose another objective"
            raise InvalidInput("objective", problem)
        return FlowEstimate(
            float(np.mean([evaluation.throughput_tps for evaluation in found])),
            float(np.mean([evaluation.delay_ms for evaluation in found])),
        )

    def decide(self, policy: str) -> Decision:
        """Ask one policy, named as in the registry, with its parameters."""
        return self._decide(policy, self.view)

    def _decide(self, policy: str, view: PlacementView) -> Decision:
        chosen = make(policy)
        rng = np.random.default_rng(self.seed)
        started = perf_counter()
        result = chosen.place(view, rng)
        seconds = perf_counter() - started
        if isinstance(result, Infeasible):
            return Decision(policy, result, None, seconds)
        if broken := violations(view, result):
            raise InvalidResult(f"{policy}: {broken[0]}")
        return Decision(policy, result, self.evaluator.evaluate(result), seconds)

    def compare(self, policies: Sequence[str]) -> Iterator[Decision]:
        """Ask many policies one after another."""
        for policy in policies:
            yield self.decide(policy)

    def score(self, decision: Decision) -> float:
        """Return how good a decision is by the objective, the higher the better; -inf without a placement."""
        if not isinstance(decision.result, Placement) or self.view.evaluate is None:
            return -np.inf
        if self.objective in (Objective.RATE, Objective.THROUGHPUT) and decision.evaluation is not None:
            evaluation = decision.evaluation  # with the placement's own routes, where a scorer would route anew
            return evaluation.rate_tps if self.objective is Objective.RATE else evaluation.throughput_tps
        return float(self.view.evaluate(np.asarray([decision.result.slots], dtype=np.int32))[0])

    def best(self, decisions: Sequence[Decision]) -> Decision | None:
        """Return the best placed decision; among equals the one that sends least between machines, then the first."""
        placed = [(self.score(d), d.evaluation.traffic.machines, d) for d in decisions if d.evaluation is not None]
        if not placed:
            return None
        top = max(score for score, _, _ in placed)
        equal = [(sent, d) for score, sent, d in placed if score >= top - 1e-9 * abs(top)]
        return min(equal, key=lambda pair: pair[0])[1]

    def plan(self, decision: Decision) -> Plan:
        """Return a decision as a plan."""
        if not isinstance(decision.result, Placement) or decision.evaluation is None:
            raise ValueError("no placement, no plan")
        evaluation = decision.evaluation
        return to_plan(
            self.topology,
            self.cluster,
            decision.result,
            policy=decision.policy,
            objective=self.objective,
            seed=self.seed,
            expected={
                "throughput_tps": evaluation.throughput_tps,
                "rate_tps": evaluation.rate_tps,
                "delay_ms": evaluation.delay_ms,
                "traffic_bytes_per_tuple": evaluation.traffic.machines,
            },
        )
