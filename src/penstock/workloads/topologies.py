"""Random applications: chains with the statistics of TATA's data set, and layered graphs of any size.

TATA's data set has 400 job graphs (§IV-A). In the published files all are chains of 3 to 6 vertices with one source
task and one sink task; costs are whole numbers from 1 to 6 per tuple and memory is 32 to 256 MB, uniformly distributed;
about half of the neighbours with equal parallelism above 1 are connected task to task (128 of 240).
"""

from collections import Counter
from itertools import pairwise
from typing import Annotated

import numpy as np
from msgspec import Meta

from penstock.model.entity import Count, Positive, Probability, SeedNumber
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.workloads.choice import Seed

UNIFORM_SHARE = 0.3  # of the job graphs have a single parallelism
EQUAL_SHARE = 0.4  # of the neighbours have the same parallelism
FORWARD_SHARE = 0.5  # of the neighbours that could be connected task to task are
MAX_PARALLELISM = 10
MAX_TASKS = 36
VERTICES = (3, 6)
CPU = (1, 6)
MEMORY_MB = (32, 256)


def random_job(seed: SeedNumber = 0) -> Application:
    """Draw one chain with the statistics of TATA's data set."""
    return draw_job(seed, name=f"random-job-{seed}")


def draw_job(seed: Seed, name: str = "random-job") -> Application:
    """Draw one chain with the statistics of TATA's data set; a generator passed as `seed` is advanced.

    The paper's shares of equal parallelism are reproduced for the operators between source and sink, which have one
    task
    each: 30 % of the chains have one parallelism for all; in the others a neighbour is equal with the probability that
    yields 40 % over both. "The longest length from source to sink ranges from 2 to 6" and "3 to 36 tasks" are
    reproduced by 3 to 6 vertices and by redrawing parallelisms with a sum above 36.
    """
    rng = np.random.default_rng(seed)
    operators = int(rng.integers(VERTICES[0], VERTICES[1] + 1)) - 2
    uniform = bool(rng.random() < UNIFORM_SHARE)
    widths = _widths(operators, uniform, rng)
    while sum(widths) + 2 > MAX_TASKS:
        widths = _widths(operators, uniform, rng)
    widths = [1, *widths, 1]
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * operators, Kind.SINK]
    return Application(
        name=name,
        components=tuple(
            Component(
                name=f"v{vertex}",
                kind=kind,
                parallelism=width,
                cpu=float(rng.integers(CPU[0], CPU[1] + 1)),
                memory_mb=float(rng.integers(MEMORY_MB[0], MEMORY_MB[1] + 1)),
            )
            for vertex, (kind, width) in enumerate(zip(kinds, widths, strict=True))
        ),
        streams=tuple(
            Stream(
                source=f"v{vertex}",
                target=f"v{vertex + 1}",
                grouping=_connection(widths[vertex], widths[vertex + 1], rng),
            )
            for vertex in range(len(widths) - 1)
        ),
    )


def _widths(operators: int, uniform: bool, rng: np.random.Generator) -> list[int]:
    widths = [int(rng.integers(1, MAX_PARALLELISM + 1))]
    repeat = 1.0 if uniform else (EQUAL_SHARE - UNIFORM_SHARE) / (1.0 - UNIFORM_SHARE)
    for _ in range(operators - 1):
        if rng.random() < repeat:
            widths.append(widths[-1])
        else:
            others = [width for width in range(1, MAX_PARALLELISM + 1) if width != widths[-1]]
            widths.append(int(rng.choice(others)))
    return widths


def _connection(senders: int, receivers: int, rng: np.random.Generator) -> Grouping:
    forward = senders == receivers > 1 and rng.random() < FORWARD_SHARE
    return Grouping.FORWARD if forward else Grouping.SHUFFLE


def layered(
    components: Annotated[int, Meta(ge=2)] = 10,
    depth: Annotated[int, Meta(ge=2)] = 5,
    parallelism: Count = 4,
    min_parallelism: Count | None = None,
    join: Count = 2,
    keyed: Probability = 0.3,
    cpu: Positive = 0.001,
    memory_mb: Positive = 64.0,
    seed: SeedNumber = 0,
) -> Application:
    """Draw an application of `depth` layers: the first are sources, the last sinks, each fed by the previous layer.

    parallelism: of every component, or its maximum if `min_parallelism` is set.
    join: a component has 1 to `join` inputs in the previous layer; forks result, as every component has an output.
    keyed: the fraction of streams with fields grouping; the others use shuffle.
    cpu, memory_mb: costs and sizes are uniformly random from half to one and a half times these.
    A component divides its output among its streams, so that a source tuple is one tuple in every layer.
    """
    if components < depth:
        raise InvalidInput("depth", f"expected ≤ the {components} components, got {depth}")
    if (min_parallelism or parallelism) > parallelism:
        raise InvalidInput("min_parallelism", f"expected ≤ parallelism {parallelism}, got {min_parallelism}")
    rng = np.random.default_rng(seed)
    layers = _layers(components, depth, rng)
    pairs = [pair for above, below in pairwise(layers) for pair in _fed(above, below, join, rng)]
    kinds = {**dict.fromkeys(layers[0], Kind.SOURCE), **dict.fromkeys(layers[-1], Kind.SINK)}
    return Application(
        name=f"layered-{components}-{seed}",
        components=tuple(
            Component(
                name=f"c{number}",
                kind=kinds.get(number, Kind.OPERATOR),
                parallelism=int(rng.integers(min_parallelism or parallelism, parallelism + 1)),
                cpu=cpu * rng.uniform(0.5, 1.5),
                memory_mb=memory_mb * rng.uniform(0.5, 1.5),
            )
            for number in range(components)
        ),
        streams=_streams(pairs, keyed, rng),
    )


def _streams(pairs: list[tuple[int, int]], keyed: float, rng: np.random.Generator) -> tuple[Stream, ...]:
    degree = Counter(source for source, _ in pairs)
    return tuple(
        Stream(
            source=f"c{source}",
            target=f"c{target}",
            grouping=Grouping.FIELDS if rng.random() < keyed else Grouping.SHUFFLE,
            selectivity=1.0 / degree[source],
            tuple_bytes=float(rng.integers(50, 501)),
        )
        for source, target in pairs
    )


def _layers(components: int, depth: int, rng: np.random.Generator) -> list[list[int]]:
    """Distribute the components to layers, none of them empty, in ascending order."""
    cuts = np.sort(rng.choice(np.arange(1, components), depth - 1, replace=False))
    return [part.tolist() for part in np.split(np.arange(components), cuts)]


def _fed(above: list[int], below: list[int], join: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Connect two layers: each lower component has inputs from up to `join` upper ones, and every upper one is used."""
    pairs = {
        (int(source), target)
        for target in below
        for source in rng.choice(above, min(int(rng.integers(1, join + 1)), len(above)), replace=False)
    }
    taken = {source for source, _ in pairs}
    pairs |= {(source, int(rng.choice(below))) for source in above if source not in taken}
    return sorted(pairs)
