"""The engine probes recover an engine's costs: those that the twin charges."""

import msgspec
import pytest

from penstock.calibration.engine import ProcessWork, measure_engine
from penstock.calibration.probe import engine_flow, summarise_processes
from penstock.model.cluster import Cluster, Machine
from penstock.model.costs import Costs
from penstock.sim.events import Twin
from tests.calibration.observed import observed

COSTS = Costs(hop_cpu=2e-5, send_cpu=3e-5, send_byte_cpu=2e-8, receive_cpu=1e-5, receive_byte_cpu=1e-8)
PAIR = Cluster(name="pair", machines=(Machine(name="here"), Machine(name="there")))


def worked(size: int, relays: int, slots: list[int]) -> list[ProcessWork]:
    flow, placement = engine_flow(PAIR, size, relays, slots)
    application = flow.application
    streams = tuple(msgspec.structs.replace(one, tuple_bytes=float(size)) for one in application.streams)
    twin = Twin(msgspec.structs.replace(application, streams=streams, rate_tps={"from": 400.0}), PAIR, COSTS)
    run = twin.start(placement.slots, records=20.0)
    run.advance(6.0)
    return summarise_processes(observed(run.records().to_pandas(), 1.0))


def test_recovers_what_hops_tuples_and_bytes_cost() -> None:
    rows = [
        *worked(32, 0, [0, 0]),
        *worked(32, 2, [0, 0, 0, 0]),
        *worked(32, 0, [0, 1]),
        *worked(2048, 0, [0, 1]),
    ]
    assert len(rows) == 6
    found, measured = measure_engine(rows)
    for name in ("hop_cpu", "send_cpu", "send_byte_cpu", "receive_cpu", "receive_byte_cpu"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name), rel=0.05), name
    assert {one.what for one in measured} >= {"hop", "sending a byte"}


def test_no_cost_is_below_nothing() -> None:
    rows = [
        ProcessWork(1.0, 1e5, 1e5),
        ProcessWork(0.9, 1e5, 3e5),
        ProcessWork(0.5, 1e5, 0, 1e5, 1e7),
        ProcessWork(0.1, 0, 1e5, 0, 0, 1e5, 1e7),
    ]
    found, _ = measure_engine(rows)
    assert all(getattr(found, name) >= 0 for name in ("hop_cpu", "send_cpu", "receive_cpu", "send_byte_cpu"))
