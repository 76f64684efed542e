"""Where a run can execute: Spark's executors as machines, and the worker processes on each."""

import os
from collections.abc import Sequence

import msgspec

from penstock.model.cluster import Cluster, Machine
from penstock.runtime.controller.run_spec import Site, sites_of
from penstock.runtime.spark.executors import Executor


def discover(executors: Sequence[Executor], local: bool, slots: int | None = None) -> Cluster:
    """Describe Spark's executors as a cluster: a machine each, of which one core is kept free.

    slots: their total number, dealt to the executors in turn. Default: one per core.
    """
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


def worker_places(cluster: Cluster, executors: Sequence[Executor], emulated: bool) -> list[tuple[Site, Executor]]:
    """Return the worker processes, one per emulated machine or else per slot, and the executor of each."""
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


def _shares(executors: Sequence[Executor], slots: int | None) -> list[int]:
    """Return how many slots each executor has."""
    room = [executor.machine.slots for executor in executors]
    if slots is None:
        return room
    shares = [0] * len(room)
    for _ in range(min(slots, sum(room))):
        shares[min((number for number, most in enumerate(room) if shares[number] < most), key=shares.__getitem__)] += 1
    return shares


def host_capacity() -> tuple[float, float]:
    """Return the number of cores of this host, which count as speed 1, and its memory in MB."""
    return float(os.cpu_count() or 1), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
