from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from penstock.api.contracts import Operator, Source, TaskContext, Timed
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.workloads.applications import APPLICATIONS, application
from penstock.workloads.running.synthetic import Sample, any_dataflow
from tests.generators import applications
from tests.workloads.running.executor import Executor


def same_but_for_order(one: Application, other: Application) -> bool:
    plain = [
        msgspec.structs.replace(a, streams=tuple(sorted(a.streams, key=lambda s: s.label)), rate_tps={})
        for a in (one, other)
    ]
    return plain[0] == plain[1]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_named_application_can_run(name: str) -> None:
    model = application(name)
    flow = any_dataflow(model, 30.0)
    assert same_but_for_order(flow.application, model)
    assert flow.application.offered_tps == pytest.approx(30.0)


def test_the_applications_own_rates_are_kept() -> None:
    assert any_dataflow(application("continuous-queries-large")).application.rate_tps == {"source": 6650.0}


def test_a_rate_is_divided_in_the_ratio_of_the_stated_rates() -> None:
    model = msgspec.structs.replace(
        application("word-count-two-sources"), rate_tps={"queue-source": 10.0, "file-source": 30.0}
    )
    assert any_dataflow(model, 80.0).application.rate_tps == {"queue-source": 20.0, "file-source": 60.0}


@given(applications(), st.integers(0, 60))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_stream_carries_tuples_by_its_selectivity(tmp_path: Path, model: Application, count: int) -> None:
    flow = any_dataflow(model, 1000.0, count=count)
    assert same_but_for_order(flow.application, model)
    ran = Executor(flow, tmp_path).run()
    for stream in model.streams:
        if model[stream.source].kind is Kind.SOURCE:
            continue
        inboxes = [len(inbox) for inbox in ran.inbox[stream.source]]
        carried = len(ran.sent.get(stream.label, []))
        assert abs(carried - stream.selectivity * sum(inboxes)) < len(inboxes) + 1e-6


@given(st.floats(0.0, 5.0), st.integers(0, 200))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_task_sends_exactly_the_whole_tuples(tmp_path: Path, selectivity: float, count: int) -> None:
    selectivity = round(selectivity, 3)
    ran = Executor(any_dataflow(chain(selectivity), 1000.0, count=count), tmp_path).run()
    assert len(ran.sent.get("source->work", [])) == count
    assert len(ran.sent.get("work->sink", [])) == round(selectivity * 1000) * count // 1000


def chain(selectivity: float, **stream: Any) -> Application:
    return Application(
        name="chain",
        components=(
            Component(name="source", kind=Kind.SOURCE),
            Component(name="work"),
            Component(name="sink", kind=Kind.SINK, parallelism=3),
        ),
        streams=(
            Stream(source="source", target="work"),
            Stream(source="work", target="sink", selectivity=selectivity, **stream),
        ),
    )


def fork(one: dict[str, Any], other: dict[str, Any]) -> Application:
    return Application(
        name="fork",
        components=(
            Component(name="source", kind=Kind.SOURCE),
            Component(name="a", kind=Kind.SINK, parallelism=2),
            Component(name="b", kind=Kind.SINK, parallelism=2),
        ),
        streams=(Stream(source="source", target="a", **one), Stream(source="source", target="b", **other)),
    )


def test_streams_with_the_same_tuples_need_no_outputs() -> None:
    assert any_dataflow(fork({}, {"grouping": Grouping.ALL})).parts["source"].outputs == ()
    assert any_dataflow(fork({}, {"selectivity": 0.5})).parts["source"].outputs == ("a", "b")
    assert any_dataflow(fork({}, {"tuple_bytes": 7.0})).parts["source"].outputs == ("a", "b")
    assert any_dataflow(fork({}, {"grouping": Grouping.DIRECT})).parts["source"].outputs == ("a", "b")


def test_a_source_sends_tuples_by_the_selectivity_of_each_stream(tmp_path: Path) -> None:
    flow = any_dataflow(fork({"selectivity": 0.25}, {"selectivity": 2.5}), 1000.0, count=40)
    ran = Executor(flow, tmp_path).run()
    assert {label: len(values) for label, values in ran.sent.items()} == {"source->a": 10, "source->b": 100}


