"""Facts derived from an application, a cluster or a plan, for lines below its drawing."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from penstock.cli.formatting import estimate, plural
from penstock.cli.output import duration, number, size
from penstock.model.cluster import Cluster, Machine, machine_of
from penstock.model.plan import Plan
from penstock.model.slotgraph import expand_links
from penstock.model.taskgraph import Tasks, expand_tasks
from penstock.model.topology import Application, Grouping, Topology

NETWORK_LIMIT = 2000  # nodes; beyond, paths between all pairs take too long
MOST_NAMES = 4  # of machines with a label


def facts(thing: Application | Cluster | Plan) -> dict[str, Any]:
    """Return the facts of a thing, by name."""
    if isinstance(thing, Cluster):
        return cluster_facts(thing)
    return plan_facts(thing) if isinstance(thing, Plan) else application_facts(thing)


def facts_in_words(thing: Topology | Cluster | Plan) -> list[str]:
    """Return the facts of a thing, in words."""
    if isinstance(thing, Cluster):
        return _cluster_in_words(thing)
    return _plan_in_words(thing) if isinstance(thing, Plan) else _application_in_words(thing)


def expected_in_words(plan: Plan) -> list[str]:
    """Return the estimates in a plan, in words; none if it has none."""
    parts = [estimate(name, value) for name, value in plan.expected.items()]
    return [f"expected: {parts[0]}", *parts[1:]] if parts else []


def application_facts(topology: Topology) -> dict[str, Any]:
    """Return an application's tasks, memory, and cpu and traffic per source tuple."""
    tasks = expand_tasks(topology)
    return {
        "components": len(topology.components),
        "tasks": topology.task_count,
        "memory_mb": float(tasks.memory_mb.sum()),
        "cpu_per_source_tuple": float(tasks.gain @ tasks.cpu),
        "traffic_bytes_per_source_tuple": stream_bytes(topology, tasks),
        "offered_tps": topology.offered_tps if isinstance(topology, Application) else None,
    }


def stream_bytes(topology: Topology, tasks: Tasks | None = None) -> dict[str, float]:
    """Return the bytes per source tuple of every stream, by its label."""
    tasks = tasks or expand_tasks(topology)
    carried = dict.fromkeys((stream.label for stream in topology.streams), 0.0)
    for flow in tasks.flows:
        one_target = flow.grouping in (Grouping.FORWARD, Grouping.GLOBAL)
        targets = 1 if one_target else len(tasks.of(flow.target))
        sender = tasks.of(flow.source)
        sent = float(tasks.gain[sender.start : sender.stop].sum()) * flow.share * targets * flow.tuple_bytes
        carried[topology.streams[flow.stream].label] = sent
    return carried


