"""Exceptions in any function of an author's: they follow the component's error policy and name component and task."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, TypedDict

import msgspec
import pytest

import penstock as ps
from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.api.keys import extractor, key_group
from penstock.api.on_error import ErrorPolicy
from penstock.model.errors import InvalidInput, PenstockError, UnknownName
from penstock.runtime.protocol import codec as codecs
from penstock.runtime.protocol.frames import Data, Farewell, Frame
from penstock.runtime.worker.state_machine import WorkerOutbox
from penstock.startup.validation import check_parts
from penstock.testing import ApplicationFailed, TestCluster, run, tiny_cluster
from tests.runtime.flows import Given


def boom(*_: Any) -> NoReturn:
    raise ValueError("boom")


def leave(*_: Any) -> NoReturn:
    sys.exit(3)


def named(name: str, how: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function by another name."""

    def method(*arguments: Any) -> Any:
        return how(*arguments)

    method.__name__ = name
    return method


class Page(msgspec.Struct, frozen=True):
    page: str
    number: int = 0


@dataclass(frozen=True)
class Small:
    """A type of an author's that refuses some values in its own way."""

    number: int

    def __post_init__(self) -> None:
        if self.number == 13:
            raise LookupError("not thirteen")


class Shy(msgspec.Struct):
    """A tuple that cannot be sent when its number is 13: sets of 13 hold what MessagePack does not know."""

    number: Any


class Passing(Operator[Any, Any]):
    """Passes tuples on, has a timer, and raises in one of its methods."""

    def __init__(self, method: str, how: Callable[..., Any] = boom) -> None:
        setattr(self, method, named(method, how))

    def open(self, context: TaskContext) -> None:
        context.at(0.5)

    def process(self, value: Any) -> Iterable[Any]:
        return (value,)

    def snapshot(self) -> int:
        return 1


class RaisingSource(ps.Generated[int]):
    def __init__(self, method: str, how: Callable[..., Any] = boom) -> None:
        super().__init__(lambda n: n, rate=20, count=40)
        setattr(self, method, named(method, how))


class RaisingSink(Sink[Any]):
    def __init__(self, method: str, how: Callable[..., Any] = boom) -> None:
        setattr(self, method, named(method, how))

    def write(self, values: Sequence[Any]) -> None:
        return None

    def snapshot(self) -> int:
        return 1


def passing(
    source: Source[Any] | None = None,
    operator: Callable[[], Operator[Any, Any]] = lambda: Passing("unused"),
    sink: Callable[[], Sink[Any]] = ps.Discard,
    **options: Any,
) -> ps.Dataflow:
    flow = ps.Dataflow("passing")
    given = flow.source("numbers", source or RaisingSource("unused"), emits=int)
    flow.sink("out", sink, flow.operator("pass", operator, given, **options))
    return flow


OPERATOR = ("open", "process", "on_timer", "finish", "snapshot", "close")
SOURCE = ("open", "poll", "next_due", "position", "close")
SINK = ("open", "write", "flush", "prepare", "snapshot", "close")
CASES = [
    *(("pass", method, passing(operator=partial(Passing, method))) for method in OPERATOR),
    *(("numbers", method, passing(source=RaisingSource(method))) for method in SOURCE),
    *(("out", method, passing(sink=partial(RaisingSink, method))) for method in SINK),
]


@pytest.mark.parametrize(("component", "method", "flow"), CASES, ids=[f"{name}-{method}" for name, method, _ in CASES])
def test_every_method_that_raises_ends_the_run_without_a_recovery(
    component: str, method: str, flow: ps.Dataflow
) -> None:
    cluster = TestCluster(flow, workers=3, capture=False, checkpoint_s=0.5)
    with pytest.raises(ApplicationFailed, match=rf"^{component}\[0\]: ValueError: boom") as raised:
        cluster.start().finish()
    assert cluster.controller.recovery.count == 0
    if method not in ("process", "write"):  # else there is a tuple to name
        assert f"boom in {method}" in str(raised.value)


