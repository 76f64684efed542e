"""POTUS's simulated systems (§5.1): applications placed on a fabric, source rates by utilisation, arrivals.

The paper gives ranges and leaves much open. Our choices: applications are layered graphs with one output per edge, so a
fork copies tuples; a container is a server and holds ten tasks; γ is twice the maximum service rate, more if a task
emits more; all source components of an application have one rate, such that its fullest component has the given
utilisation.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput, UnknownName, choices
from penstock.model.placement import Infeasible
from penstock.model.slotgraph import expand_slots
from penstock.model.slotted import OUTFLOW, Longs, PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.taskgraph import Floats, expand_tasks
from penstock.model.topology import Kind, Topology
from penstock.policies.api import PlacementView
from penstock.policies.registry import placement_policy
from penstock.workloads.arrivals import Poisson, SelfSimilar
from penstock.workloads.networks import Capacities, fat_tree, jellyfish
from penstock.workloads.topologies import layered
from penstock.workloads.traces import recording, whole_tuples

Fabric = Literal["jellyfish", "fat-tree"]

PLACEMENT = "t-heron"
PARALLELISM = (2, 4)
SERVICE = (3, 5)  # μ, tuples per slot
MAX_COMPONENTS = 6
SLOT_S = 0.01  # length of a slot, for the costs per tuple in seconds
NETWORK_TRACES = ("BC-pAug89-small.TL", "AzureLLMInferenceTrace_conv.csv")
"""Recordings of single packets and requests, like the paper's data-centre trace; others have counts per minute."""

FOLDER = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "arrivals"
"""The folder of real traces, beside a checkout of the repository."""


class PotusWorkload(NamedTuple):
    """A system, and the mean arrivals per slot."""

    system: SlottedSystem
    rates: Floats  # [T] of sources; 0 for other tasks
    applications: tuple[PlacedApplication, ...]
    cluster: Cluster
    utilisation: float  # of the fullest component of every application


class RandomPotusWorkload(NamedTuple):
    """A random system and its parameters."""

    setting: PotusWorkload
    fabric: Fabric
    kind: str  # of arrivals
    hops: int  # on the longest path from a source to a sink


def potus_workload(
    fabric: Fabric = "jellyfish",
    seed: int = 0,
    *,
    utilisation: float = 0.8,
    balanced: bool = False,
    applications: int = 5,
    depth: tuple[int, int] = (3, 5),
    container: int = 10,
    limit: int | None = None,
    spouts: int | None = None,
) -> PotusWorkload:
    """Draw one of the paper's systems.

    balanced: every component has the given `utilisation`, with fractional service rates around 4; otherwise only the
    fullest one of each application. depth: minimum and maximum number of components on the longest path. container:
    tasks per server. limit: γ; default: as large as necessary. spouts: tasks per source; default: random, like other
    components.
    """
    rng = np.random.default_rng(seed)
    cluster = _fabric(fabric, rng, container)
    graphs = [_draw(number, depth, utilisation, balanced, spouts, rng) for number in range(applications)]
    placed = _place([graph.topology for graph in graphs], cluster, rng)
    rates = np.concatenate([graph.rates for graph in graphs])
    if limit is None:
        limit = _least_limit(graphs)
    system = build_slotted_system(placed, cluster, slot_s=SLOT_S, limit=limit)
    exact = np.concatenate([graph.service for graph in graphs])  # without rounding errors
    return PotusWorkload(system._replace(service=exact), rates, tuple(placed), cluster, utilisation)


