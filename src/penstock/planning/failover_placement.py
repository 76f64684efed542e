"""Where the tasks of a running application go when machines are lost, and which of them move when one is added.

`completion` answers while everything stands still, on the controller's thread: so all that takes time is done when it
is made, at the start of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import msgspec
import numpy as np

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster
from penstock.model.objective import Objective
from penstock.model.taskgraph import task_names
from penstock.model.topology import Application
from penstock.planning.planner import Planner
from penstock.policies.api import PlacementView
from penstock.policies.repair import Repair, gain
from penstock.runtime.controller.settings import Complete, fewest

ROOMY_MB = 1e15  # of a machine whose memory is not looked at
ANSWER_S = 0.02  # that an answer should take; what is not spent in scoring comes to about as much again
FEWEST, MOST = 64, 4096  # placements that are scored for an answer
WORTH = 0.1  # by which share the objective must be better for tasks to move


def completion(
    application: Application,
    cluster: Cluster,
    objective: Objective | str = Objective.THROUGHPUT,
    policy: Repair | None = None,
) -> Complete:
    """Return what completes a placement on the slots that are left: only tasks whose slot is gone are placed.

    They go where the objective is best. It always answers, if need be beyond the memory that there is or on a machine
    to which a task is not pinned; the same for the same slots. Without a policy, as many placements are scored as a
    fiftieth of a second allows.
    """
    view = _view(application, cluster, objective)
    return _Completion(view, policy or Repair(_affordable(view)))


def additions(
    application: Application,
    cluster: Cluster,
    placement: Sequence[str],
    objective: Objective | str = Objective.THROUGHPUT,
    moves: int | None = None,
) -> list[tuple[str, str]]:
    """Return the moves, task and slot, that make use of the machines on which no task runs yet.

    They are as few as reach nearly all that such moves can, and at most `moves`, or as many as these machines' share of
    all tasks by their cpu; none where the objective is not better by a tenth then.
    """
    view = _view(application, cluster, objective)
    number = {name: slot for slot, name in enumerate(cluster.slot_names)}
    placed = np.array([number[slot] for slot in placement], dtype=np.int32)
    machine = view.slots.machine
    idle = ~np.isin(machine, machine[placed])
    if moves is None:
        share = view.slots.machine_cpu[np.unique(machine[idle])].sum() / view.slots.machine_cpu.sum()
        moves = int(np.ceil(len(placed) * share))
    found = Repair().extend(view, placed, idle, moves) if idle.any() else []
    after = placed.copy()
    for task, slot in found:
        after[task] = slot
    if not found or not _worth(view, placed, after):
        return []
    names = task_names(application)
    return [(names[task], cluster.slot_names[slot]) for task, slot in found]


@dataclass(frozen=True)
class _Completion:
    """Turns names of slots into numbers and back, around a policy."""

    view: PlacementView
    policy: Repair

    def __call__(self, wanted: Sequence[str], available: Sequence[str]) -> Sequence[str]:
        there, names = set(available), self.view.cluster.slot_names
        if not there:
            raise ValueError("no slot is available")
        number = {name: slot for slot, name in enumerate(names)}
        stays = [slot in there for slot in wanted]
        strange = [slot for slot, stay in zip(wanted, stays, strict=True) if stay and slot not in number]
        opened = np.array([name in there for name in names])
        if strange or not opened.any():  # slots of which nothing is known but that they are there
            return fewest(wanted, available)
        kept = [number[slot] if stay else -1 for slot, stay in zip(wanted, stays, strict=True)]
        placed = self.policy.complete(self.view, np.array(kept, dtype=np.int32), opened)
        return [names[slot] for slot in placed]


def _view(application: Application, cluster: Cluster, objective: Objective | str) -> PlacementView:
    """Return what the policy sees, with a scorer that does not look at memory and is ready to be used."""
    planner = Planner(application, cluster, objective)
    objective = planner.objective
    reference = planner.reference if objective is Objective.BALANCED else None
    roomy = [msgspec.structs.replace(m, memory_mb=ROOMY_MB, slot_memory_mb=None) for m in cluster.machines]
    evaluator = Evaluator(application, msgspec.structs.replace(cluster, machines=tuple(roomy)))
    view = PlacementView(application, cluster, objective, evaluator.scorer(objective, reference))
    _score_some(view)
    return view


def _score_some(view: PlacementView) -> float:
    """Score a few placements, which loads the kernels, and return the seconds that one takes."""
    assert view.evaluate is not None, "the view was made with it"
    task = np.arange(view.tasks.number)
    used = [max(1, view.slots.number // share) for share in (1, 2, 4, 8)]  # the more crowded, the longer it takes
    rows = np.array([task % slots for slots in used], dtype=np.int32)
    started = perf_counter()
    view.evaluate(rows)
    return (perf_counter() - started) / len(rows)


def _affordable(view: PlacementView) -> int:
    """Return how many placements an answer may score; a power of two, so that it seldom differs from run to run."""
    seconds = min(_score_some(view) for _ in range(3))
    return int(np.clip(2 ** np.floor(np.log2(ANSWER_S / max(seconds, 1e-9))), FEWEST, MOST))


def _worth(view: PlacementView, before: np.ndarray, after: np.ndarray) -> bool:
    """Say whether a placement is so much better than another that tasks should move."""
    assert view.evaluate is not None, "the view was made with it"
    old, new = (float(score) for score in view.evaluate(np.array([before, after], dtype=np.int32)))
    if view.objective == Objective.BALANCED:  # is a gain over a reference itself
        return new - old >= WORTH
    return gain(old, new) >= WORTH
