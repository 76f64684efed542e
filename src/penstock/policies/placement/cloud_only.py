"""Cloud only, SPARCLE's baseline: everything on the most powerful machine.

It corresponds to sending all data from the field to the cloud: no traffic between machines except to and from the
components that are pinned elsewhere.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.errors import UnknownMachine, nearest
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room


@dataclass(frozen=True, slots=True)
class CloudOnly:
    """Put all tasks that are not pinned on one machine, balanced over its slots.

    A task that needs a resource or a label that this machine lacks goes to the most powerful machine that has it.

    machine: its name; none: the machine with the largest cores × speed, ties by number.
    """

    machine: str | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used. Raise `UnknownMachine` if the cluster lacks the machine."""
        cloud = self._cloud(view.cluster)
        draft = Draft(view)
        if (stuck := draft.put_pinned()) is not None:
            return make_room(draft, stuck)
        power = view.slots.machine_cpu
        for task in np.flatnonzero(view.pins < 0).tolist():
            able = view.machines_with_resources(task)
            machine = cloud if able[cloud] or not able.any() else int(np.argmax(np.where(able, power, -1.0)))
            if not draft.machines_with_room(task)[machine]:
                return draft.refusal(task, machine)
            draft.put_on(task, machine)
        return draft.done()

    def _cloud(self, cluster: Cluster) -> int:
        if self.machine is None:
            return int(np.argmax([machine.cpu for machine in cluster.machines]))
        if self.machine not in cluster.machine_index:
            raise UnknownMachine(
                "policy.cloud-only.machine",
                f"cluster {cluster.name!r} has no {self.machine!r}; {nearest(self.machine, cluster.machine_index)}",
            )
        return cluster.machine_index[self.machine]
