"""The placement of tasks when machines of a running application fail, and the moves when a machine is added.

`completion` answers while the run is suspended, on the controller's thread. Therefore everything slow is done when it
is created, at the start of a run.
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
from penstock.policies.repair import Repair, relative_gain
from penstock.runtime.controller.run_spec import Complete, place_on_fewest

ROOMY_MB = 1e15  # memory of a machine for scoring, which ignores memory
ANSWER_S = 0.02  # target time for an answer; everything except scoring takes about as long again
FEWEST, MOST = 64, 4096  # range of placements scored for an answer
WORTH = 0.1  # minimum relative gain for which tasks are moved


def completion(
    application: Application,
    cluster: Cluster,
    objective: Objective | str = Objective.THROUGHPUT,
    policy: Repair | None = None,
) -> Complete:
    """Return a function that places the tasks whose slots have failed on the remaining slots.

    It maximises the objective. It always returns a placement, if necessary one that exceeds memory or ignores a pin,
    and always the same one for the same slots. Without a policy, it scores the number of placements that a fiftieth of
    a second allows.
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
    """Return moves, task and slot, to machines on which no task runs yet.

    It returns few moves that achieve nearly all of the possible gain, and at most `moves`; default: the share of these
    machines in the total cpu, times the number of tasks. It returns none if the gain is below 10 %.
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
    """Calls a policy with slot numbers instead of names."""

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
        if strange or not opened.any():  # slots that are not in the description
            return place_on_fewest(wanted, available)
        kept = [number[slot] if stay else -1 for slot, stay in zip(wanted, stays, strict=True)]
        placed = self.policy.complete(self.view, np.array(kept, dtype=np.int32), opened)
        return [names[slot] for slot in placed]


def _view(application: Application, cluster: Cluster, objective: Objective | str) -> PlacementView:
    """Return the policy's view, with a scorer that ignores memory and whose kernels are compiled."""
    planner = Planner(application, cluster, objective)
    objective = planner.objective
    reference = planner.reference if objective is Objective.BALANCED else None
    roomy = [msgspec.structs.replace(m, memory_mb=ROOMY_MB, slot_memory_mb=None) for m in cluster.machines]
    evaluator = Evaluator(application, msgspec.structs.replace(cluster, machines=tuple(roomy)))
    view = PlacementView(application, cluster, objective, evaluator.scorer(objective, reference))
    _score_some(view)
    return view


def _score_some(view: PlacementView) -> float:
    """Score a few placements, which loads the kernels, and return the seconds per placement."""
    assert view.evaluate is not None, "the view has a scorer"
    task = np.arange(view.tasks.number)
    used = [max(1, view.slots.number // share) for share in (1, 2, 4, 8)]  # the more crowded, the slower
    rows = np.array([task % slots for slots in used], dtype=np.int32)
    started = perf_counter()
    view.evaluate(rows)
    return (perf_counter() - started) / len(rows)


def _affordable(view: PlacementView) -> int:
    """Return how many placements an answer may score; a power of two, so that it rarely differs between runs."""
    seconds = min(_score_some(view) for _ in range(3))
    return int(np.clip(2 ** np.floor(np.log2(ANSWER_S / max(seconds, 1e-9))), FEWEST, MOST))


def _worth(view: PlacementView, before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether a placement is sufficiently better than another to move tasks."""
    assert view.evaluate is not None, "the view has a scorer"
    old, new = (float(score) for score in view.evaluate(np.array([before, after], dtype=np.int32)))
    if view.objective == Objective.BALANCED:  # the score is already a relative gain
        return new - old >= WORTH
    return relative_gain(old, new) >= WORTH
