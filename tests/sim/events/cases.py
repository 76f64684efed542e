"""Small applications and clusters whose behaviour is known."""

from collections.abc import Sequence

from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream

NOWHERE = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)
EXPONENTIAL = ServiceTime(distribution=Distribution.EXPONENTIAL)
SERVICE = 0.002  # s


def line(
    rate: float,
    *services: ServiceTime,
    parallelism: int = 1,
    cpu: float = SERVICE,
    selectivity: float = 1.0,
    tuple_bytes: float = 100.0,
    grouping: Grouping = Grouping.SHUFFLE,
) -> Application:
    """Return a source without cost, then one component per service time in a chain; the last is a sink."""
    names = ["in", *(f"step{number}" for number in range(len(services) - 1)), "out"]
    components = [Component(name="in", kind=Kind.SOURCE)]
    for number, service in enumerate(services):
        kind = Kind.SINK if number == len(services) - 1 else Kind.OPERATOR
        components.append(
            Component(name=names[number + 1], kind=kind, cpu=cpu, service=service, parallelism=parallelism)
        )
    streams = [
        Stream(
            source=names[number],
            target=names[number + 1],
            selectivity=selectivity if number else 1.0,
            tuple_bytes=tuple_bytes,
            grouping=grouping,
        )
        for number in range(len(services))
    ]
    return Application(name="line", components=tuple(components), streams=tuple(streams), rate_tps={"in": rate})


def machines(*sizes: tuple[int, int], network_mbps: float | None = None, distances: Distances = NOWHERE) -> Cluster:
    """Return machines with these numbers of slots and cores."""
    made = [
        Machine(name=f"m{number}", slots=slots, cores=cores, network_mbps=network_mbps)
        for number, (slots, cores) in enumerate(sizes)
    ]
    return Cluster(name="known", machines=tuple(made), distances=distances)


def word_count(rate: float = 60.0, services: Sequence[ServiceTime] = (ServiceTime(),) * 4) -> Application:
    """Source, split, count, database: two, three, three and two tasks."""
    source, split, count, database = services
    return Application(
        name="words",
        components=(
            Component(name="source", kind=Kind.SOURCE, parallelism=2, cpu=0.00051, service=source, memory_mb=10.0),
            Component(name="split", parallelism=3, cpu=0.00413, service=split, memory_mb=20.0),
            Component(name="count", parallelism=3, cpu=0.00107, service=count, memory_mb=30.0),
            Component(name="database", kind=Kind.SINK, parallelism=2, cpu=0.00153, service=database, memory_mb=40.0),
        ),
        streams=(
            Stream(source="source", target="split", tuple_bytes=2000.0),
            Stream(source="split", target="count", selectivity=2.0, tuple_bytes=500.0),
            Stream(source="count", target="database", tuple_bytes=500.0),
        ),
        rate_tps={"source": rate},
    )


def three_machines(network_mbps: float | None = None) -> Cluster:
    """Machines of three slots that differ in cores and speed, at the usual distances."""
    made = [
        Machine(name=f"m{number}", cores=1 + number % 2, slots=3, speed=1.0 + 0.31 * number, network_mbps=network_mbps)
        for number in range(3)
    ]
    return Cluster(name="three", machines=tuple(made))
