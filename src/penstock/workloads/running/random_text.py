"""Random strings through operators that compute little: the throughput test, and synthetic communication.

Nothing comes from outside and nothing is stored, so that only the engine and the network are tested; `output` has no
effect. A string depends only on its number and the seed, so a source can continue at any number.
"""

from collections.abc import Callable
from random import Random

from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.model.topology import Application
from penstock.workloads.running.blueprint import Blueprint, Feed


class RandomText:
    """Generates the string of a number: hexadecimal digits, `size` of them."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.seed = seed

    def __call__(self, number: int) -> str:
        """Return the string."""
        rng = Random((self.seed << 64) + number)  # noqa: S311  nothing here is secret
        return rng.randbytes((self.size + 1) // 2).hex()[: self.size]


def same(text: str) -> str:
    """Return a string unchanged."""
    return text


def doubled(text: str) -> str:
    """Return a string twice."""
    return text + text


def throughput_test_flow(application: Application, feed: Feed, _output: bool = True) -> Dataflow:
    """Return the dataflow of a throughput test: source, identity, and a sink that counts."""
    return _chain(application, feed, same)


def synthetic_communication_flow(application: Application, feed: Feed, _output: bool = True) -> Dataflow:
    """Return the dataflow of synthetic communication: source, operators that each double a string, and a sink."""
    return _chain(application, feed, doubled)


def _chain(application: Application, feed: Feed, change: Callable[[str], str]) -> Dataflow:
    flow, model = Dataflow(application.name), Blueprint(application)
    [(source, own)] = feed.split(model.shares()).items()
    names = [component.name for component in application.components]
    text = RandomText(round(model.stream(*names[:2]).tuple_bytes), own.seed)
    outlet = flow.source(source, own.source(text), emits=str, **model.costs(source))
    for name in names[1:-1]:
        outlet = flow.map(name, change, model.outlet(outlet, name), **model.costs(name))
    flow.sink(names[-1], Discard(), model.outlet(outlet, names[-1]), **model.costs(names[-1]))
    return flow