@pytest.mark.parametrize("method", ["poll", "process", "snapshot", "write"])
def test_sys_exit_is_an_error_of_the_authors_too(method: str) -> None:
    flows = {
        "poll": passing(source=RaisingSource(method, leave)),
        "write": passing(sink=lambda: RaisingSink(method, leave)),
    }
    flow = flows.get(method) or passing(operator=lambda: Passing(method, leave))
    cluster = TestCluster(flow, workers=3, capture=False, checkpoint_s=0.5)
    with pytest.raises(ApplicationFailed, match=r"\[0\]: SystemExit: 3"):
        cluster.start().finish()
    assert cluster.controller.recovery.count == 0


class Mute(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def mute(*_: Any) -> NoReturn:
    raise Mute


def test_an_exception_whose_text_raises_is_an_error_of_the_authors_too() -> None:
    cluster = TestCluster(passing(operator=lambda: Passing("process", mute)), workers=3, capture=False)
    with pytest.raises(ApplicationFailed, match=r"^pass\[0\]: Mute: its text cannot be shown on tuple 0"):
        cluster.start().finish()
    assert cluster.controller.recovery.count == 0
    with pytest.raises(InvalidInput, match=r"^numbers: its factory raised Mute: its text cannot be shown"):
        _ = passing(source=mute).application  # type: ignore[arg-type]


def test_sys_exit_is_skipped_as_any_exception() -> None:
    flow = ps.Dataflow("leaving")
    given = flow.source("numbers", Given(range(40)), emits=int)
    flow.sink("out", ps.Discard(), flow.map("pass", lambda n: leave() if n == 7 else n, given, errors=ps.Skip()))
    result = run(flow, workers=2)
    assert sorted(result["out"]) == [n for n in range(40) if n != 7]
    (letter,) = result.letters["pass"]
    assert (letter.tuple, letter.error) == (7, "SystemExit: 3")


def test_a_restore_that_raises_ends_the_run_and_names_the_task() -> None:
    flow = passing(operator=lambda: Passing("restore"))
    cluster = TestCluster(flow, workers=3, checkpoint_s=0.01).start()
    cluster.request([("pass[0]", "w2/0")], lambda _: None)
    with pytest.raises(ApplicationFailed, match=r"^pass\[0\]: ValueError: boom in restore"):
        cluster.finish()
    assert cluster.controller.recovery.count == 0


class Union(Operator[int, int]):
    """Has a state that can be saved, but whose annotation nothing can be read by."""

    def process(self, value: int) -> Iterable[int]:
        return (value,)

    def snapshot(self) -> Page | Shy:
        return Page("x")

    def restore(self, state: Any) -> None:
        return None


def test_a_state_that_its_annotation_cannot_be_read_by_names_the_task() -> None:
    cluster = TestCluster(passing(operator=Union), workers=3, checkpoint_s=0.01).start()
    cluster.request([("pass[0]", "w2/0")], lambda _: None)
    with pytest.raises(ApplicationFailed, match=r"^pass\[0\]: TypeError: .* in restore"):
        cluster.finish()
    assert cluster.controller.recovery.count == 0


def test_a_factory_that_raises_names_its_component() -> None:
    with pytest.raises(InvalidInput, match=r"^numbers: its factory raised ValueError: boom"):
        _ = passing(source=boom).application  # type: ignore[arg-type]


def test_a_check_that_raises_names_its_component() -> None:
    with pytest.raises(InvalidInput, match=r"^numbers: its check raised ValueError: boom"):
        check_parts(passing(source=RaisingSource("check")))
    with pytest.raises(InvalidInput, match=r"^out: its check raised SystemExit: 3"):
        check_parts(passing(sink=lambda: RaisingSink("check", leave)))


def test_a_factory_that_raises_on_a_worker_names_the_task() -> None:
    cluster = TestCluster(passing(operator=leave), workers=3)
    with pytest.raises(ApplicationFailed, match=r"^pass\[0\]: pass: its factory raised SystemExit: 3"):
        cluster.start()
    assert cluster.controller.recovery.count == 0


@pytest.mark.parametrize("given", [7, boom])
def test_a_poll_that_returns_no_list_names_the_source(given: Any) -> None:
    cluster = TestCluster(passing(source=RaisingSource("poll", lambda *_: given)), workers=3)
    with pytest.raises(ApplicationFailed, match=r"^numbers\[0\]: TypeError: .* is not iterable in poll"):
        cluster.start().finish()


def test_a_source_whose_poll_raises_is_polled_again_under_retry() -> None:
    tries: list[float] = []

    class Unsteady(Given):
        def open(self, context: TaskContext) -> None:
            super().open(context)
            self.context = context

        def poll(self, now: float, limit: int) -> list[Any] | None:
            tries.append(now)
            if len(tries) < 4:
                raise ConnectionError("not now")
            return super().poll(now, limit)

    flow = ps.Dataflow("unsteady")
    given = flow.source("numbers", Unsteady(range(10)), emits=int, errors=ps.Retry(times=3, wait=0.5))
    flow.sink("out", ps.Discard(), given)
    result = run(flow, workers=1)
    assert result["out"] == list(range(10))
    assert [after - before for before, after in pairwise(tries[:4])] == pytest.approx([0.5, 1, 2])
    tries.clear()
    flow = ps.Dataflow("unsteady")
    given = flow.source("numbers", Unsteady(range(10)), emits=int, errors=ps.Retry(times=2, wait=0.5, then=ps.Skip()))
    flow.sink("out", ps.Discard(), given)
    with pytest.raises(ApplicationFailed, match=r"^numbers\[0\]: ConnectionError: not now in poll"):
        run(flow, workers=1)


# Keys


def keyed(key: Any, *, halved: bool = False, errors: ErrorPolicy | None = None) -> ps.Dataflow:
    """Make pages, 13 of which have no page, and group them by a key."""
    pages = [{"number": n} if n % 4 == 1 else {"page": f"/{n % 5}", "number": n} for n in range(52)]
    flow = ps.Dataflow("keyed")
    given = flow.source("numbers", Given(range(52)), emits=int)
    made = flow.map("pages", lambda n: pages[n], given, parallelism=2, errors=errors)
    grouped = made.partial_key(key) if halved else made.fields(key)
    flow.sink("out", ps.Discard(), flow.operator("pass", lambda: Passing("unused"), grouped, parallelism=3))
    return flow


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("page", "the tuple has no field 'page'; it has number in the key page of pages->pass"),
        (lambda value: value["page"], "KeyError: 'page' in the key key of pages->pass"),
        (lambda value: value.get("page") or [], "unhashable type: 'list' in the key key of pages->pass"),
        (lambda value: value.get("page") or leave(), "SystemExit: 3 in the key key of pages->pass"),
    ],
)
def test_a_key_that_raises_ends_the_run_and_names_component_stream_and_tuple(key: Any, says: str, halved: bool) -> None:
    cluster = TestCluster(keyed(key, halved=halved), workers=3)
    with pytest.raises(ApplicationFailed) as raised:
        cluster.start().finish()
    line = str(raised.value).splitlines()[0]
    assert line.startswith(("pages[0]: ", "pages[1]: "))
    assert says in line
    assert "on tuple {'number': " in line
    assert cluster.controller.recovery.count == 0


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("sample_tps", [-1.0, 0.0])
@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("errors", [ps.Skip(), ps.Retry(times=2, then=ps.Skip())])
def test_a_key_that_raises_is_skipped(errors: ErrorPolicy, halved: bool, sample_tps: float, emulated: bool) -> None:
    flow = keyed("page", halved=halved, errors=errors)
    result = run(flow, workers=3, emulate=tiny_cluster(3) if emulated else None, sample_tps=sample_tps)
    assert sorted(value["number"] for value in result["out"]) == [n for n in range(52) if n % 4 != 1]
    letters = result.letters["pages"]
    assert sorted(letter.tuple["number"] for letter in letters) == list(range(1, 52, 4))
    assert {(letter.component, letter.call) for letter in letters} == {("pages", "key")}
    assert result.status.timed_out == 0
    counts = {component.name: component.skipped for component in result.status.components}
    assert counts["pages"] == 13


