"""Small parts of which the tests of dataflows are made."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.api.contracts import Operator, Sink, Source
from penstock.api.dataflow import Dataflow, Outlet


class Numbers(Source[int]):
    def __init__(self, rate: float | None = None) -> None:
        self.rate = rate

    def poll(self, now: float, limit: int) -> Sequence[int]:
        return range(limit)

    @property
    def rate_tps(self) -> float | None:
        return self.rate


class Total(Operator[int, tuple[int, float]]):
    def __init__(self) -> None:
        self.total = 0

    def process(self, value: int) -> Iterable[tuple[int, float]]:
        self.total += value
        return [(value, float(self.total))]


class Kept(Sink[Any]):
    def __init__(self) -> None:
        self.values: list[Any] = []

    def write(self, values: Sequence[Any]) -> None:
        self.values.extend(values)


class Word(msgspec.Struct, frozen=True):
    text: str
    length: int


class Pair(NamedTuple):
    one: int
    other: str


class Ordinary:
    """A class that msgspec knows nothing of."""


def flow_with(name: str = "test") -> tuple[Dataflow, Outlet]:
    flow = Dataflow(name)
    return flow, flow.source("numbers", Numbers())


class Bare(Operator):  # type: ignore[type-arg]
    pass


class Stating(Operator[Any, Any]):
    def __init__(self, emits: Any) -> None:
        self.emits = emits
