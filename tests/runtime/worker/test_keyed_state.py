"""Keyed states: what checkpoints write, and that a state restored from their parts is the one that was saved."""

import random
from collections.abc import Hashable
from typing import Any
from zlib import crc32

import pytest

from penstock.api.keys import key_group, owner
from penstock.model.errors import InvalidInput
from penstock.runtime.protocol.worker_messages import StatePart
from penstock.runtime.storage.key_groups import StateCodec
from penstock.runtime.worker import keyed_state
from penstock.runtime.worker.keyed_state import KeyedState
from penstock.testing import ManualClock

Snapshot = dict[Hashable, tuple[Any, float | None]]  # key -> state, seconds to its timer


class Disk:
    """The parts of checkpoints, and those that each complete checkpoint consists of."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}
        self.parts: dict[int, tuple[StatePart, ...]] = {}

    def save(self, state: KeyedState, number: int, complete: bool = True) -> int:
        """Save a checkpoint; return its bytes."""
        self.data[number] = b"".join(state.pieces(number))
        earlier = state.earlier()
        own = StatePart(number, "w0", 0, len(self.data[number]), crc32(self.data[number]))
        state.written(own)
        if complete:
            state.completed(number)
            self.parts[number] = (*earlier, own)
        return len(self.data[number])

    def read(self, number: int) -> list[tuple[StatePart, bytes]]:
        return [(part, self.data[part.checkpoint]) for part in self.parts[number]]


def state_of(clock: ManualClock, task: int = 0, tasks: int = 1, **types: Any) -> KeyedState:
    return KeyedState(StateCodec("count", **types), task, tasks, clock)


def put(state: KeyedState, key: Hashable, value: Any, timer: float | None = None) -> None:
    group = state.group_of(key)
    group.changed[key] = None
    group.drop(key)
    if value is not None:
        group.states[key] = value
        if timer is not None:
            group.timers[key] = timer


def content(state: KeyedState, now: float) -> Snapshot:
    found: Snapshot = {}
    for group in state.groups():
        for key, value in group.states.items():
            timer = group.timers.get(key)
            found[key] = value, None if timer is None else round(timer - now, 6)
    return found


@pytest.mark.parametrize("small", [0, keyed_state.SMALL])
@pytest.mark.parametrize("seed", range(6))
def test_a_state_restored_from_its_parts_is_what_was_saved(
    seed: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_state, "SMALL", small)
    rng, clock, disk = random.Random(seed), ManualClock(), Disk()
    state, last, saved = state_of(clock), 0, content(state_of(clock), 0.0)
    for number in range(1, 60):
        for _ in range(rng.randrange(12)):
            value = rng.choice((None, rng.randrange(100), "x" * rng.randrange(300)))
            put(state, f"k{rng.randrange(60)}", value, rng.choice((None, clock() + rng.randrange(50))))
        clock.advance(rng.uniform(0, 3))
        complete = rng.random() < 0.7
        before = content(state, clock())
        disk.save(state, number, complete)
        if complete:
            last, saved = number, before
        step = rng.random()
        if step < 0.15 and last:  # a recovery: what was not saved is lost, and timers have waited
            clock.advance(100.0)
            state = state_of(clock)
            state.restore(disk.read(last))
            assert content(state, clock()) == saved
        elif step < 0.3:  # a move to a worker with another clock
            expected, moved = content(state, clock()), state.save()
            clock = ManualClock(clock() - 500.0)
            state = state_of(clock)
            state.load(moved)
            assert content(state, clock()) == expected


def test_a_checkpoint_has_the_keys_that_changed() -> None:
    clock, disk = ManualClock(), Disk()
    state = state_of(clock)
    for number in range(20_000):
        put(state, number, number)
    full = disk.save(state, 1)
    assert disk.save(state, 2) == 0
    for number in range(200):
        put(state, number, -number)
    assert 200 * 3 < disk.save(state, 3) < full / 20
    restored = state_of(clock)
    restored.restore(disk.read(3))
    assert content(restored, 0.0) == content(state, 0.0)
    assert [part.checkpoint for part in disk.parts[3]] == [1, 3]


def test_all_parts_together_stay_bounded() -> None:
    rng, clock, disk = random.Random(1), ManualClock(), Disk()
    state = state_of(clock)
    for number in range(3_000):
        put(state, number, "x" * 50)
    full = disk.save(state, 1)
    for checkpoint in range(2, 250):
        for number in rng.sample(range(3_000), 30):
            put(state, number, "y" * 50)
        assert disk.save(state, checkpoint) < full / 20
        parts = disk.parts[checkpoint]
        assert len(parts) < 1.2 * keyed_state.PARTS
        assert sum(part.size for part in parts) < 3.5 * full


def test_changes_of_an_aborted_checkpoint_are_in_the_next_one() -> None:
    clock, disk = ManualClock(), Disk()
    state = state_of(clock)
    for number in range(20_000):
        put(state, number, 0)
    disk.save(state, 1)
    put(state, 7, 1)
    disk.save(state, 2, complete=False)
    put(state, 8, 1)
    disk.save(state, 3)
    restored = state_of(clock)
    restored.restore(disk.read(3))
    assert {key for key, (value, _) in content(restored, 0.0).items() if value} == {7, 8}


def test_timers_of_an_old_part_are_due_when_they_were() -> None:
    clock, disk = ManualClock(), Disk()
    state = state_of(clock)
    for number in range(20_000):
        put(state, number, 0, clock() + 60.0)
    disk.save(state, 1)
    clock.advance(20.0)
    put(state, 3, 1, clock() + 60.0)
    disk.save(state, 2)
    clock.advance(1000.0)  # the run was not there
    restored = state_of(clock)
    restored.restore(disk.read(2))
    waits = {key: wait for key, (_, wait) in content(restored, clock()).items()}
    assert waits.pop(3) == 60.0
    assert set(waits.values()) == {40.0}


def test_tasks_read_the_key_groups_that_they_own() -> None:
    clock, disk = ManualClock(), Disk()
    state = state_of(clock)
    for number in range(500):
        put(state, number, number)
    disk.save(state, 1)
    found: Snapshot = {}
    for task in range(3):
        part = state_of(clock, task, 3)
        part.restore(disk.read(1))
        keys = content(part, 0.0)
        assert {owner(key_group(key), 3) for key in keys} == {task}
        found |= keys
    assert found == content(state, 0.0)


def test_undeclared_keys_and_states_are_restored_as_they_were() -> None:
    clock, disk = ManualClock(), Disk()
    state = state_of(clock)
    for key in ("a", b"a", 1, 2.5, None, ("a", 1), ("a", ("b", b"c")), True):
        put(state, key, [1, {"x": 2.5, "y": None}, b"z"])
    disk.save(state, 1)
    restored = state_of(clock)
    restored.restore(disk.read(1))
    assert content(restored, 0.0) == content(state, 0.0)


@pytest.mark.parametrize(
    ("key", "value", "types", "problem"),
    [
        ("a", object(), {}, r"the state of key 'a' cannot be encoded, .* use numbers, texts"),
        ("a", (1, 2), {}, r"the state of key 'a' is a tuple and is decoded as \[1, 2\]; declare its type with state="),
        ("a", [1, (2,)], {}, r"the state of key 'a' is a list and is decoded as \[1, \[2\]\]; declare"),
        ("a", {1, 2}, {}, r"the state of key 'a' is a set and is decoded as \[1, 2\]; declare"),
        ("a", "x", {"state": int}, r"the state of key 'a' cannot be decoded as int, Expected `int`, got `str`"),
        (frozenset("a"), 1, {}, r"key frozenset\({'a'}\) is decoded as \('a',\); declare the type of the input's"),
    ],
)
def test_what_could_not_be_read_is_not_written(key: Hashable, value: Any, types: Any, problem: str) -> None:
    state = state_of(ManualClock(), **types)
    put(state, "first", 5)
    put(state, key, value)
    for call in (lambda: state.check(key, value), lambda: list(state.pieces(1)), state.save):
        with pytest.raises(InvalidInput, match=rf"^count: {problem}"):
            call()


def test_declared_types_are_restored() -> None:
    clock, disk = ManualClock(), Disk()
    state = state_of(clock, key=frozenset[str], state=tuple[int, set[int]])
    put(state, frozenset("ab"), (1, {2, 3}))
    disk.save(state, 1)
    restored = state_of(clock, key=frozenset[str], state=tuple[int, set[int]])
    restored.restore(disk.read(1))
    assert content(restored, 0.0) == {frozenset("ab"): ((1, {2, 3}), None)}
    other = state_of(clock, key=frozenset[str], state=int)
    with pytest.raises(
        InvalidInput, match=r"^count: the states of key group \d+ are not of type int, .*; use the types"
    ):
        other.restore(disk.read(1))