@pytest.mark.parametrize("seed", range(4))
def test_a_key_that_raises_is_skipped_once_while_tasks_move(seed: int) -> None:
    flow = ps.Dataflow("keyed")
    pages = flow.source(
        "pages", ps.Generated(lambda n: {"n": n, **({"page": n % 7} if n % 3 else {})}, rate=100, count=300),
        errors=ps.Skip(),
    )  # fmt: skip
    flow.sink("out", ps.Discard(), pages.partial_key("page"), parallelism=3)
    cluster = TestCluster(flow, workers=3, seed=seed, checkpoint_s=0.4, window=4).start()
    for turn in range(6):
        cluster.advance(0.3)
        cluster.move("pages[0]", f"w{turn % 3}/0")
    result = cluster.finish()
    assert Counter(value["n"] for value in result["out"]) == Counter(n for n in range(300) if n % 3)
    assert Counter(letter.tuple["n"] for letter in result.letters["pages"]) == Counter(range(0, 300, 3))


class Visit(TypedDict):
    page: str


@pytest.mark.parametrize(
    "value",
    [
        Page("a"),
        {"page": "a"},
        {"page": "a", "items": 3},
    ],
)
def test_a_field_has_the_same_key_in_any_container(value: Any) -> None:
    take = extractor(("page",))
    assert take is not None
    assert take(value) == "a"
    assert key_group(take(value)) == key_group("a")


