"""Accuracy of emulated machines: live runs compared with queueing theory.

A Poisson source feeds tasks on one emulated machine, on embedded Spark; every tuple is traced. Grid: M/D/1 (one slot, 2
ms per tuple) and M/M/3 (three slots and cores, exponential, 10 ms; one credit per channel, so that tuples wait unbound
at the source, as in one queue) at loads 0.5, 0.8 and 0.9. Waiting times are compared with theory at the measured load,
and with those that follow from the run's own arrivals and service times, without its random error.
"""

import math
import tempfile
from heapq import heapreplace
from typing import NamedTuple

import numpy as np
import pandas as pd

import penstock as ps
from penstock.model.topology import Distribution
from penstock.runtime.config import FlowControl, RunConfig, Telemetry
from penstock.startup.start import start

LOADS = {0.5: 20.0, 0.8: 40.0, 0.9: 120.0}
"""Seconds of each: the higher the load, the more correlated the waiting times."""
WARM_UP_S = 3.0


class Setup(NamedTuple):
    """One queue."""

    name: str
    servers: int
    service: float  # s
    distribution: Distribution

    def wait(self, load: float) -> float:
        """Return the theoretical mean waiting time: Pollaczek–Khinchine for one server, Erlang C for several."""
        if self.servers == 1:
            squared = 1.0 if self.distribution is Distribution.EXPONENTIAL else 0.0
            return self.service * load / (1 - load) * (1 + squared) / 2
        offered = load * self.servers
        last = offered**self.servers / math.factorial(self.servers) / (1 - load)
        busy = last / (sum(offered**n / math.factorial(n) for n in range(self.servers)) + last)
        return busy * self.service / (self.servers * (1 - load))


SETUPS = (Setup("M/D/1", 1, 0.002, Distribution.CONSTANT), Setup("M/M/3", 3, 0.010, Distribution.EXPONENTIAL))


def number(index: int) -> int:
    """Return a tuple."""
    return index


def measure(setup: Setup, load: float, seconds: float) -> pd.DataFrame:
    """Run one queue live; return its telemetry."""
    rate = load * setup.servers / setup.service
    near = ps.Distances(same_slot_ms=0, same_process_ms=0, same_host_ms=0, other_host_ms=0)
    machine = ps.Machine(name="m", cores=setup.servers, slots=setup.servers + 1)
    flow = ps.Dataflow("queue")
    source = flow.source("arrivals", ps.Generated(number, arrivals=ps.arrivals(f"poisson:rate={rate},slot=0.1")))
    service = ps.ServiceTime(distribution=setup.distribution)
    flow.sink("server", ps.Discard, source, parallelism=setup.servers, cpu=setup.service, service=service)
    cluster = ps.Cluster(name="one", machines=(machine,), distances=near)
    with tempfile.TemporaryDirectory() as folder:
        run = start(
            flow,
            emulate=cluster,
            policy="round-robin",
            runs=folder,
            config=RunConfig(
                flow_control=FlowControl(window=1) if setup.servers > 1 else FlowControl(),
                telemetry=Telemetry(sample_tps=-1.0),
            ),
        )
        run.wait(seconds + WARM_UP_S)
        run.drain()
        if error := run.status().error:
            raise RuntimeError(error)
        return pd.read_parquet(run.info.telemetry_path)


def main() -> None:
    """Print measured figures next to theory."""
    print(
        f"{'':8}{'load':>5}{'utilisation':>13}{'throughput':>12}{'wait':>10}{'theory':>10}{'ratio':>7}{'own path':>10}"
    )
    for setup in SETUPS:
        for load, seconds in LOADS.items():
            records = measure(setup, load, seconds)
            hops = records[records.kind == "hop"]
            hops = hops[hops.emitted >= hops.emitted.min() + WARM_UP_S].sort_values("emitted")
            span = hops.emitted.max() - hops.emitted.min()
            waits = (hops.started - hops.emitted).to_numpy()
            busy = (hops.finished - hops.started).sum() / (span * setup.servers)
            expected = _path(hops.emitted.to_numpy(), (hops.finished - hops.started).to_numpy(), setup.servers)
            theory = setup.wait(busy)
            print(
                f"{setup.name:8}{load:>5}{busy:>13.3f}{len(hops) / span:>10.1f}/s{1e3 * waits.mean():>7.2f} ms"
                f"{1e3 * theory:>7.2f} ms{waits.mean() / theory:>7.2f}{waits.mean() / expected:>10.3f}",
                flush=True,
            )


def _path(arrivals: np.ndarray, services: np.ndarray, servers: int) -> float:
    """Return the mean waiting time of these tuples in one queue before equal servers."""
    free = [0.0] * servers
    total = 0.0
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        begin = max(arrival, free[0])
        total += begin - arrival
        heapreplace(free, begin + service)
    return total / len(arrivals)


if __name__ == "__main__":
    main()
