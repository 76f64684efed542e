"""Processors and links in common: with one owner as if alone, with several as if all were one, whoever dies."""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import FileProblem, InvalidInput
from penstock.runtime.emulation import SharedCpu, SharedLink, VirtualCpu, VirtualLink, scale_links, scale_machines
from penstock.runtime.emulation.shared_memory import CHECK_S, MAX_OWNERS, MAX_SLOTS, OwnershipLost

quarters = st.integers(0, 40).map(lambda quarter: quarter / 4)  # coarse, so that events often coincide
anyhow = st.floats(0.0, 3.0)

Arrivals = list[tuple[float, int, float]]  # when, on which slot, how much work
Ended = list[tuple[float, int, int]]  # when, which slot, which job


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def played(cpus: list[tuple[VirtualCpu[int], int, int]], arrivals: Arrivals) -> Ended:
    """Serve jobs first come, first served on the slots of several processors, in the order of time.

    `cpus` has the slots of each: from which to before which of all.
    """
    waiting: list[tuple[float, int, int, float]] = []
    for number, (at, slot, work) in enumerate(sorted(arrivals)):
        heappush(waiting, (at, number, slot, work))
    busy: set[int] = set()
    queued: dict[int, list[tuple[int, float]]] = {}
    ended: Ended = []

    def owner(slot: int) -> tuple[VirtualCpu[int], int]:
        return next((cpu, slot - first) for cpu, first, end in cpus if first <= slot < end)

    def begin(slot: int, at: float) -> None:
        if slot not in busy and queued.get(slot):
            number, work = queued[slot].pop(0)
            cpu, own = owner(slot)
            cpu.submit(own, work, at, number)
            busy.add(slot)

    while waiting or busy:
        due = min((cpu.next_completion(), place) for place, (cpu, _, _) in enumerate(cpus))
        if waiting and waiting[0][0] <= due[0]:
            at, number, slot, work = heappop(waiting)
            queued.setdefault(slot, []).append((number, work))
            begin(slot, at)
            continue
        cpu, first, _ = cpus[due[1]]
        found = cpu.complete_by(due[0])
        assert found is not None
        at, own, token = found
        ended.append((at, first + own, token))
        busy.remove(first + own)
        begin(first + own, at)
    return ended


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, float, int, Arrivals]:
    slots = draw(st.integers(1, 4))
    time, work = draw(st.sampled_from([(quarters, quarters), (anyhow, anyhow)]))
    arrivals = draw(st.lists(st.tuples(time, st.integers(0, slots - 1), work), max_size=14))
    return draw(st.integers(1, 3)), draw(st.sampled_from([0.5, 1.0, 3.8])), slots, arrivals


@given(loads())
@settings(max_examples=60, deadline=None)
def test_one_owner_has_exactly_what_it_would_have_alone(load: tuple[int, float, int, Arrivals]) -> None:
    cores, speed, slots, arrivals = load
    with folder() as place:
        shared: SharedCpu[int] = SharedCpu(place, "m", "only", cores, speed, slots)
        alone: VirtualCpu[int] = VirtualCpu(cores, speed, slots)
        assert played([(shared, 0, slots)], arrivals) == played([(alone, 0, slots)], arrivals)
        assert [shared.used(at) for at in (0.0, 3.3, 99.0)] == [alone.used(at) for at in (0.0, 3.3, 99.0)]
        assert (shared.now, shared.busy) == (alone.now, 0)
        shared.shared.close()


@given(loads(), st.integers(2, 3))
@settings(max_examples=60, deadline=None)
def test_owners_together_have_what_one_with_all_their_slots_has(
    load: tuple[int, float, int, Arrivals], owners: int
) -> None:
    cores, speed, slots, arrivals = load
    spread = [(at, slot + slots * (number % owners), work) for number, (at, slot, work) in enumerate(arrivals)]
    with folder() as place:
        shared: list[SharedCpu[int]] = [SharedCpu(place, "m", f"{n}", cores, speed, slots) for n in range(owners)]
        whole: VirtualCpu[int] = VirtualCpu(cores, speed, slots * owners)
        found = played([(cpu, n * slots, (n + 1) * slots) for n, cpu in enumerate(shared)], spread)
        expected = played([(whole, 0, slots * owners)], spread)
        assert sorted(found) == sorted(expected)
        assert shared[0].used(99.0) == shared[-1].used(99.0) == whole.used(99.0)
        for cpu in shared:
            cpu.shared.close()