def random_potus_workload(seed: int, kinds: Sequence[str] = ("poisson", "trace")) -> RandomPotusWorkload:
    """Draw a system of 1 to 5 hops and a utilisation of 0.5 to 0.95.

    Twenty consecutive seeds cover every number of hops with both fabrics and two kinds of arrivals once.
    """
    rng = np.random.default_rng([seed, 1])
    fabric: Fabric = ("jellyfish", "fat-tree")[seed % 2]
    hops = 1 + seed // (2 * len(kinds)) % 5
    made = potus_workload(
        fabric,
        seed,
        utilisation=float(rng.uniform(0.5, 0.95)),
        applications=int(rng.integers(1, 5)),
        depth=(hops + 1, hops + 1),
        container=int(rng.integers(6, 11)),
    )
    return RandomPotusWorkload(made, fabric, kinds[seed // 2 % len(kinds)], hops)


def traces_folder() -> Path | None:
    """Return the folder of real traces, if it exists."""
    return FOLDER if FOLDER.is_dir() else None


def arrival_counts(
    setting: PotusWorkload, kind: str, slots: int, rng: np.random.Generator, folder: Path | None = None
) -> Longs:
    """Return the tuples that arrive at every task in every slot. [T, slots]

    kind: `poisson`; `self-similar`, a substitute for traces; `trace`, recordings of network traffic in `folder`, with
    another file and start for each source task; `trace:TEXT`, the files there whose names contain the text.
    """
    name, _, wanted = kind.partition(":")
    if name not in ("poisson", "self-similar", "trace"):
        raise UnknownName("kind", f"no arrivals are named {kind!r}; there are poisson, self-similar, trace, trace:TEXT")
    counts = np.zeros((len(setting.rates), slots), dtype=np.int64)
    sources = np.flatnonzero(setting.rates > 0)
    files = _files(folder, wanted) if name == "trace" else []
    for number, (task, own) in enumerate(zip(sources, rng.spawn(len(sources)), strict=True)):
        rate = float(setting.rates[task])
        if name == "poisson":
            counts[task] = Poisson(rate=rate).counts(slots, own)
        elif name == "self-similar":
            counts[task] = SelfSimilar(rate=rate).counts(slots, own)
        else:
            counts[task] = _replayed(files[number % len(files)], rate, slots, own)
    return counts


def look_ahead(setting: PotusWorkload, mean: int, rng: np.random.Generator) -> Longs:
    """Draw the look-ahead of each application uniformly from 0 to twice the mean (§5.1), for all of its sources. [T]

    With equal generators, every application gets the same position in the range, whatever the mean.
    """
    drawn = rng.random(int(setting.system.application[-1]) + 1)
    lead = np.floor(drawn * (2 * mean + 1)).astype(np.int64)
    return np.where(setting.system.source, lead[setting.system.application], 0)


class _Graph(NamedTuple):
    """One application before its placement."""

    topology: Topology
    rates: Floats  # [T]
    service: Floats  # [T]
    outflow: float  # maximum tuples that a task emits per slot: never idle, or twice its mean


def _fabric(fabric: Fabric, rng: np.random.Generator, container: int) -> Cluster:
    """Build the network; a task needs one megabyte, so that memory limits the number of tasks."""
    capacities = Capacities(cores=container, slots=container, memory_mb=float(container))
    if fabric == "jellyfish":
        return jellyfish(capacities=capacities, seed=rng)
    if fabric == "fat-tree":
        return fat_tree(capacities=capacities, seed=rng)
    raise UnknownName("fabric", f"none is named {fabric!r}; there are {choices(('jellyfish', 'fat-tree'))}")


def _draw(
    number: int,
    depth: tuple[int, int],
    utilisation: float,
    balanced: bool,
    spouts: int | None,
    rng: np.random.Generator,
) -> _Graph:
    """Draw an application, its service rates and the rates of its sources."""
    bare = _graph(number, depth, spouts, rng)
    tasks = expand_tasks(bare)
    gain, works = tasks.gain[tasks.first[:-1]], ~tasks.source[tasks.first[:-1]]
    drawn = rng.integers(SERVICE[0], SERVICE[1] + 1, len(gain)).astype(np.float64)
    if balanced:
        drawn[works] = np.mean(SERVICE) * gain[works] / np.exp(np.log(gain[works]).mean())
    total = utilisation / float((gain[works] / drawn[works]).max())
    service = np.where(tasks.source, np.inf, drawn[tasks.component])
    outputs = np.bincount([flow.source for flow in tasks.flows], minlength=len(works))[tasks.component]
    fastest, usual = np.where(tasks.source, 0.0, service) * outputs, total * tasks.gain * outputs
    cost = dict(zip(tasks.position.tolist(), np.where(works, SLOT_S / drawn, 0.0).tolist(), strict=True))
    components = tuple(
        msgspec.structs.replace(component, cpu=cost[place], memory_mb=1.0)
        for place, component in enumerate(bare.components)
    )
    return _Graph(
        topology=msgspec.structs.replace(bare, components=components),
        rates=np.where(tasks.source, total * tasks.gain, 0.0),
        service=service,
        outflow=float(np.maximum(fastest, OUTFLOW * usual).max()),
    )


def _graph(number: int, depth: tuple[int, int], spouts: int | None, rng: np.random.Generator) -> Topology:
    """Draw the components and streams of an application, one output per edge."""
    levels = int(rng.integers(depth[0], depth[1] + 1))
    bare = layered(
        components=int(rng.integers(max(levels, 3), max(levels, MAX_COMPONENTS) + 1)),
        depth=levels,
        min_parallelism=PARALLELISM[0],
        parallelism=PARALLELISM[1],
        keyed=0.0,
        seed=int(rng.integers(2**31)),
    )
    components = tuple(
        msgspec.structs.replace(component, parallelism=spouts)
        if spouts is not None and component.kind is Kind.SOURCE
        else component
        for component in bare.components
    )
    streams = tuple(msgspec.structs.replace(stream, selectivity=1.0) for stream in bare.streams)
    return Topology(name=f"application{number}", components=components, streams=streams)


def _least_limit(graphs: Sequence[_Graph]) -> int:
    """Return γ: twice the maximum μ, and at least the load of every task (less makes look-ahead unstable)."""
    fastest = max(float(graph.service[np.isfinite(graph.service)].max()) for graph in graphs)
    return int(np.ceil(max(OUTFLOW * fastest, *(graph.outflow for graph in graphs))))


def _place(topologies: Sequence[Topology], cluster: Cluster, rng: np.random.Generator) -> list[PlacedApplication]:
    """Place applications one after another in the remaining room, with a slot for every task."""
    machine_of = expand_slots(cluster).machine
    each = cluster.machines[0].slots
    taken = np.zeros(len(cluster.machines), dtype=np.int64)
    placed = []
    for topology in topologies:
        found = placement_policy(PLACEMENT).place(PlacementView(topology, _left(cluster, taken)), rng)
        if isinstance(found, Infeasible):
            raise InvalidInput("applications", f"they do not fit: {found.reason}; use fewer")
        slots = []
        for machine in machine_of[list(found.slots)].tolist():
            slots.append(int(machine * each + taken[machine]))
            taken[machine] += 1
        placed.append(PlacedApplication(topology, slots))
    return placed


def _left(cluster: Cluster, taken: Longs) -> Cluster:
    """Return the cluster with the remaining memory; a full machine keeps too little for a task."""
    machines = tuple(
        msgspec.structs.replace(machine, memory_mb=max(machine.memory_mb - int(used), 0.5))
        for machine, used in zip(cluster.machines, taken, strict=True)
    )
    return msgspec.structs.replace(cluster, machines=machines)


def _files(folder: Path | None, wanted: str) -> list[Path]:
    if folder is None:
        raise InvalidInput("folder", "expected a folder of traces, got none; name one, or use self-similar")
    if not folder.is_dir():
        raise FileProblem(f"{folder}: is not a folder; name one with traces of arrivals")
    there = sorted(path for path in folder.iterdir() if path.is_file())
    if not there:
        raise FileProblem(f"{folder}: is empty; name a folder with traces of arrivals")
    usual = [path for path in there if path.name in NETWORK_TRACES]
    found = [path for path in there if wanted.lower() in path.name.lower()] if wanted else usual or there
    if not found:
        raise FileProblem(f"{folder}: no file has {wanted!r} in its name; there are {choices(p.name for p in there)}")
    return found


def _replayed(path: Path, rate: float, slots: int, rng: np.random.Generator) -> Longs:
    """Play a trace from a random position, repeated as necessary.

    A trace of single tuples is played at the speed that yields the rate; one of counts has one line per slot. Both are
    then scaled so that the mean of the played slots is the rate: bursts are those of the trace, the load that of the
    system.
    """
    trace = recording(path)
    length = rate / trace.rate if trace.recorded else float(np.median(np.diff(trace.times)))
    begin = int(rng.integers(max(1, round(trace.seconds / length))))
    came = trace.before(np.arange(begin, begin + slots + 1, dtype=np.float64) * length)
    came -= came[0]
    if came[-1] == 0:
        raise FileProblem(f"{path}: no tuple arrives in {slots} slots; simulate more slots, or choose another trace")
    return whole_tuples(came * (rate * slots / came[-1]))
