"""Applications and machines: sources and sinks on one machine, workers on one or two others, slow enough to emulate."""

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Link, Machine

SERVICE_S = 0.1  # per tuple; long, so that a host with two cores can emulate it
CAPACITY = 1 / SERVICE_S  # tuples per second of a machine
OUTPUT = "output/numbers"


def star(*workers: str, fails: float = 0.0) -> Cluster:
    """Join worker machines with a failure probability to one that sources and sinks are pinned to."""
    machines = (Machine(name="ends"), *(Machine(name=name, failure_probability=fails) for name in workers))
    links = tuple(Link(source="hub", target=machine.name, bandwidth_mbps=100.0) for machine in machines)
    return Cluster(name="star", machines=machines, switches=("hub",), links=links)


def flow(name: str, offered_tps: float, pinned: str | None = None, keeps: bool = False) -> Dataflow:
    """Return an application with a small cost per number; `keeps`: its sink writes the numbers to files."""
    made = Dataflow(name)
    numbers = made.source("in", Generated(int, rate=offered_tps), cpu=1e-4, pinned="ends")
    work = made.map("work", abs, numbers, cpu=SERVICE_S, pinned=pinned)
    sink: Sink[int] = JsonLines(OUTPUT) if keeps else Discard()
    made.sink("out", sink, work, cpu=1e-4, pinned="ends")
    return made