def cluster_facts(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster's totals and, for a routed network, its topology."""
    machines = cluster.machines
    found: dict[str, Any] = {
        "machines": len(machines),
        "hosts": len({(machine.host is None, machine.host or machine.name) for machine in machines}),
        "slots": cluster.slot_count,
        "cores": sum(machine.cores for machine in machines),
        "cpu": sum(machine.cpu for machine in machines),
        "memory_mb": sum(machine.memory_mb for machine in machines),
        "routed": cluster.routed,
    }
    return {**found, **_network_facts(cluster)} if cluster.routed else found


def degrees(cluster: Cluster) -> Counter[str]:
    """Return the number of links of every node of a network, by name."""
    ends = Counter(dict.fromkeys(cluster.node_index, 0))
    for link in cluster.links:
        ends.update((link.source, link.target))
    return ends


def machines_by_host(cluster: Cluster) -> dict[str, list[Machine]]:
    """Return the machines of every host that several share; those alone on theirs stand together, under no name."""
    shared = Counter(machine.host for machine in cluster.machines)
    hosts: dict[str, list[Machine]] = {}
    for machine in cluster.machines:
        host = machine.host if machine.host is not None and shared[machine.host] > 1 else ""
        hosts.setdefault(host, []).append(machine)
    return hosts


def process_sizes(machine: Machine) -> list[int]:
    """Return how many slots each process of a machine has."""
    slots = [slot * machine.processes // machine.slots for slot in range(machine.slots)]
    return [count for _, count in sorted(Counter(slots).items())]


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Return the numbers of tasks, used slots and used machines of a plan."""
    slots = {slot for used in plan.tasks.values() for slot in used}
    return {
        "tasks": sum(len(used) for used in plan.tasks.values()),
        "slots": len(slots),
        "machines": len({machine_of(slot) for slot in slots}),
        "routes": len(plan.routes),
    }


def _application_in_words(topology: Topology) -> list[str]:
    found = application_facts(topology)
    offered = found["offered_tps"]
    return [
        plural(found["tasks"], "task"),
        f"{size(found['memory_mb'] * 1e6)} in all",
        f"{duration(found['cpu_per_source_tuple'])} of cpu per source tuple",
        f"{size(sum(found['traffic_bytes_per_source_tuple'].values()))} sent for it",
        f"{number(offered)} tuples/s offered" if offered else "offered rate unknown",
        *(f"{one.name} apart from {', '.join(one.anti_affinity)}" for one in topology.components if one.anti_affinity),
    ]


def _cluster_in_words(cluster: Cluster) -> list[str]:
    found, apart = cluster_facts(cluster), cluster.distances
    parts = [
        f"{plural(found['machines'], 'machine')} on {plural(found['hosts'], 'host')}",
        plural(found["slots"], "slot"),
        f"{plural(found['cores'], 'core')} that do {number(found['cpu'])} core-seconds/s",
        f"{size(found['memory_mb'] * 1e6)} in all",
        *_labels_in_words(cluster),
    ]
    if not cluster.routed:
        delays = (
            f"delay {apart.same_slot_ms:g} ms in a slot, {apart.same_process_ms:g} in a process, "
            f"{apart.same_host_ms:g} on a host, {apart.other_host_ms:g} between hosts"
        )
        return [*parts, delays]
    parts += [plural(found["switches"], "switch", "switches"), plural(found["links"], "link")]
    if "most_hops" in found:
        parts.append(f"hops from machine to machine: {found['mean_hops']:.3g} on average, {found['most_hops']} at most")
    if found.get("unconnected_pairs"):
        parts.append(f"no route between {plural(found['unconnected_pairs'], 'pair')} of machines")
    return parts


def _labels_in_words(cluster: Cluster) -> list[str]:
    """Return each label with the machines that have it, or with their number if they are many."""
    having: dict[str, list[str]] = {}
    for machine in cluster.machines:
        for label in machine.labels:
            having.setdefault(label, []).append(machine.name)
    return [
        f"{label}: {', '.join(names) if len(names) <= MOST_NAMES else plural(len(names), 'machine')}"
        for label, names in having.items()
    ]


def _plan_in_words(plan: Plan) -> list[str]:
    found = plan_facts(plan)
    return [plural(found[name], name.removesuffix("s")) for name in ("tasks", "slots", "machines")]


def _network_facts(cluster: Cluster) -> Mapping[str, Any]:
    degree = degrees(cluster)
    found: dict[str, Any] = {
        "switches": len(cluster.switches),
        "links": len(cluster.links),
        "bandwidth_mbps": sum(link.bandwidth_mbps for link in cluster.links),
        "machine_degrees": _histogram([degree[machine.name] for machine in cluster.machines]),
        "switch_degrees": _histogram([degree[switch] for switch in cluster.switches]),
    }
    return {**found, **_hops(cluster)} if len(degree) <= NETWORK_LIMIT else found


def _histogram(numbers: list[int]) -> dict[str, int]:
    return {str(number): count for number, count in sorted(Counter(numbers).items())}


def _hops(cluster: Cluster) -> Mapping[str, Any]:
    """Return how many links lie between two machines, on average and at most, on the shortest paths."""
    links, machines = expand_links(cluster), len(cluster.machines)
    tail = np.repeat(np.arange(links.nodes), np.diff(links.start))
    arcs = coo_array((np.ones(len(tail)), (tail, links.head)), shape=(links.nodes, links.nodes)).tocsr()
    hops = shortest_path(arcs, unweighted=True, indices=range(machines))[:, :machines]
    apart = hops[~np.eye(machines, dtype=bool)]
    reached = apart[np.isfinite(apart)]
    return {
        "mean_hops": float(reached.mean()) if len(reached) else 0.0,
        "most_hops": int(reached.max()) if len(reached) else 0,
        "unconnected_pairs": int(len(apart) - len(reached)),
    }
