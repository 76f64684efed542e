"""State per key: the cost of a tuple, and of checkpoints that write changes, by size of the state.

    tuples       processor time per tuple of an operator that keeps its own counts, and of a state per key
    checkpoints  time and bytes of a checkpoint, when 1 % of the keys have changed since the last one

Workers run in this process, without sockets. `python -m benchmarks.keyed checkpoints 10 100` runs only those sizes, in
MB.
"""

import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import penstock as ps
from benchmarks.worker import Counting, Numbers, process
from penstock.runtime.protocol import controller_messages
from penstock.runtime.protocol.worker_messages import StatePart
from penstock.runtime.storage.key_groups import StateCodec
from penstock.runtime.worker.keyed_state import KeyedState
from penstock.runtime.worker.logic import LogicState
from penstock.runtime.worker.state_machine import Worker
from penstock.testing import TestCluster

KEYS = 5_000
TUPLES = 200_000
ROUNDS = 5
SIZES_MB = (10, 100, 1_000)
ENTRY = 1_000  # bytes of state per key
CHANGED = 0.01  # share of the keys that change between two checkpoints
CHECKPOINTS = 12


class OwnCounts(ps.Operator[int, int]):
    """Counts numbers, and saves the counts itself."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def process(self, value: int) -> tuple[int]:
        """Count a number."""
        key = value % KEYS
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return (count,)

    def snapshot(self) -> dict[int, int]:
        """Return the counts."""
        return self.counts

    def restore(self, state: dict[int, int]) -> None:
        """Continue from counts."""
        self.counts = state


def key(value: int) -> int:
    """Return the key of a number."""
    return value % KEYS


def count(before: int, _: int) -> tuple[int, int]:
    """Count a number."""
    return before + 1, before + 1


def _flow(add: Callable[[ps.Dataflow, Any], Any]) -> ps.Dataflow:
    flow = ps.Dataflow("counts")
    numbers = flow.source("numbers", Numbers(10**6), emits=int)
    flow.sink("out", Counting(), add(flow, numbers.fields(key)))
    return flow


FORMS: dict[str, Callable[[ps.Dataflow, Any], Any]] = {
    "operator with its own state": lambda flow, given: flow.operator("count", OwnCounts, given),
    "stateful_map": lambda flow, given: flow.stateful_map("count", count, given, initial=0, emits=int),
    "stateful_map, ttl": lambda flow, given: flow.stateful_map("count", count, given, initial=0, emits=int, ttl=60.0),
}


def tuples() -> None:
    """Print the processor time per tuple through source, counter and sink; the forms alternate."""
    found: dict[str, list[float]] = {name: [] for name in FORMS}
    with tempfile.TemporaryDirectory() as folder:
        workers = {name: _started(_flow(add), f"{folder}/{place}") for place, (name, add) in enumerate(FORMS.items())}
        for round_ in range(ROUNDS + 1):
            for name, made in workers.items():
                gc.collect()
                began = time.process_time()
                done = process(made, TUPLES)
                if round_:
                    found[name].append(1e6 * (time.process_time() - began) / done)
        for made in workers.values():
            made[0].command(controller_messages.Stop())
    for name, times in found.items():
        print(f"{name:<28} {statistics.median(times):6.3f} µs per tuple ({min(times):.3f} to {max(times):.3f})")


def _started(flow: ps.Dataflow, folder: str) -> list[Worker]:
    options: dict[str, Any] = {"sample_tps": 0.0, "window": 1024, "telemetry": False}
    cluster = TestCluster(flow, workers=1, capture=False, folder=folder, **options).start()
    worker = Worker(flow, "test", time.monotonic)
    worker.command(cluster.workers[0].assigned)
    worker.command(controller_messages.Start(worker.epoch))
    return [worker]


class Everything(ps.Operator[int, int]):
    """Has a state that is saved as a whole."""

    def __init__(self, states: dict[Any, Any]) -> None:
        self.states = states

    def snapshot(self) -> dict[Any, Any]:
        """Return the state."""
        return self.states

    def restore(self, state: dict[int, bytes]) -> None:
        """Take the state."""
        self.states = state


def checkpoints(sizes: tuple[int, ...] = SIZES_MB) -> None:
    """Print time and bytes of checkpoints of changes, and of the whole state."""
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            _checkpoints(megabytes, Path(folder))


def _checkpoints(megabytes: int, folder: Path) -> None:
    rng, keys = random.Random(0), megabytes * 1_000_000 // ENTRY
    state = KeyedState(StateCodec("benchmark", int, bytes), 0, 1, time.monotonic)
    for number in range(keys):
        _put(state, number, rng.randbytes(ENTRY - 8))
    first = _save(state, 1, folder)
    saved = []
    for number in range(2, CHECKPOINTS + 2):
        for changed in rng.sample(range(keys), int(keys * CHANGED)):
            _put(state, changed, rng.randbytes(ENTRY - 8))
        saved.append(_save(state, number, folder))
    encode, turn, write, size = (statistics.median(column) for column in zip(*saved, strict=True))
    parts = sum(path.stat().st_size for path in folder.iterdir()) / first[3]
    values = {number: group.states[number] for group in state.groups() for number in group.states}
    whole = _timed(LogicState(Everything(values)).pieces())
    print(
        f"{megabytes:>5} MB: encoding {1e3 * encode:7.1f} ms, longest piece {1e3 * turn:5.1f} ms, "
        f"writing {1e3 * write:7.1f} ms, {size / 1e6:7.2f} MB, {size / (keys * CHANGED * ENTRY):.2f} of the change; "
        f"whole state {1e3 * first[0]:8.1f} ms, by the operator itself {1e3 * whole[0]:8.1f} ms; "
        f"all parts {parts:.2f} of the state",
        flush=True,
    )


def _put(state: KeyedState, number: int, value: bytes) -> None:
    group = state.cache.get(number) or state.group_of(number)
    group.changed[number] = None
    group.states[number] = value


def _save(state: KeyedState, number: int, folder: Path) -> tuple[float, float, float, int]:
    """Save a checkpoint; return the seconds of encoding, of its longest piece and of writing, and the bytes."""
    encode, turn, pieces = _timed(state.pieces(number))
    began = time.perf_counter()
    total = 0
    with (folder / str(number)).open("wb") as file:
        for piece in pieces:
            total = crc32(piece, total)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    write, size = time.perf_counter() - began, sum(map(len, pieces))
    state.earlier()
    state.written(StatePart(number, str(number), 0, size, total))
    state.completed(number)
    return encode, turn, write, size


def _timed(pieces: Any) -> tuple[float, float, list[bytes | memoryview]]:
    """Return the seconds of all pieces and of the longest, and the pieces."""
    found, longest = [], 0.0
    began = last = time.perf_counter()
    for piece in pieces:
        found.append(piece)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return time.perf_counter() - began, longest, found


def main() -> None:
    """Run both parts, or those given as arguments."""
    wanted = {"tuples", "checkpoints"}.intersection(sys.argv[1:]) or {"tuples", "checkpoints"}
    if "tuples" in wanted:
        tuples()
    if "checkpoints" in wanted:
        checkpoints(tuple(int(size) for size in sys.argv[1:] if size.isdecimal()) or SIZES_MB)


if __name__ == "__main__":
    main()