def test_outputs_that_share_a_tuple_take_turns() -> None:
    flow = any_dataflow(fork({"selectivity": 0.5}, {"selectivity": 0.5, "tuple_bytes": 9}), 1.0)
    source = flow.parts["source"].logic()
    assert isinstance(source, Source)
    source.open(TaskContext("source", 0, 1))
    given_ = []
    for now in range(8):
        polled = source.poll(float(now), 10)
        assert isinstance(polled, Timed)
        assert list(polled.dues) == [float(now)]
        given_ += [output for output, _ in polled.values]
    assert given_ == ["b", "a"] * 4


def test_direct_tuples_go_to_each_task_in_turn(tmp_path: Path) -> None:
    flow = any_dataflow(chain(1.0, grouping=Grouping.DIRECT), 1000.0, count=9)
    ran = Executor(flow, tmp_path).run()
    assert [len(inbox) for inbox in ran.inbox["sink"]] == [3, 3, 3]


@pytest.mark.parametrize("keys", [(), ("word",), ("one", "other")])
def test_keys_are_spread_over_tasks_and_keep_to_them(tmp_path: Path, keys: tuple[str, ...]) -> None:
    flow = any_dataflow(chain(3.0, grouping=Grouping.FIELDS, keys=keys), 1000.0, count=1000)
    ran = Executor(flow, tmp_path).run()
    assert flow.application.streams[1].keys == keys
    assert all(800 < len(inbox) < 1200 for inbox in ran.inbox["sink"])
    owners = Counter(key for inbox in ran.inbox["sink"] for key in {sample.key for sample in inbox})
    assert set(owners.values()) == {1}


@pytest.mark.parametrize("size", [3, 50, 100, 10_000])
def test_tuples_are_about_as_long_as_stated(tmp_path: Path, size: int) -> None:
    ran = Executor(any_dataflow(chain(1.0, tuple_bytes=size), 1000.0, count=300), tmp_path).run()
    lengths = [len(msgspec.msgpack.encode(sample)) for sample in ran.sent["work->sink"]]
    assert all(abs(length - size) <= 3 for length in lengths)


def test_a_moved_source_continues_unchanged() -> None:
    flow = any_dataflow(fork({"selectivity": 0.3}, {"selectivity": 1.7}), 1.0, count=40)
    whole, there, here = (opened(flow) for _ in range(3))
    everything = taken(whole, range(60))
    first = taken(there, range(17))
    here.seek(msgspec.msgpack.decode(msgspec.msgpack.encode(there.position())))
    assert first + taken(here, range(16, 60)) == everything
    assert len(everything) == 12 + 68


def opened(flow: Any) -> Source[Any]:
    source = flow.parts["source"].logic()
    assert isinstance(source, Source)
    source.open(TaskContext("source", 0, 1))
    return source


def taken(source: Source[Any], times: range) -> list[Any]:
    given_: list[Any] = []
    for now in times:
        polled = source.poll(float(now), 1000)
        if polled is None:
            break
        assert isinstance(polled, Timed)
        given_ += polled.values
    return given_


def test_a_moved_operator_continues_unchanged() -> None:
    flow = any_dataflow(chain(0.4))
    samples = [Sample(number) for number in range(20)]
    whole, there, here = (cast("Operator[Sample, Any]", flow.parts["work"].logic()) for _ in range(3))
    everything = [made for sample in samples for made in whole.process(sample) or ()]
    first = [made for sample in samples[:7] for made in there.process(sample) or ()]
    here.restore(there.snapshot())
    assert first + [made for sample in samples[7:] for made in here.process(sample) or ()] == everything
    assert len(everything) == 8


def test_it_can_be_shipped() -> None:
    flow = any_dataflow(application("layered"))
    assert cloudpickle.loads(cloudpickle.dumps(flow)).application == flow.application  # type: ignore[no-untyped-call]
