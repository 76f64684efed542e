"""Inboxes: the order of each channel, alignment at barriers, and what moves with a task."""

import random
from typing import Any

import msgspec
import pytest

from penstock.runtime.protocol.frames import MOVE, PROGRESS, InState, Mark, MarkerBody
from penstock.runtime.worker.input import BrokenProtocol, Delivery, Inbox, InChannel

SOURCES = (3, 4, 7)


def inbox(window: int = 8) -> Inbox:
    return Inbox("count[0]", [InChannel(1, source, window) for source in SOURCES])


def batch(channel: InChannel, values: list[Any], marks: tuple[Mark, ...] = ()) -> Delivery:
    return Delivery(channel, values, marks, 0.0, 0.0, 0, 0)


def taken(box: Inbox) -> list[tuple[int, Any]]:
    """Process all that waits; return the values and markers with the sources that they came from."""
    found: list[tuple[int, Any]] = []
    while box.waiting:
        item = box.waiting[0]
        if isinstance(item, Delivery):
            values, mark = item.peek(2)
            item.advance(len(values), mark is not None)
            box.drop_taken(len(values))
            box.consume(item.channel, len(values))
            found += [(item.channel.source, value) for value in values]
        else:
            box.waiting.popleft()
            found.append((item[0].source, item[1]))
    return found


def sent(rng: random.Random, source: int) -> list[tuple[int, Any]]:
    """Return what a channel sends, as items with their numbers: batches, progress, and markers of moves."""
    items: list[tuple[int, Any]] = []
    number = 0
    for _ in range(rng.randrange(1, 12)):
        kind = rng.choice(("batch", "batch", "progress", "move"))
        if kind == "batch":
            count = rng.randrange(1, 5)
            items.append((number, [f"{source}/{number + n}" for n in range(count)]))
            number += count
        elif kind == "progress":
            items.append((number, MarkerBody(PROGRESS, number, source)))
            number += 1
        else:
            items.append((number, MarkerBody(MOVE, number)))
    return items


@pytest.mark.parametrize("seed", range(60))
def test_keeps_the_order_of_every_channel_for_any_order_of_arrival(seed: int) -> None:
    rng = random.Random(seed)
    box, moves = inbox(), dict[int, list[MarkerBody]]()
    all_sent = {source: sent(rng, source) for source in SOURCES}
    # What the old host forwards, markers of moves included, comes in order; what the new one sends comes at any time.
    coming = []
    for source, items in all_sent.items():
        places = sorted(rng.random() for _ in items)
        for place, (number, item) in zip(places, items, strict=True):
            early = rng.random() < 0.5 and not (isinstance(item, MarkerBody) and item.kind == MOVE)
            coming.append((rng.uniform(0.0, place) if early else place, source, number, item))
    processed: list[tuple[int, Any]] = []
    for _, source, number, item in sorted(coming, key=lambda one: one[0]):
        channel = box.channels[1, source]
        content = batch(channel, list(item)) if isinstance(item, list) else item
        moves.setdefault(source, []).extend(box.accept(channel, number, content))
        if rng.random() < 0.3:
            processed += taken(box)
    processed += taken(box)
    for source, items in all_sent.items():
        values = [v for _, item in items for v in (item if isinstance(item, list) else [item])]
        expected = [v for v in values if not (isinstance(v, MarkerBody) and v.kind == MOVE)]
        assert [value for of, value in processed if of == source] == expected
        assert moves[source] == [v for v in values if isinstance(v, MarkerBody) and v.kind == MOVE]
    assert (box.queued, box.active) == (0, 0)


def test_a_repeated_number_violates_the_protocol() -> None:
    box = inbox()
    channel = box.channels[1, 3]
    box.accept(channel, 0, batch(channel, ["a", "b"]))
    with pytest.raises(BrokenProtocol, match=r"count\[0\]: expected tuple 2 of 1/3, got 1"):
        box.accept(channel, 1, batch(channel, ["b"]))


def test_buffers_tuples_behind_a_barrier_until_all_channels_have_theirs() -> None:
    box = inbox()
    three, four, seven = (box.channels[1, source] for source in SOURCES)
    box.accept(three, 0, batch(three, ["late"]))
    box.accept(four, 0, batch(four, ["b"]))
    assert not box.align(three)  # its barrier was at the head of the inbox
    box.accept(three, 1, batch(three, ["later"]))
    assert taken(box) == [(4, "b")]
    assert box.queued == 2
    assert not box.align(four)
    assert box.aligning
    assert box.align(seven)
    box.accept(four, 1, batch(four, ["c"]))
    box.unblock()
    assert not box.aligning
    assert taken(box) == [(3, "late"), (3, "later"), (4, "c")]


def test_an_inbox_moves_with_what_waits_in_it() -> None:
    box = inbox()
    three, four, _ = (box.channels[1, source] for source in SOURCES)
    marks = (Mark(0, 9, 1, 9, 0.5), Mark(2, 9, 2, 9, 0.5))
    box.accept(three, 0, batch(three, ["a", "b", "c"], marks))
    box.accept(three, 3, MarkerBody(PROGRESS, 3, 3))
    box.accept(three, 6, batch(three, ["held"]))
    box.accept(four, 0, batch(four, ["d"]))
    first = box.waiting[0]
    assert isinstance(first, Delivery)
    assert first.peek(5) == (["a"], marks[0])
    first.advance(1, True)
    box.drop_taken(1)
    box.consume(three, 1)
    assert box.end(four) is False
    states = msgspec.msgpack.decode(msgspec.msgpack.encode(box.save()), type=tuple[InState, ...])
    contents = list(box.contents([(three, MarkerBody(MOVE, 1))]))
    other = inbox()
    other.load(states)
    assert (other.open, other.channels[1, 4].ended, other.channels[1, 3].consumed) == (2, True, 1)
    moves: list[MarkerBody] = []
    for channel, number, item in contents:
        there = other.channels[1, channel.source]
        if isinstance(item, Delivery):
            item.cut()
            item = batch(there, item.values, tuple(item.marks))
        moves += other.accept(there, number, item)
    assert moves == [MarkerBody(MOVE, 1)]
    again = other.waiting[0]
    assert isinstance(again, Delivery)
    assert (again.values, [mark.place for mark in again.marks]) == (["b", "c"], [1])
    assert taken(other) == [(3, "b"), (3, "c"), (3, MarkerBody(PROGRESS, 3, 3)), (4, "d")]
    channel = other.channels[1, 3]
    other.accept(channel, 4, batch(channel, ["e", "f"]))
    assert taken(other) == [(3, "e"), (3, "f"), (3, "held")]


@pytest.mark.parametrize("seed", range(20))
def test_progress_is_the_minimum_over_all_paths_and_is_passed_on_when_it_grows(seed: int) -> None:
    rng = random.Random(seed)
    box, paths = inbox(), [(1, source) for source in SOURCES]
    latest, passed = dict.fromkeys(paths, 0), 0
    for _ in range(200):
        path, value = rng.choice(paths), rng.randrange(100)
        found = box.advance_progress(box.channels[path], 2, value, paths)
        latest[path] = max(latest[path], value)
        assert found == (min(latest.values()) if min(latest.values()) > passed else None)
        passed = min(latest.values())
    assert passed > 0
