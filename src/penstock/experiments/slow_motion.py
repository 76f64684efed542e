"""Slow motion: applications and clusters in which everything takes a multiple of its time, and arrivals in phases.

Two cores of a host cannot emulate thousands of tuples per second, but dozens that each take a multiple of that time.
Queues and the sharing of cores are not affected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.topology import Application
from penstock.workloads.running.blueprint import Feed


class Raised(NamedTuple):
    """An interval with another rate, in seconds since the first tuple."""

    begin: float
    end: float
    tps: float


@dataclass(frozen=True)
class Phases:
    """Poisson arrivals at one rate, and at other rates in some intervals."""

    even: ClassVar[bool] = False
    slot: ClassVar[float] = 0.05

    rate: float
    raised: tuple[Raised, ...] = ()

    def counts(self, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw a Poisson number for every slot."""
        at = np.arange(slots) * self.slot
        tps = np.full(slots, self.rate)
        for stretch in self.raised:
            tps[(at >= stretch.begin) & (at < stretch.end)] = stretch.tps
        return rng.poisson(tps * self.slot)


class Workload(NamedTuple):
    """An application as a model, and as code that runs."""

    model: Callable[[], Application]
    flow: Callable[[Application, Feed, bool], Dataflow]


def slowed(application: Application, factor: float) -> Application:
    """Return an application in which everything takes a multiple of its time."""
    components = tuple(msgspec.structs.replace(one, cpu=one.cpu * factor) for one in application.components)
    rates = {name: rate / factor for name, rate in application.rate_tps.items()}
    return msgspec.structs.replace(application, components=components, rate_tps=rates)


def slowed_cluster(fast: Cluster, factor: float) -> Cluster:
    """Return a cluster on whose network everything takes a multiple of its time."""
    machines = tuple(_slowed_card(one, factor) for one in fast.machines)
    longer = {field: getattr(fast.distances, field) * factor for field in fast.distances.__struct_fields__}
    return msgspec.structs.replace(fast, name=f"{fast.name}-slowed", machines=machines, distances=Distances(**longer))


def _slowed_card(one: Machine, factor: float) -> Machine:
    ways = {way: getattr(one, way) for way in ("network_mbps", "receive_mbps")}
    return msgspec.structs.replace(one, **{way: None if mbps is None else mbps / factor for way, mbps in ways.items()})