def test_two_busy_owners_have_half_the_processor_each_and_one_has_all_of_it(tmp_path: Path) -> None:
    a: SharedCpu[str] = SharedCpu(tmp_path, "m", "a", 1, 1.0, 1)
    b: SharedCpu[str] = SharedCpu(tmp_path, "m", "b", 1, 1.0, 1)
    a.submit(0, 4.0, 10.0, "long")
    assert a.next_completion() == 14.0
    b.submit(0, 1.0, 11.0, "short")
    assert a.next_completion() == 15.0, "it looks again"
    assert a.complete_by(14.0) is None
    assert b.complete_by(13.0) == (13.0, 0, "short")
    assert a.complete_by(15.0) == (15.0, 0, "long")
    assert b.next_completion() == math.inf


def test_a_completion_that_another_passes_is_kept_for_its_owner(tmp_path: Path) -> None:
    a: SharedCpu[str] = SharedCpu(tmp_path, "m", "a", 2, 1.0, 1)
    b: SharedCpu[str] = SharedCpu(tmp_path, "m", "b", 2, 1.0, 1)
    a.submit(0, 1.0, 0.0, "of a")
    b.submit(0, 3.0, 0.0, "of b")
    assert b.complete() == (3.0, 0, "of b")
    assert a.busy == 1
    assert a.complete() == (1.0, 0, "of a")
    with pytest.raises(ValueError, match="no job is left"):
        a.complete()


def test_a_replacement_inherits_no_jobs_and_displaces_its_predecessor(tmp_path: Path) -> None:
    before: SharedCpu[str] = SharedCpu(tmp_path, "m", "run m", 1, 1.0, 1)
    other: SharedCpu[str] = SharedCpu(tmp_path, "m", "other m", 1, 1.0, 1)
    before.submit(0, 100.0, 0.0, "lost")
    other.submit(0, 1.0, 0.0, "stays")
    after: SharedCpu[str] = SharedCpu(tmp_path, "m", "run m", 1, 1.0, 1)
    assert after.next_completion() == math.inf
    assert other.complete() == (1.0, 0, "stays")
    assert before.next_completion() == 0.0, "what is done then says so"
    for step in (lambda: before.complete_by(9.0), lambda: before.submit(0, 1.0, 9.0, "x"), lambda: before.used(9.0)):
        with pytest.raises(OwnershipLost):
            step()


def test_jobs_of_a_dead_process_vanish(tmp_path: Path) -> None:
    survivor: SharedCpu[str] = SharedCpu(tmp_path, "m", "here", 1, 1.0, 1)
    script = f"""
from pathlib import Path
from penstock.runtime.emulation import SharedCpu
import os
SharedCpu(Path({str(tmp_path)!r}), "m", "there", 1, 1.0, 1).submit(0, 1000.0, 0.0, "x")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    survivor.submit(0, 4.0, 0.0, "mine")  # the first step looks who lives
    assert survivor.next_completion() == 4.0


def test_the_dead_are_looked_for_now_and_then(tmp_path: Path) -> None:
    survivor: SharedCpu[str] = SharedCpu(tmp_path, "m", "here", 1, 1.0, 1)
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
from pathlib import Path
from penstock.runtime.emulation import SharedCpu
cpu = SharedCpu(Path({str(tmp_path)!r}), "m", "there", 1, 1.0, 1)
cpu.submit(0, 1000.0, 0.0, "x")
print("there", flush=True)
input()
""",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    survivor.submit(0, 4.0, 0.0, "mine")
    assert survivor.next_completion() == 8.0
    child.kill()
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert survivor.used(CHECK_S / 2) == CHECK_S / 2
    assert survivor.next_completion() == 8.0, "nobody has looked"
    survivor.used(2 * CHECK_S)
    assert survivor.next_completion() == 4.0


def test_nothing_remains_after_all_owners_have_left(tmp_path: Path) -> None:
    first: SharedCpu[str] = SharedCpu(tmp_path, "m", "first", 1, 1.0, 1)
    first.submit(0, 5.0, 1e9, "of a host that has not restarted since")
    first.shared.close()
    second: SharedCpu[str] = SharedCpu(tmp_path, "m", "second", 4, 2.0, 1)
    second.submit(0, 4.0, 1.0, "x")
    assert second.complete() == (3.0, 0, "x")


HAMMER = """
import sys, time
from pathlib import Path
from penstock.runtime.emulation import SharedCpu
cpu = SharedCpu(Path(sys.argv[1]), "m", sys.argv[2], 1, 1.0, 3)
free, given, taken, last = {0, 1, 2}, 0, [], 0.0
while len(taken) < 300:
    now = time.monotonic()
    while free and given < 300:
        cpu.submit(free.pop(), 1e-4, now, given)
        given += 1
    while (done := cpu.complete_by(time.monotonic())) is not None:
        at, slot, token = done
        assert at >= last, (at, last)
        last = at
        free.add(slot)
        taken.append(token)
print(len(set(taken)), cpu.used(time.monotonic() + 1.0) > 0)
"""


