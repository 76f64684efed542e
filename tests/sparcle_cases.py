"""The reference answers of ../shared/data/sparcle/cases.json, as applications and clusters."""

import json
from functools import cache
from typing import Any

from penstock.model.cluster import Cluster
from penstock.model.placement import Placement
from penstock.model.slotgraph import expand_slots
from penstock.model.topology import Application
from penstock.workloads.sparcle import known_instance
from tests.shared_data import SHARED

Instance = dict[str, Any]


@cache
def instances() -> list[Instance]:
    """Return all instances with their answers; none where the data is absent."""
    path = SHARED / "sparcle" / "cases.json"
    return list(json.loads(path.read_text())["instances"]) if path.exists() else []


def build(instance: Instance) -> tuple[Application, Cluster]:
    """Return an instance's application and cluster; compare `hosts`, as switches change the numbers of machines."""
    application, cluster = known_instance(instance)
    return application, cluster


def hosts(cluster: Cluster, placement: Placement) -> list[int]:
    """Return for every task of a placement the instance's number of its machine."""
    machine = expand_slots(cluster).machine
    return [int(cluster.machines[machine[slot]].name[1:]) for slot in placement.slots]
