"""The state of one keyed task, by key group, and what a checkpoint writes of it.

A checkpoint writes a *part*: of each key group the keys that changed since the last complete checkpoint, and some
groups in full, so that older parts become superfluous. A state consists of its last parts, oldest first. As many bytes
as have changed are also written of the groups whose last full record is the oldest. Therefore all parts together have
two to three times the size of the state, and their number is bounded.

Times of keys are saved as seconds. A part that is not the latest has an age, by which its times are shifted.
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.api.keys import key_group, owner
from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol import Wire
from penstock.runtime.protocol.worker_messages import StatePart
from penstock.runtime.storage.key_groups import CHANGED, FULL, Entry, Record, StateCodec, pack_record, unpack_records

SMALL = 64 * 1024  # bytes of a state that every checkpoint writes in full
PARTS = 128  # approximate maximum of the parts of a state
PIECE = 500  # first number of entries per record; then as many as take `PIECE_BYTES`
PIECE_BYTES = 128 * 1024
CACHED_KEYS = 200_000  # keys whose groups a task caches

Piece = bytes | memoryview


class KeyGroup:
    """The keys of one group."""

    __slots__ = ("base", "changed", "number", "seen", "size", "states", "timers")

    def __init__(self, number: int) -> None:
        self.number = number
        self.states: dict[Hashable, Any] = {}
        self.timers: dict[Hashable, float] = {}
        self.seen: dict[Hashable, float] = {}  # the time of the last tuple, if keys expire
        self.changed: dict[Hashable, None] = {}  # keys, since the last save
        self.base = 0  # the checkpoint that has its last full record; 0: none
        self.size = 0  # bytes of its records from that on

    def drop(self, key: Hashable) -> None:
        """Remove a key."""
        self.states.pop(key, None)
        self.timers.pop(key, None)
        self.seen.pop(key, None)

    def clear(self) -> None:
        """Remove all keys."""
        self.states.clear()
        self.timers.clear()
        self.seen.clear()

    def entries(self, keys: Sequence[Hashable], now: float) -> list[Entry]:
        """Return what is saved of keys."""
        states, timers, seen = self.states, self.timers, self.seen
        if not timers and not seen:
            return [(key, states[key], None, None) for key in keys]
        return [
            (
                key,
                states[key],
                timers[key] - now if key in timers else None,
                now - seen[key] if key in seen else None,
            )
            for key in keys
        ]


class SavedPart(NamedTuple):
    """A part of the state in a complete checkpoint."""

    place: StatePart
    at: float  # when it was saved, by this worker's clock


class _Save:
    """A checkpoint's part that may not be complete yet."""

    def __init__(self, number: int, at: float) -> None:
        self.number = number
        self.at = at
        self.changed: dict[int, dict[Hashable, None]] = {}  # by group: the keys that it has
        self.full: dict[int, int] = {}  # groups that it has in full, and their bytes
        self.size = 0
        self.place: StatePart | None = None  # once it is written


class MovedState(Wire):
    """A keyed state that moves to another worker."""

    parts: tuple[StatePart, ...]
    groups: tuple[tuple[int, int, int], ...]  # number, base, size
    records: bytes


_decode_moved: Callable[[bytes], MovedState] = msgpack_decoder(MovedState)


