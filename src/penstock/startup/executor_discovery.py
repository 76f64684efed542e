"""Where a run can be: Spark's executors as machines, and which of them has which worker process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.model.cluster import Cluster, Machine

if TYPE_CHECKING:
    from penstock.runtime.controller.settings import Site
    from penstock.runtime.spark.executors import Executor


def discover(executors: Sequence["Executor"], local: bool, slots: int | None = None) -> Cluster:
    """Describe Spark's executors as a cluster: a machine each, of which one core is kept free.

    So many `slots` are dealt to the executors in turn; None: as many as they have cores for.
    """
    from penstock.runtime.worker.memory import host_capacity

    if local:
        cpu, memory = host_capacity()
        machine = Machine(name="local", cores=int(cpu), slots=slots or int(cpu), memory_mb=memory)
        return Cluster(name="embedded", machines=(machine,))
    return Cluster(
        name="spark",
        machines=tuple(
            msgspec.structs.replace(executor.machine, slots=share)
            for executor, share in zip(executors, _shares(executors, slots), strict=True)
            if share
        ),
    )


def places(cluster: Cluster, executors: Sequence["Executor"], emulated: bool) -> list[tuple["Site", "Executor"]]:
    """Say which worker processes there are, and on which executor each: a machine each, or a slot each."""
    from penstock.runtime.controller.settings import Site, sites_of

    if not emulated:
        named = {executor.machine.name: executor for executor in executors}
        return [
            (site, named.get(machine.name, executors[0])) for machine in cluster.machines for site in sites_of(machine)
        ]
    free = {executor: executor.cores - 1 for executor in executors}
    found = []
    for machine in cluster.machines:
        executor = max(free, key=lambda each: free[each])
        free[executor] -= 1
        slots = tuple(f"{machine.name}/{number}" for number in range(machine.slots))
        found.append((Site(machine.name, slots), executor))
    return found


def _shares(executors: Sequence["Executor"], slots: int | None) -> list[int]:
    """Return how many slots each executor has."""
    room = [executor.machine.slots for executor in executors]
    if slots is None:
        return room
    shares = [0] * len(room)
    for _ in range(min(slots, sum(room))):
        shares[min((number for number, most in enumerate(room) if shares[number] < most), key=shares.__getitem__)] += 1
    return shares
