"""The named clusters: those of the papers, and generated ones.

Speed 1 is a 2.0 GHz core, as in Li's cluster; only `field-and-cloud` has speeds in GHz, for costs in giga-cycles.
"""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from penstock.model.cluster import NEAR, Cluster, Link, Machine
from penstock.model.entity import Count, NonNegative, Positive, Probability, SeedNumber
from penstock.model.errors import InvalidInput
from penstock.model.files import load_cluster
from penstock.model.formats.repetita import read_network
from penstock.workloads import networks
from penstock.workloads.choice import Choice, Seed, choose

FIELD_MS, CLOUD_MS = 1.0, 10.0  # latencies of field and cloud links
GIGABIT = 1000.0  # in Mbps
HETEROGENEOUS_SHARE = 0.72  # of TATA's slot graphs
SLOT_CPU = (20, 40)
SLOT_MEMORY_MB = (1024, 2048)


def li(machines: Count = 10) -> Cluster:
    """Li's cluster (§3.3): machines with four cores of 2.0 GHz, 4 GB, ten slots, on a 1 Gbps network.

    A machine is one process, because the tasks of an application share one worker process per machine there.
    """
    return Cluster(
        name=f"li-{machines}",
        machines=tuple(
            Machine(name=f"m{number}", cores=4, speed=1.0, memory_mb=4096.0, slots=10, network_mbps=GIGABIT)
            for number in range(machines)
        ),
    )


def tata() -> Cluster:
    """TATA's cluster (§V-A): task managers with 1, 2, 4 cores of 2.5, 2.0, 2.6 GHz and 2, 4, 8 GB, two slots each.

    Flink divides a task manager's memory evenly among its slots.
    """
    return Cluster(
        name="tata-3",
        machines=tuple(
            Machine(
                name=f"tm{cores}",
                cores=cores,
                speed=ghz / 2.0,
                memory_mb=2048.0 * cores,
                slots=2,
                slot_memory_mb=1024.0 * cores,
            )
            for cores, ghz in ((1, 2.5), (2, 2.0), (4, 2.6))
        ),
    )


def homogeneous(machines: Count = 8, cores: Count = 4, memory_mb: Positive = 8192.0) -> Cluster:
    """Build equal machines with one slot per core on a 1 Gbps network."""
    return Cluster(
        name=f"homogeneous-{machines}",
        machines=tuple(
            Machine(name=f"m{number}", cores=cores, memory_mb=memory_mb, slots=cores, network_mbps=GIGABIT)
            for number in range(machines)
        ),
    )


def hetero(machines: Count = 10, seed: SeedNumber = 0) -> Cluster:
    """Draw machines of 1, 2, 4 or 8 cores (one slot each), speed 0.6 to 1.6, 1 to 4 GB per core, a 1 Gbps network."""
    rng = np.random.default_rng(seed)
    drawn = []
    for number in range(machines):
        cores = int(rng.choice([1, 2, 4, 8]))
        drawn.append(
            Machine(
                name=f"m{number}",
                cores=cores,
                speed=round(float(rng.uniform(0.6, 1.6)), 2),
                memory_mb=1024.0 * cores * int(rng.choice([1, 2, 4])),
                slots=cores,
                network_mbps=GIGABIT,
            )
        )
    return Cluster(name=f"hetero-{machines}-{seed}", machines=tuple(drawn))


def field_and_cloud(
    field_mbps: Positive = 10.0, machines: Count = 4, cloud_mbps: Positive = 100.0, pooled: bool = True
) -> Cluster:
    """Build SPARCLE's testbed (§V-A): `machines` field machines of 3 GHz and a cloud of 4 × 3.8 GHz around a router.

    Speeds are in GHz. Field machines are connected to the router by links of `field_mbps`, the cloud by one of 100
    Mbps.
    pooled: a task may use all 15.2 GHz of the cloud, as in SPARCLE's model of a machine; otherwise it has four cores.
    The number of field machines and the star shape are our interpretation: the text has lost the figure. Its model has
    no latencies; those here are assumptions.
    """
    cloud = Machine(name="cloud", cores=1, speed=15.2) if pooled else Machine(name="cloud", cores=4, speed=3.8, slots=4)
    field = tuple(Machine(name=f"field{number}", speed=3.0) for number in range(1, machines + 1))
    links = (Link(source=m.name, target="router", bandwidth_mbps=field_mbps, latency_ms=FIELD_MS) for m in field)
    return Cluster(
        name="field-and-cloud",
        machines=(*field, cloud),
        switches=("router",),
        links=(*links, Link(source="cloud", target="router", bandwidth_mbps=cloud_mbps, latency_ms=CLOUD_MS)),
        distances=NEAR,
    )


def fabric(
    shape: Literal["star", "line", "complete", "fat-tree", "jellyfish"],
    machines: Annotated[int, Meta(ge=2)] = 8,
    cores: Count = 4,
    speed: Positive = 1.0,
    memory_mb: Positive = 8192.0,
    slots: Count = 4,
    bandwidth_mbps: Positive = GIGABIT,
    latency_ms: NonNegative = 0.1,
    spread: Probability = 0.0,
    seed: SeedNumber = 0,
) -> Cluster:
    """Build a routed network; see `networks` for the shapes and for `spread`."""
    capacities = networks.Capacities(
        cores=cores,
        speed=speed,
        memory_mb=memory_mb,
        slots=slots,
        bandwidth_mbps=bandwidth_mbps,
        latency_ms=latency_ms,
        spread=spread,
    )
    match shape:
        case "star":
            return networks.star(machines, capacities, seed)
        case "line":
            return networks.line(machines, capacities, seed)
        case "complete":
            return networks.complete(machines, capacities, seed)
        case "fat-tree":
            servers, rest = divmod(machines, networks.EDGE_SWITCHES)
            if rest:
                problem = f"expected a multiple of the {networks.EDGE_SWITCHES} edge switches, got {machines}"
                raise InvalidInput("machines", problem)
            return networks.fat_tree(servers, capacities, seed)
        case "jellyfish":
            return networks.jellyfish(servers=machines, capacities=capacities, seed=seed)