def test_fields_of_dicts_may_be_named_as_methods_of_theirs_are_or_be_nested() -> None:
    value = {"items": 3, "user": {"id": 4}, "page": Page("a"), "a.b": 5}
    found = [extractor((key,))(value) for key in ("items", "user.id", "page.page", "a.b")]  # type: ignore[misc]
    assert found == [3, 4, "a", 5]
    with pytest.raises(UnknownName, match=r"no field 'name'; it has id"):
        extractor(("user.name",))(value)  # type: ignore[misc]
    with pytest.raises(UnknownName, match="a str has no named fields"):
        extractor(("page",))("text")  # type: ignore[misc]


def test_rejects_a_field_that_a_declared_type_does_not_have() -> None:
    flow = ps.Dataflow("typed")
    for name, kind in (("small", Small), ("visit", Visit), ("struct", Page)):
        given = flow.source(name, Given([]), emits=kind)
        with pytest.raises(PenstockError, match="has no field 'url'; there are"):
            flow.sink(f"{name}-out", ps.Discard(), given.fields("url"))


def test_a_dict_is_estimated_and_run_by_a_field() -> None:
    flow = ps.Dataflow("pages")
    given = flow.source("pages", Given([{"page": f"/{n % 3}", "n": n} for n in range(30)]), emits=dict[str, Any])
    count = flow.operator("count", lambda: Passing("unused"), given.fields("page"), parallelism=2)
    flow.sink("out", ps.Discard(), count)
    assert [stream.keys for stream in flow.application.streams] == [("page",), ()]
    assert len(run(flow, workers=2)["out"]) == 30


# Conversions


def converted(kind: Any, make: Callable[[int], Any], **options: Any) -> ps.Dataflow:
    flow = ps.Dataflow("converted")
    given = flow.source("numbers", Given(range(40)), emits=int)
    made = flow.map("make", make, given, emits=kind, **options)
    flow.sink("out", ps.Discard(), flow.map("take", lambda value: value.number, made, **options))
    return flow