def test_concurrent_processes_keep_the_file_consistent(tmp_path: Path) -> None:
    watcher: SharedCpu[int] = SharedCpu(tmp_path, "m", "watcher", 1, 1.0, 1)
    started = [
        subprocess.Popen([sys.executable, "-c", HAMMER, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    for process in started:
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "300 True\n")
    assert watcher.used(math.inf) == pytest.approx(600 * 1e-4)
    assert watcher.next_completion() == math.inf


def test_a_link_in_common_serves_the_frames_of_all_in_turn(tmp_path: Path) -> None:
    a = SharedLink(tmp_path, "x--y", "a", 8.0, 2.0)
    b = SharedLink(tmp_path, "x--y", "b", 8.0, 2.0)
    alone = VirtualLink(8.0, 2.0)
    frames = [(a, 1000, 0.0), (b, 2000, 0.0005), (a, 500, 0.01), (b, 100, 0.01)]
    expected = [alone.transmit(size, at) for _, size, at in frames]
    assert [link.transmit(size, at) for link, size, at in frames] == expected
    assert a.leeway(0.01, 0.05) == b.leeway(0.01, 0.05) == alone.leeway(0.01, 0.05)
    assert a.used(1.0) == b.used(1.0) == alone.used(1.0)


def test_a_change_of_speed_applies_to_all_owners_from_then_on(tmp_path: Path) -> None:
    a: SharedCpu[str] = SharedCpu(tmp_path, "m", "a", 2, 1.0, 1)
    b: SharedCpu[str] = SharedCpu(tmp_path, "m", "b", 2, 1.0, 1)
    a.submit(0, 1.0, 0.0, "x")
    b.submit(0, 3.0, 0.0, "y")
    scale_machines(tmp_path, {"m": 0.5}, 0.5)
    assert a.complete() == (1.5, 0, "x")
    assert b.next_completion() == 5.5
    scale_machines(tmp_path, {"m": 2.0}, 3.5)
    assert b.complete() == (4.0, 0, "y")
    assert a.speed == 0.5, "it has not looked since"
    assert a.used(10.0) == 1.5 + 4.0
    assert a.speed == b.speed == 2.0


def test_a_later_worker_finds_the_current_speed(tmp_path: Path) -> None:
    scale_machines(tmp_path, {"m": 4.0}, 100.0)
    first: SharedCpu[str] = SharedCpu(tmp_path, "m", "first", 1, 1.0, 1)
    assert first.speed == 4.0
    first.shared.close()
    second: SharedCpu[str] = SharedCpu(tmp_path, "m", "second", 1, 1.0, 1)
    second.submit(0, 2.0, 1.0, "x")
    assert second.complete() == (1.5, 0, "x")


def test_a_change_of_bandwidth_applies_to_later_frames(tmp_path: Path) -> None:
    a, b = (SharedLink(tmp_path, "x--y", role, 8.0, 0.0) for role in ("a", "b"))
    assert a.transmit(1000, 0.0) == 0.001
    scale_links(tmp_path, {"x--y": 0.5})
    assert b.transmit(1000, 0.0) == 0.003
    assert a.leeway(0.003, 0.01)[0] == pytest.approx(5000.0)


def test_refuses_a_machine_that_another_run_describes_otherwise(tmp_path: Path) -> None:
    kept: SharedCpu[str] = SharedCpu(tmp_path, "m/0 ü", "a", 2, 1.0, 1)
    with pytest.raises(InvalidInput, match=r"share: machine 'm/0 ü' has another description .* use the same cluster"):
        SharedCpu(tmp_path, "m/0 ü", "b", 4, 1.0, 1)
    assert kept.next_completion() == math.inf


def test_rejects_more_slots_than_the_file_can_hold(tmp_path: Path) -> None:
    kept: list[SharedCpu[str]] = [SharedCpu(tmp_path, "m", "big", 1, 1.0, MAX_SLOTS - 1)]
    with pytest.raises(InvalidInput, match=f"has 1 workers with {MAX_SLOTS - 1} slots, 2 more slots"):
        SharedCpu(tmp_path, "m", "more", 1, 1.0, 2)
    kept[0].shared.close()
    kept = [SharedCpu(tmp_path, "m", f"{number}", 1, 1.0, 1) for number in range(MAX_OWNERS)]
    with pytest.raises(InvalidInput, match="stop a run, or use another folder"):
        SharedCpu(tmp_path, "m", "one more", 1, 1.0, 1)


def test_rejects_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="cannot be opened, no such file"):
        SharedCpu(tmp_path / "nowhere", "m", "a", 1, 1.0, 1)


def test_a_copy_of_a_process_does_not_leave_for_it(tmp_path: Path) -> None:
    cpu: SharedCpu[str] = SharedCpu(tmp_path, "m", "a", 1, 1.0, 1)
    cpu.submit(0, 1.0, 0.0, "x")
    child = os.fork()
    if not child:
        cpu.shared.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert cpu.complete() == (1.0, 0, "x")
