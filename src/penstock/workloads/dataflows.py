"""The named applications that run, with code of their own, and any topology with meaningless tuples.

`dataflow("word-count:sources=2", rate=500)` creates one by name. Names, parameters, structure and costs are those of
the topologies in `penstock.workloads.applications`: a plan for one fits the other.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.api.sources.pace import ArrivalProcess
from penstock.model.entity import Positive, SeedNumber
from penstock.model.errors import UnknownName, choices, nearest
from penstock.model.spec import build
from penstock.model.topology import Application
from penstock.workloads.applications import APPLICATIONS
from penstock.workloads.choice import Choice
from penstock.workloads.running.blueprint import Feed
from penstock.workloads.running.log_processing import log_processing_flow
from penstock.workloads.running.random_text import synthetic_communication_flow, throughput_test_flow
from penstock.workloads.running.synthetic import any_dataflow
from penstock.workloads.running.top_speed import top_speed_flow
from penstock.workloads.running.word_count import word_count_flow

__all__ = ["DATAFLOWS", "any_dataflow", "dataflow"]

Assemble = Callable[[Application, Feed, bool], Dataflow]


def dataflow(
    spec: str,
    *,
    rate: float | None = None,
    arrivals: ArrivalProcess | str | None = None,
    input: str | Path | None = None,  # noqa: A002  as the command line calls it
    output: bool = True,
    count: int | None = None,
    seed: int = 0,
) -> Dataflow:
    """Return the runnable application that a text specifies, such as `word-count` or `log-processing:sources=2`.

    rate: total tuples per second of all sources, default: 100; or
    arrivals: an arrival process or its specification, `poisson:rate=500`.
    input: a file or folder whose lines are read; default: `count` generated tuples, or an unlimited number.
    output: whether results are stored in the run's folder, or only counted.
    """
    name, _, settings = spec.partition(":")
    if name not in DATAFLOWS:
        why = "can be planned but has no code to run" if name in APPLICATIONS else "is unknown"
        near = f"those that run are {choices(DATAFLOWS)}" if name in APPLICATIONS else nearest(name, DATAFLOWS)
        raise UnknownName("application", f"{name!r} {why}; {near}")
    given = {"rate": rate, "arrivals": arrivals, "input": input, "output": output, "count": count, "seed": seed}
    defaults = inspect.signature(_Run).parameters
    stated = {key: value for key, value in given.items() if value != defaults[key].default}
    return build(f"application.{name}", DATAFLOWS[name].builder, settings, stated)


class _Run:
    """The parameters of a run, in addition to those of the topology."""

    def __init__(
        self,
        rate: Positive | None = None,
        arrivals: Any = None,
        input: str | None = None,  # noqa: A002
        repeat: bool = False,
        count: int | None = None,
        seed: SeedNumber = 0,
        output: bool = True,
    ) -> None:
        self.feed = Feed(rate, arrivals, input, repeat, count, seed)
        self.output = output


def _choice(name: str, assemble: Assemble) -> Choice[Dataflow]:
    """Return the row of a topology that runs; its builder takes the parameters of the topology and of a run."""
    model = APPLICATIONS[name]
    sizes, run = inspect.signature(model.builder).parameters, inspect.signature(_Run).parameters

    def make(**settings: Any) -> Dataflow:
        sized = {key: value for key, value in settings.items() if key in sizes}
        running = _Run(**{key: value for key, value in settings.items() if key in run})
        application = model.builder(**{**model.preset, **sized})
        given = ",".join(f"{key}={value}" for key, value in sized.items())
        named = msgspec.structs.replace(application, name=f"{name}:{given}" if given else name)  # as `application` does
        return assemble(named, running.feed, running.output)

    parameters = [*sizes.values(), *run.values()]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    make.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # what `build` reads
    make.__annotations__ = {
        **get_type_hints(_Run.__init__, include_extras=True),
        **get_type_hints(model.builder, include_extras=True),
        "return": Dataflow,
    }
    return Choice(make, model.summary)


DATAFLOWS: dict[str, Choice[Dataflow]] = {
    **{name: _choice(name, word_count_flow) for name in ("word-count", "word-count-large", "word-count-two-sources")},
    **{name: _choice(name, log_processing_flow) for name in ("log-processing", "log-processing-large")},
    "throughput-test": _choice("throughput-test", throughput_test_flow),
    "top-speed-windowing": _choice("top-speed-windowing", top_speed_flow),
    "synthetic-communication": _choice("synthetic-communication", synthetic_communication_flow),
}