def unsendable(number: int) -> Shy:
    return Shy({object()} if number == 13 else number)


def badly_typed(number: int) -> Any:
    return {"number": number}


@pytest.mark.parametrize("make", [unsendable, badly_typed])
@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("sample_tps", [-1.0, 0.0])
def test_a_tuple_that_cannot_be_sent_or_read_is_skipped(
    make: Callable[[int], Any], emulated: bool, sample_tps: float
) -> None:
    flow = converted(Shy if make is unsendable else Small, make, errors=ps.Skip())
    emulate = tiny_cluster(4) if emulated else None
    result = run(flow, workers=4, emulate=emulate, sample_tps=sample_tps)
    assert sorted(result["out"]) == [n for n in range(40) if n != 13]
    (letter,) = [*result.letters["make"], *result.letters["take"]]
    assert letter.call == "emits"
    assert letter.component == ("make" if make is unsendable else "take")
    assert "13" in str(letter.tuple) or make is unsendable
    assert result.status.timed_out == 0


@pytest.mark.parametrize("make", [unsendable, badly_typed])
def test_a_tuple_that_cannot_be_sent_or_read_ends_the_run_and_is_named(make: Callable[[int], Any]) -> None:
    cluster = TestCluster(converted(Shy if make is unsendable else Small, make), workers=4)
    who = (
        r"make\[0\]: make->take: tuple Shy" if make is unsendable else r"take\[0\]: make->take.emits: tuple .*13.* not"
    )
    with pytest.raises(ApplicationFailed, match=who):
        cluster.start().finish()
    assert cluster.controller.recovery.count == 0


def sized(*sizes: int, **options: Any) -> ps.Dataflow:
    """Return texts of these many bytes, each from one machine to another."""
    flow = ps.Dataflow("sized")
    given = flow.source("numbers", Given(range(len(sizes))), emits=int)
    made = flow.map("make", lambda number: "x" * sizes[number], given, emits=str, **options)
    flow.sink("out", ps.Discard(), flow.map("take", len, made))
    return flow


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("sample_tps", [-1.0, 0.0])
def test_a_tuple_that_no_frame_has_room_for_follows_the_error_policy_of_its_sender(
    monkeypatch: pytest.MonkeyPatch, emulated: bool, sample_tps: float
) -> None:
    monkeypatch.setattr(codecs, "LARGEST_TUPLES", 1000)
    sizes = [10, 996, 997, 998, 2000, 20]  # three bytes say how long such a text is
    emulate = tiny_cluster(4) if emulated else None
    result = run(sized(*sizes, errors=ps.Skip()), workers=4, emulate=emulate, sample_tps=sample_tps)
    assert sorted(result["out"]) == [10, 20, 996, 997]
    assert [(letter.component, letter.call) for letter in result.letters["make"]] == [("make", "emits")] * 2
    assert result.status.timed_out == 0
    cluster = TestCluster(sized(*sizes), workers=4)
    reported = r"make\[0\]: make->take: tuple 'x+.* cannot be sent, it takes 0.0 MB, at most 0.0 MB can be sent"
    with pytest.raises(ApplicationFailed, match=reported):
        cluster.start().finish()
    assert cluster.controller.recovery.count == 0


