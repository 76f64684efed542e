"""The part of a cluster that a plan uses, so that a run of the plan starts no worker on unused machines.

Names are kept: slots are `machine/number` and routes name links by their labels. A plan for the whole cluster is also
a plan for the part, except for its cluster digest.
"""

import msgspec

from penstock.model.cluster import Cluster, machine_of
from penstock.model.errors import UnknownName, nearest
from penstock.model.plan import Plan, digest, to_placement
from penstock.model.topology import Topology


def used_part(cluster: Cluster, plan: Plan) -> Cluster:
    """Return the machines that run tasks of a plan, and the links of its routes.

    Machines that only relay become switches. A link is kept together with all others between the same two ends: after a
    move, tuples may travel in the opposite direction over one of two directed links.
    """
    slots = [slot for tasks in plan.tasks.values() for slot in tasks]
    used = {machine_of(slot) for slot in slots}
    for slot in slots:
        if slot not in cluster.slot_names:
            raise UnknownName("plan", f"cluster {cluster.name!r} has no slot {slot!r}; plan again")
    taken = _ends(cluster, plan)
    links = tuple(link for link in cluster.links if frozenset((link.source, link.target)) in taken)
    passed = {end for link in links for end in (link.source, link.target)} - used
    return msgspec.structs.replace(
        cluster,
        machines=tuple(machine for machine in cluster.machines if machine.name in used),
        switches=tuple(node for node in cluster.node_index if node in passed),
        links=links,
    )


def part_of(cluster: Cluster, application: Topology, plan: Plan) -> tuple[Cluster, Plan]:
    """Return the part of a cluster that a plan uses, and the plan for that part; reject a plan for another cluster."""
    to_placement(plan, application, cluster)
    smaller = used_part(cluster, plan)
    return smaller, msgspec.structs.replace(plan, cluster_digest=digest(smaller))


def _ends(cluster: Cluster, plan: Plan) -> set[frozenset[str]]:
    """Return the two ends of every link on the plan's routes."""
    known = {link.label: frozenset((link.source, link.target)) for link in cluster.links}
    labels = {label: None for route in plan.routes for label in route.links}
    for label in labels:
        if label not in known:
            raise UnknownName("plan.routes", f"link {label!r} is unknown; {nearest(label, known)}")
    return {known[label] for label in labels}
