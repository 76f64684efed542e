"""Out-queues: who gets which tuple and when, with credits, marks and markers."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.keys import key_group, owner
from penstock.model.errors import InvalidInput
from penstock.model.topology import Grouping
from penstock.runtime.protocol.frames import END, PROGRESS, Mark, MarkerBody, Waiting
from penstock.runtime.worker.output import Batch, Lane, OutQueue, SampledTuple, Sender

SPREADING = [Grouping.SHUFFLE, Grouping.PARTIAL_KEY, Grouping.LOCAL_OR_SHUFFLE]
FIXED = [Grouping.FIELDS, Grouping.GLOBAL, Grouping.ALL, Grouping.DIRECT]


class Recorded(Sender):
    """Keeps what is sent, as a worker would count it."""

    def __init__(self, local: set[int] | None = None) -> None:
        self.sent: dict[int, list[Any]] = {}  # by target: tuples, with the mark's id where there is one, and markers
        self.local = local or set()
        self.ids = 0
        self.made = 0  # exclusive or of all ids

    def send(self, queue: OutQueue, lane: Lane, batch: Batch) -> None:
        assert 0 < len(batch.values) <= lane.credits
        lane.spend(len(batch.values))
        assert [mark.place for mark in batch.marks] == sorted({mark.place for mark in batch.marks})
        ids = {mark.place: mark for mark in batch.marks}
        self.sent.setdefault(lane.target, []).extend(
            (value, ids.get(place)) for place, value in enumerate(batch.values)
        )

    def send_marker(self, queue: OutQueue, lane: Lane, marker: MarkerBody) -> None:
        lane.spend_marker()
        self.sent.setdefault(lane.target, []).append(marker)

    def is_local(self, task: int) -> bool:
        return task in self.local

    def new_id(self, root: int) -> int:
        self.ids += 1
        self.made ^= 1 << self.ids
        return 1 << self.ids

    def refuse(self, queue: OutQueue, name: str, value: Any, mark: Mark | None, error: BaseException) -> None:
        raise error

    def values(self, target: int) -> list[Any]:
        return [item[0] for item in self.sent.get(target, []) if not isinstance(item, MarkerBody)]

    def counts(self, lanes: int) -> list[int]:
        return [len(self.values(target)) for target in range(lanes)]


def queue(
    grouping: Grouping, lanes: int = 3, window: int = 1000, local: set[int] | None = None, key: Any = None
) -> tuple[OutQueue, Recorded]:
    sender = Recorded(local)
    return OutQueue(7, grouping, 99, [Lane(target, window) for target in range(lanes)], sender, key=key), sender


def in_turn(queue: OutQueue, turn: int) -> OutQueue:
    queue.turn = turn
    return queue


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(1, 5))
def test_shuffle_spreads_evenly_to_within_one(batches: list[int], lanes: int) -> None:
    out, sender = queue(Grouping.SHUFFLE, lanes)
    for size in batches:
        out.put(list(range(size)))
        counts = sender.counts(lanes)
        assert max(counts) - min(counts) <= 1
    assert sum(sender.counts(lanes)) == sum(batches)


def test_shuffle_starts_with_the_lane_that_is_next_in_turn() -> None:
    sender = Recorded({0, 3})
    lanes = [Lane(target, 10) for target in range(4)]
    in_turn(OutQueue(7, Grouping.SHUFFLE, 99, lanes, sender), 2).put(["a", "b", "c"])
    assert [sender.values(target) for target in range(4)] == [["c"], [], ["a"], ["b"]]
    near = Recorded({0, 3})
    in_turn(OutQueue(7, Grouping.LOCAL_OR_SHUFFLE, 99, lanes, near), 2).put(["a", "b", "c"])
    assert [near.values(target) for target in range(4)] == [["c"], [], [], ["a", "b"]]  # a share at once


def test_shuffle_sends_what_one_lane_has_no_credit_for_to_the_others() -> None:
    out, sender = queue(Grouping.SHUFFLE, 3, window=4)
    out.lanes[1].credits = 1
    out.put(list(range(20)))
    assert sender.counts(3) == [4, 1, 4]
    assert out.backlog == 11
    out.lanes[1].credits += 5
    out.pump()
    assert sender.counts(3) == [4, 6, 4]


def test_fields_sends_a_key_to_its_owner_always() -> None:
    out, sender = queue(Grouping.FIELDS, 4, key=lambda pair: pair[0])
    pairs = [(f"k{number % 13}", number) for number in range(200)]
    for start in range(0, 200, 7):
        out.put(pairs[start : start + 7])
    for target in range(4):
        expected = [pair for pair in pairs if owner(key_group(pair[0]), 4) == target]
        assert sender.values(target) == expected


def test_all_sends_every_tuple_to_every_task() -> None:
    out, sender = queue(Grouping.ALL)
    out.put(["a", "b"])
    assert [sender.values(target) for target in range(3)] == [["a", "b"]] * 3


def test_all_grouping_gives_each_copy_of_a_traced_tuple_its_own_id() -> None:
    out, sender = queue(Grouping.ALL)
    out.put(["a", "b"], [SampledTuple(1, 5, 6, 0.5)])
    marks = [item[1] for items in sender.sent.values() for item in items if item[1] is not None]
    assert len({mark.id for mark in marks}) == 3
    assert sender.made == marks[0].id ^ marks[1].id ^ marks[2].id
    assert {(mark.root, mark.parent, mark.emitted) for mark in marks} == {(5, 6, 0.5)}


def test_global_sends_to_the_first_task_only() -> None:
    out, sender = queue(Grouping.GLOBAL)
    out.put([1, 2, 3])
    assert sender.counts(3) == [3, 0, 0]


def test_forward_sends_by_its_only_lane() -> None:
    sender = Recorded()
    out = OutQueue(0, Grouping.FORWARD, 1, [Lane(5, 10)], sender)
    out.put([1, 2])
    assert sender.values(5) == [1, 2]


def test_direct_sends_to_the_task_that_is_named() -> None:
    out, sender = queue(Grouping.DIRECT)
    out.put([(2, "a"), (0, "b"), (2, "c")])
    assert [sender.values(target) for target in range(3)] == [["b"], [], ["a", "c"]]


@pytest.mark.parametrize("pair", [(3, "a"), (-1, "a")])
def test_direct_rejects_an_unknown_task(pair: Any) -> None:
    out, _ = queue(Grouping.DIRECT)
    with pytest.raises(InvalidInput, match=f"there is no task {pair[0]} to send to; there are 0 to 2"):
        out.put([pair])


@pytest.mark.parametrize("value", ["text", 5, None, ("x", "a"), (1, 2, 3)])
def test_direct_rejects_what_is_no_pair(value: Any) -> None:
    out, _ = queue(Grouping.DIRECT)
    with pytest.raises(InvalidInput, match=r"expected a pair \(task, value\)"):
        out.put([value])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(1, 6))
def test_partial_key_uses_at_most_two_tasks_a_key_and_the_less_loaded(keys: list[int], lanes: int) -> None:
    out, sender = queue(Grouping.PARTIAL_KEY, lanes)
    for start in range(0, len(keys), 9):
        out.put(keys[start : start + 9])
    used: dict[int, set[int]] = {}
    for target in range(lanes):
        for key in sender.values(target):
            used.setdefault(key, set()).add(target)
    assert all(len(tasks) <= 2 for tasks in used.values())
    assert Counter(key for target in range(lanes) for key in sender.values(target)) == Counter(keys)


def test_partial_key_balances_one_hot_key_over_two_tasks() -> None:
    out, sender = queue(Grouping.PARTIAL_KEY, 4)
    out.put(["hot"] * 100)
    assert sorted(sender.counts(4)) == [0, 0, 50, 50]


def test_local_or_shuffle_prefers_tasks_of_the_process() -> None:
    out, sender = queue(Grouping.LOCAL_OR_SHUFFLE, 4, local={1, 3})
    out.put(list(range(10)))
    assert sender.counts(4) == [0, 5, 0, 5]
    out, sender = queue(Grouping.LOCAL_OR_SHUFFLE, 4)
    out.put(list(range(8)))
    assert sender.counts(4) == [2, 2, 2, 2]


actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.booleans(), min_size=1, max_size=9)),  # which are sampled
        st.tuples(st.just("marker"), st.none()),
        st.tuples(st.just("credit"), st.tuples(st.integers(0, 2), st.integers(1, 6))),
        st.tuples(st.just("move"), st.none()),
    ),
    max_size=30,
)


@given(st.sampled_from(SPREADING + FIXED), actions, st.integers(1, 5))
def test_keeps_credits_marks_and_markers_through_all_that_can_happen(
    grouping: Grouping, steps: list[tuple[str, Any]], window: int
) -> None:
    out, sender = queue(grouping, 3, window)
    put: list[int] = []
    sampled: dict[int, int] = {}  # value -> parent
    markers = 0
    allowed = [window] * 3
    since = [0]  # how many had been put when each marker was
    for what, how in steps:
        if what == "put":
            values = [len(put) + place for place in range(len(how))]
            marks = [SampledTuple(place, 1, values[place], 0.0) for place, is_one in enumerate(how) if is_one]
            sampled.update((mark.parent, mark.parent) for mark in marks)
            put += values
            out.put([(value % 3, value) if grouping is Grouping.DIRECT else value for value in values], marks)
        elif what == "marker":
            markers += 1
            since.append(len(put))
            out.put_marker(MarkerBody(PROGRESS, markers, 0))
        elif what == "credit":
            lane, amount = how
            allowed[lane] += amount
            out.lanes[lane].credits += amount
            out.pump()
        else:
            out = moved(out, sender)
    out.put_marker(MarkerBody(END, 0, 0))
    for lane in range(3):
        assert len(sender.values(lane)) <= allowed[lane]
        assert out.lanes[lane].credits == allowed[lane] - len(sender.values(lane))
        out.lanes[lane].credits += len(put)
    out.pump()
    check_all_sent(grouping, sender, put, since, sampled)
    assert out.backlog == 0


def moved(out: OutQueue, sender: Recorded) -> OutQueue:
    """Take a queue to another worker, over the wire."""

    def decode(_: OutQueue, waiting: Waiting) -> Batch:
        return Batch(msgspec.msgpack.decode(waiting.values), list(waiting.marks))

    state = out.save(lambda _, batch: msgspec.msgpack.encode(batch.values))
    fresh = OutQueue(7, out.grouping, 99, [Lane(lane.target, lane.window) for lane in out.lanes], sender)
    fresh.load(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state)), decode)
    assert fresh.backlog == out.backlog
    assert [(a.credits, a.number, a.backlog) for a in fresh.lanes] == [
        (b.credits, b.number, b.backlog) for b in out.lanes
    ]
    return fresh


def check_all_sent(
    grouping: Grouping, sender: Recorded, put: list[int], since: list[int], sampled: dict[int, int]
) -> None:
    copies = 3 if grouping is Grouping.ALL else 1
    assert Counter(value for lane in range(3) for value in sender.values(lane)) == Counter(put * copies)
    reported = 0
    for lane in range(3):
        seen = 0
        for item in sender.sent.get(lane, []):
            if isinstance(item, MarkerBody):
                if item.kind == PROGRESS:
                    assert item.value == seen + 1  # in order, none missing
                    seen += 1
                continue
            value, mark = item
            assert value >= since[seen]  # none has been overtaken by a marker
            assert seen + 1 >= len(since) or value < since[seen + 1]
            assert (mark.parent if mark is not None else None) == sampled.get(value)
            reported ^= mark.id if mark is not None else 0
        assert seen == len(since) - 1
        assert sender.sent[lane][-1] == MarkerBody(END, 0, 0)
    assert reported == sender.made


def test_markers_need_no_credit_and_wait_only_for_tuples_before_them() -> None:
    out, sender = queue(Grouping.SHUFFLE, 2, window=1)
    out.put_marker(MarkerBody(PROGRESS, 1, 0))
    assert all(items == [MarkerBody(PROGRESS, 1, 0)] for items in sender.sent.values())
    out.put([10, 11, 12])
    out.put_marker(MarkerBody(PROGRESS, 2, 0))
    assert sender.sent[0][-2:] == [(10, None), MarkerBody(PROGRESS, 2, 0)]
    assert sender.sent[1][-1] == (11, None)
    out.lanes[1].credits += 1
    out.pump()
    assert sender.sent[1][-2:] == [(12, None), MarkerBody(PROGRESS, 2, 0)]


def test_a_queue_moves_with_what_waits_in_it() -> None:
    out, sender = queue(Grouping.FIELDS, 1, window=2)
    out.put([1, 2, 3, 4], [SampledTuple(3, 8, 9, 1.5)])
    out.put_marker(MarkerBody(END, 0, 0))
    state = out.save(lambda _, batch: msgspec.msgpack.encode(batch.values))
    lane = state.lanes[0]
    assert (lane.credits, lane.number, lane.waiting[0].count) == (0, 2, 2)
    assert lane.waiting[0].marks == (Mark(1, 8, 2, 9, 1.5),)
    fresh = moved(out, sender)
    fresh.lanes[0].credits = 5
    fresh.pump()
    assert sender.values(0) == [1, 2, 3, 4]


def test_untyped_tuples_that_have_no_lane_yet_keep_their_keys_over_a_move() -> None:
    out, sender = queue(Grouping.PARTIAL_KEY, 3, window=1)
    out.put([("hot", number) for number in range(10)])
    fresh = moved(out, sender)  # where they are lists, which cannot be keys
    for lane in fresh.lanes:
        lane.credits += 10
    fresh.pump()
    assert sorted(number for target in range(3) for _, number in sender.values(target)) == list(range(10))


def test_putting_nothing_sends_nothing() -> None:
    for grouping in SPREADING + FIXED:
        out, sender = queue(grouping)
        out.put([])
        assert not sender.sent


class Holding:
    """A gate that holds back all tuples."""

    def holds(self, lane: Lane) -> bool:
        return True

    def request(self, queue: OutQueue) -> None:
        pass


def test_a_lane_whose_credit_was_taken_back_does_not_reduce_what_others_may_send() -> None:
    queue = OutQueue(0, Grouping.SHUFFLE, 0, [Lane(target, 8) for target in range(2)], Recorded())
    queue.set_policies(None, Holding())
    queue.put(list(range(8)))
    assert queue.releasable() == 8
    queue.lanes[0].credits = -3
    assert queue.releasable() == 4