class KeyedState:
    """The states of the keys of one task."""

    guessed = False  # whether the lack of state is assumed, not known

    def __init__(self, codec: StateCodec, task: int, tasks: int, clock: Callable[[], float]) -> None:
        self.cache: dict[Hashable, KeyGroup] = {}
        self._codec = codec
        self._task = task
        self._tasks = tasks
        self._clock = clock
        self._groups: dict[int, KeyGroup] = {}
        self._parts: list[SavedPart] = []  # of the last complete checkpoint, oldest first
        self._save: _Save | None = None

    def group_of(self, key: Hashable) -> KeyGroup:
        """Return the group of a key, and cache it."""
        group = self._group(key_group(key))
        if len(self.cache) >= CACHED_KEYS:
            self.cache.clear()
        self.cache[key] = group
        return group

    def groups(self) -> list[KeyGroup]:
        """Return the groups that have, or had, keys."""
        return [group for _, group in sorted(self._groups.items())]

    def check(self, key: Hashable, state: Any) -> None:
        """Raise `InvalidInput` if a state cannot be saved."""
        self._codec.check(key, state)

    def _group(self, number: int) -> KeyGroup:
        found = self._groups.get(number)
        if found is None:
            found = self._groups[number] = KeyGroup(number)
        return found

    # Checkpoints

    def problem(self) -> str:
        """Return why the state cannot be saved: it always can."""
        return ""

    @property
    def size(self) -> int:
        """The approximate bytes of the state when last saved."""
        return sum(group.size for group in self._groups.values())

    def pieces(self, checkpoint: int) -> Iterator[Piece]:
        """Yield the part of a checkpoint: the changes since the last complete one, and some groups in full."""
        self._merge_unconfirmed()
        now = self._clock()
        save = self._save = _Save(checkpoint, now)
        total = self.size
        kept: list[KeyGroup] = []  # groups of which earlier parts stay in use
        for group in self.groups():
            if group.base and total > SMALL and 2 * len(group.changed) < len(group.states):
                kept.append(group)
                if group.changed:
                    yield from self._changes(group, save)
            elif group.base or group.states:
                yield from self._in_full(group, save)
        rest = max(save.size, total // PARTS) if save.size else 0
        for group in sorted(kept, key=lambda group: group.base):
            if rest <= 0:
                break
            yield from self._in_full(group, save)
            rest -= save.full[group.number]

    def _in_full(self, group: KeyGroup, save: _Save) -> Iterator[Piece]:
        """Yield all keys of a group."""
        changed, group.changed = group.changed, {}
        save.changed.setdefault(group.number, {}).update(changed)
        size = yield from self._records(group, list(group.states), [], save.at, FULL)
        save.full[group.number] = size
        save.size += size

    def _changes(self, group: KeyGroup, save: _Save) -> Iterator[Piece]:
        """Yield the changed keys of a group."""
        changed, group.changed = group.changed, {}
        save.changed[group.number] = changed
        kept = [key for key in changed if key in group.states]
        size = yield from self._records(group, kept, [key for key in changed if key not in group.states], save.at, 0)
        group.size += size
        save.size += size

    def _records(
        self, group: KeyGroup, keys: Sequence[Hashable], removed: list[Hashable], now: float, flags: int
    ) -> Generator[Piece, None, int]:
        """Yield the records of keys of a group; return their bytes. Only the first replaces earlier ones."""
        place, count, total = 0, PIECE, 0
        while True:
            part = keys[place : place + count]
            data = self._codec.encode(group.entries(part, now), removed)
            yield from pack_record(group.number, flags, data)
            place, total = place + len(part), total + len(data)
            if place >= len(keys):
                return total
            removed, flags = [], flags & ~FULL
            count = max(1, min(2 * count, count * PIECE_BYTES // len(data)))

    def earlier(self) -> tuple[StatePart, ...]:
        """Return the earlier parts that the state consists of, besides the one that was just encoded."""
        save = self._save
        assert save is not None
        bases = [save.number if n in save.full else group.base for n, group in self._groups.items()]
        oldest = min((base for base in bases if base), default=save.number)
        now = self._clock()
        return tuple(_aged(part, now) for part in self._parts if part.place.checkpoint >= oldest)

    def written(self, place: StatePart) -> None:
        """Note where the part of a checkpoint was written."""
        if self._save is not None and self._save.number == place.checkpoint:
            self._save.place = place

    def completed(self, checkpoint: int) -> None:
        """Note that a checkpoint is complete: the next one has the changes since."""
        save = self._save
        if save is None or save.number != checkpoint or save.place is None:
            return
        self._save = None
        for number, size in save.full.items():
            group = self._groups[number]
            group.base, group.size = checkpoint, size
        if save.size:
            self._parts.append(SavedPart(save.place, save.at))
        oldest = min((group.base for group in self._groups.values() if group.base), default=checkpoint + 1)
        self._parts = [part for part in self._parts if part.place.checkpoint >= oldest]

    def _merge_unconfirmed(self) -> None:
        """Count the changes of a checkpoint as not saved, since it is not known to be complete."""
        save, self._save = self._save, None
        if save is not None:
            for number, keys in save.changed.items():
                self._groups[number].changed |= keys

    def restore(self, parts: Sequence[tuple[StatePart, bytes]]) -> None:
        """Read the groups of this task from the parts of a checkpoint, oldest first."""
        now = self._clock()
        for place, data in parts:
            at = now - place.age
            for record in unpack_records(data, place.file):
                if owner(record.group, self._tasks) == self._task:
                    self._take(record, place.checkpoint, at)
            self._parts.append(SavedPart(place, at))
        for group in self._groups.values():
            group.changed.clear()

    def _take(self, record: Record, checkpoint: int, at: float) -> None:
        group = self._group(record.group)
        if record.flags & FULL:
            group.clear()
            group.base, group.size = checkpoint, 0
        group.size += len(record.data)
        entries, removed = self._codec.decode(record)
        for key in removed:
            group.drop(key)
        for key, state, timer, seen in entries:
            group.drop(key)
            group.states[key] = state
            if timer is not None:
                group.timers[key] = at + timer
            if seen is not None:
                group.seen[key] = at - seen
        if record.flags & CHANGED:
            group.changed |= dict.fromkeys([*removed, *(entry[0] for entry in entries)])

    # Moves

    def save(self) -> bytes:
        """Return everything, for a move."""
        self._merge_unconfirmed()
        now = self._clock()
        moved = MovedState(
            tuple(_aged(part, now) for part in self._parts),
            tuple((group.number, group.base, group.size) for group in self._groups.values()),
            b"".join(piece for group in self._groups.values() for piece in self._all_records(group, now)),
        )
        return msgspec.msgpack.encode(moved)

    def _all_records(self, group: KeyGroup, now: float) -> Iterator[Piece]:
        yield from self._records(group, [key for key in group.states if key not in group.changed], [], now, 0)
        if group.changed:
            kept = [key for key in group.changed if key in group.states]
            removed = [key for key in group.changed if key not in group.states]
            yield from self._records(group, kept, removed, now, CHANGED)

    def load(self, saved: bytes) -> None:
        """Continue from the state that `save` returned on another worker."""
        moved, now = _decode_moved(saved), self._clock()
        for record in unpack_records(moved.records):
            self._take(record, 0, now)
        for number, base, size in moved.groups:
            group = self._group(number)
            group.base, group.size = base, size
        self._parts = [SavedPart(place, now - place.age) for place in moved.parts]


def _aged(part: SavedPart, now: float) -> StatePart:
    return msgspec.structs.replace(part.place, age=now - part.at)