@pytest.mark.parametrize("sample_tps", [-1.0, 0.0])
def test_tuples_that_are_too_large_only_together_are_sent_apart(
    monkeypatch: pytest.MonkeyPatch, sample_tps: float
) -> None:
    monkeypatch.setattr(codecs, "LARGEST_TUPLES", 1000)
    sent: list[int] = []
    post = WorkerOutbox.post

    def counted(outbox: WorkerOutbox, to: int, frame: Frame | Farewell) -> None:
        if isinstance(frame, Data):
            sent.append(len(frame.values))
        post(outbox, to, frame)

    monkeypatch.setattr(WorkerOutbox, "post", counted)
    sizes = [300 + number for number in range(100)]
    result = run(sized(*sizes), workers=4, sample_tps=sample_tps)
    assert list(result["out"]) == sizes
    assert max(sent) <= 1000
    assert result.status.timed_out == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_tuple_that_cannot_be_read_moves_along_with_its_task(seed: int) -> None:
    flow = ps.Dataflow("moving")
    given = flow.source("numbers", ps.Generated(lambda n: n, rate=100, count=200), emits=int)
    made = flow.map("make", lambda n: {"number": 13 if n % 5 == 0 else n}, given, emits=Small)
    flow.sink("out", ps.Discard(), flow.map("take", lambda value: value.number, made, errors=ps.Skip()))
    cluster = TestCluster(flow, workers=3, placement=["w0/0", "w0/0", "w1/0", "w2/0"], seed=seed).start()
    for turn in range(6):
        cluster.advance(0.2)
        cluster.move("take[0]", f"w{2 if turn % 2 else 1}/0")
    result = cluster.finish()
    assert sorted(result["out"]) == [n for n in range(200) if n % 5 and n != 13]
    assert len(result.letters["take"]) == 41  # 40 of them, and 13 itself


@pytest.mark.parametrize("sample_tps", [-1.0, 0.0])
def test_unknown_outputs_and_tasks_are_under_the_error_policy(sample_tps: float) -> None:
    flow = ps.Dataflow("outputs")
    given = flow.source("numbers", Given(range(40)), emits=int)
    named = [("odd" if n % 2 else "none", n) for n in range(40)]
    made = flow.source("name", Given(named), outputs=("odd",), errors=ps.Skip())
    flow.sink("out", ps.Discard(), made["odd"])
    to = flow.map("send", lambda n: (n % 3, n), given, errors=ps.Skip())
    flow.sink("two", ps.Discard(), to.direct(), parallelism=2)
    result = run(flow, workers=2, sample_tps=sample_tps)
    assert sorted(result["out"]) == list(range(1, 40, 2))
    assert sorted(result["two"]) == [n for n in range(40) if n % 3 != 2]
    assert {letter.call for letter in result.letters["name"]} == {"outputs"}
    assert sorted(letter.tuple[1] for letter in result.letters["send"]) == list(range(2, 40, 3))
    assert result.status.timed_out == 0


# What was rolled back


@pytest.mark.parametrize("lost", [False, True])
def test_a_run_that_processed_nothing_because_of_recoveries_has_failed(lost: bool) -> None:
    cluster = TestCluster(passing(), workers=3).start()
    cluster.advance(0.7)
    if lost:
        cluster.controller.recovery.begin("for the test", cluster.clock())
        cluster.controller.drain(cluster.clock())
        with pytest.raises(ApplicationFailed, match="the run processed nothing: 1 recovery went back to where it had"):
            cluster.finish()
    else:
        assert cluster.drain().status.error == ""


def test_a_run_that_recovered_and_went_on_is_a_success() -> None:
    cluster = TestCluster(passing(), workers=3).start()
    cluster.advance(0.7)
    cluster.controller.recovery.begin("for the test", cluster.clock())
    cluster.advance(0.7)
    result = cluster.drain()
    assert (result.status.phase, result.status.error, result.status.warnings) == ("stopped", "", [])


def test_a_run_whose_sources_ended_by_themselves_after_a_recovery_is_a_success() -> None:
    flow = ps.Dataflow("empty")
    flow.sink("out", ps.Discard(), flow.source("none", Given([])))
    cluster = TestCluster(flow).start()
    cluster.controller.recovery.begin("for the test", cluster.clock())
    status = cluster.finish().status
    assert (status.recoveries, status.error, status.warnings) == (1, "", ["no source emitted a tuple"])


def test_warns_of_a_run_without_a_tuple() -> None:
    flow = ps.Dataflow("empty")
    flow.sink("out", ps.Discard(), flow.source("none", Given([])))
    assert run(flow).status.warnings == ["no source emitted a tuple"]
