"""Random small applications and clusters for property tests, every draw through hypothesis or a seeded generator."""

import numpy as np
from hypothesis import strategies as st

from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream

SPLITTING = [Grouping.SHUFFLE, Grouping.FIELDS, Grouping.PARTIAL_KEY, Grouping.DIRECT, Grouping.LOCAL_OR_SHUFFLE]


@st.composite
def applications(draw: st.DrawFn, memory_mb: float = 400.0, groupings: list[Grouping] | None = None) -> Application:
    """Draw an application: one or two sources, operators behind earlier components, one or two sinks."""
    kinds = (
        [Kind.SOURCE] * draw(st.integers(1, 2))
        + [Kind.OPERATOR] * draw(st.integers(0, 3))
        + [Kind.SINK] * draw(st.integers(1, 2))
    )
    components = [
        Component(
            name=f"c{number}",
            kind=kind,
            parallelism=draw(st.integers(1, 3)),
            cpu=draw(st.floats(0.1, 5.0)),
            memory_mb=draw(st.floats(0.0, memory_mb)),
            service=draw(st.sampled_from([ServiceTime(), ServiceTime(distribution=Distribution.GAMMA, cv=0.5)])),
        )
        for number, kind in enumerate(kinds)
    ]
    pairs = _pairs(draw, kinds)
    choices = groupings or list(Grouping)
    streams = []
    for source, target in sorted(pairs):
        grouping = draw(st.sampled_from(choices))
        if grouping is Grouping.FORWARD and components[source].parallelism != components[target].parallelism:
            grouping = Grouping.SHUFFLE
        streams.append(
            Stream(
                source=f"c{source}",
                target=f"c{target}",
                grouping=grouping,
                selectivity=draw(st.floats(0.1, 3.0)),
                tuple_bytes=draw(st.floats(1.0, 1e4)),
            )
        )
    return Application(name="random", components=tuple(components), streams=tuple(streams))


def _pairs(draw: st.DrawFn, kinds: list[Kind]) -> set[tuple[int, int]]:
    """Draw streams so that every component is on a path from a source to a sink."""
    pairs: set[tuple[int, int]] = set()
    senders = [number for number, kind in enumerate(kinds) if kind is not Kind.SINK]
    receivers = [number for number, kind in enumerate(kinds) if kind is not Kind.SOURCE]
    for receiver in receivers:
        pairs.add((draw(st.sampled_from([s for s in senders if s < receiver])), receiver))
    for sender in senders:
        if not any(source == sender for source, _ in pairs):
            pairs.add((sender, draw(st.sampled_from([r for r in receivers if r > sender]))))
    return pairs


@st.composite
def clusters(draw: st.DrawFn, memory_mb: float = 1500.0, identical: bool = False) -> Cluster:
    """Draw a full mesh of up to four machines on up to three hosts."""
    count = draw(st.integers(1, 4))
    shape = draw(machines(memory_mb))
    drawn = [shape if identical else draw(machines(memory_mb)) for _ in range(count)]
    named = [
        Machine(
            name=f"m{number}",
            cores=machine.cores,
            speed=machine.speed,
            memory_mb=machine.memory_mb,
            slots=machine.slots,
            slot_memory_mb=machine.slot_memory_mb,
            processes=machine.processes,
            host=None if identical else draw(st.sampled_from([None, "h0", "h1"])),
        )
        for number, machine in enumerate(drawn)
    ]
    return Cluster(
        name="random",
        machines=tuple(named),
        distances=draw(st.sampled_from([Distances(), Distances(other_host_ms=9.0)])),
    )


@st.composite
def machines(draw: st.DrawFn, memory_mb: float) -> Machine:
    """Draw one machine."""
    slots = draw(st.integers(1, 3))
    return Machine(
        name="m",
        cores=draw(st.integers(1, 4)),
        speed=draw(st.floats(0.5, 40.0)),
        memory_mb=draw(st.floats(100.0, memory_mb)),
        slots=slots,
        slot_memory_mb=draw(st.sampled_from([None, 300.0, 700.0])),
        processes=draw(st.integers(1, slots)),
    )


def random_slots(rng: np.random.Generator, application: Application, cluster: Cluster, rows: int = 1) -> np.ndarray:
    """Draw placements [rows, tasks], ignoring memory."""
    return rng.integers(0, cluster.slot_count, (rows, application.task_count), dtype=np.int32)