def random_slots(seed: SeedNumber = 0) -> Cluster:
    """Draw one slot graph with the statistics of TATA's data set."""
    return draw_slots(seed, name=f"random-slots-{seed}")


def draw_slots(seed: Seed, name: str = "random-slots") -> Cluster:
    """Draw one slot graph with the statistics of TATA's data set; a generator passed as `seed` is advanced.

    2 to 15 slots; 72 % are heterogeneous: two or more processes of random sizes, each with its own cpu (20 to 40) and
    memory (1024 to 2048 MB) for its slots. The others have equal processes of equal slots. One to all of the processes
    share a host with their neighbours.
    """
    rng = np.random.default_rng(seed)
    slots = int(rng.integers(2, 16))
    heterogeneous = bool(rng.random() < HETEROGENEOUS_SHARE)
    if heterogeneous:
        sizes = _parts(slots, int(rng.integers(2, slots + 1)), rng)
    else:
        size = int(rng.choice([size for size in range(1, slots + 1) if slots % size == 0]))
        sizes = [size] * (slots // size)
    shared = _parts(len(sizes), int(rng.integers(1, len(sizes) + 1)), rng)
    hosts = [host for host, processes in enumerate(shared) for _ in range(processes)]
    return Cluster(name=name, machines=tuple(_processes(sizes, hosts, heterogeneous, rng)))


def _parts(total: int, parts: int, rng: np.random.Generator) -> list[int]:
    """Divide a total into positive parts at random."""
    cuts = np.sort(rng.choice(np.arange(1, total), parts - 1, replace=False)) if parts > 1 else np.empty(0, dtype=int)
    edges = [0, *(int(cut) for cut in cuts), total]
    return [end - start for start, end in pairwise(edges)]


def _processes(sizes: list[int], hosts: list[int], heterogeneous: bool, rng: np.random.Generator) -> list[Machine]:
    drawn: list[Machine] = []
    cpu = memory = 0.0
    for process, size in enumerate(sizes):
        if heterogeneous or process == 0:
            cpu = float(rng.integers(SLOT_CPU[0], SLOT_CPU[1] + 1))
            memory = float(rng.integers(SLOT_MEMORY_MB[0], SLOT_MEMORY_MB[1] + 1))
        drawn.append(
            Machine(
                name=f"p{process}",
                cores=size,
                speed=cpu,
                memory_mb=memory * size,
                slots=size,
                slot_memory_mb=memory,
                host=f"d{hosts[process]}",
            )
        )
    return drawn


CLUSTERS: dict[str, Choice[Cluster]] = {
    "li-10": Choice(li, "Li §3.3: ten machines of four cores, 4 GB, ten slots"),
    "tata-3": Choice(tata, "TATA §V-A: task managers of 1, 2, 4 cores, two slots each"),
    "homogeneous-8": Choice(homogeneous, "eight equal machines of four cores"),
    "hetero": Choice(hetero, "random machines of 1 to 8 cores"),
    "hetero-small": Choice(hetero, "4 random machines", {"machines": 4}),
    "hetero-medium": Choice(hetero, "10 random machines", {"machines": 10}),
    "hetero-large": Choice(hetero, "40 random machines", {"machines": 40}),
    "field-and-cloud": Choice(field_and_cloud, "SPARCLE §V-A: field machines and a cloud; speeds in GHz"),
    "star-8": Choice(fabric, "eight machines around a switch", {"shape": "star"}),
    "line-8": Choice(fabric, "eight machines in a line", {"shape": "line"}),
    "complete-6": Choice(fabric, "six machines, all connected to each other", {"shape": "complete", "machines": 6}),
    "fat-tree": Choice(
        fabric, "POTUS §5.1: 16 servers, 24 switches in three tiers", {"shape": "fat-tree", "machines": 16}
    ),
    "jellyfish": Choice(
        fabric, "POTUS §5.1: 16 servers, 24 switches at random", {"shape": "jellyfish", "machines": 16}
    ),
    "random-slots": Choice(random_slots, "a random slot graph with the statistics of TATA's data set, for random-job"),
}


def cluster(spec: str) -> Cluster:
    """Return the cluster that a text specifies, such as `li-10` or `hetero:machines=20,seed=3`."""
    found = choose("cluster", CLUSTERS, spec)
    return found if found.name == spec else msgspec.structs.replace(found, name=spec)


def find_cluster(text: str) -> Cluster:
    """Return the cluster of a file or a built-in name; a `.graph` file is a network in Repetita's format."""
    path = Path(text)
    if path.suffix.lower() == ".graph":
        return read_network(text)
    is_file = path.suffix.lower() in (".toml", ".json") or "/" in text or path.exists()
    return load_cluster(text) if is_file else cluster(text)
