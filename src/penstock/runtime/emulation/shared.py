"""Virtual processors and links that emulated machines of several runs share.

Each run has a worker per machine, with its own slots; the cores are shared evenly by the busy slots of all, and links
serve the frames of all in the order in which they arrive. A worker returns completions of its own jobs only: their
times depend on the others' jobs, and may become later, so that it checks again when one was due. Times are those of a
clock that all processes of the host share.

Jobs of a worker that has died are removed from processors; what it had sent stays on links.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from penstock.runtime.emulation.cpu import VirtualCpu
from penstock.runtime.emulation.network import VirtualLink
from penstock.runtime.emulation.shared_memory import OwnershipLost, SharedValues, scale

Token = TypeVar("Token")
SLOTS = 2**20  # per owner: an owner's number times this is the number of its first slot


class SharedCpu(VirtualCpu[Token]):
    """A shared processor, as one worker sees it: `VirtualCpu` for its own slots.

    `used` counts the use by all workers.
    """

    def __init__(self, folder: Path, machine: str, role: str, cores: int, speed: float, slots: int) -> None:
        super().__init__(cores, speed, slots)
        self._described_speed = speed
        described, empty = (float(cores), speed), [-math.inf, 0.0, 0.0, 0.0]
        path = _cpu_file(folder, machine)
        self.shared = SharedValues(path, f"machine {machine!r}", role, slots, described, empty, _without)
        self.speed = speed * self.shared.factor
        self._tokens: dict[int, Token] = {}  # by slot, numbered among all
        self._first = self.shared.number * SLOTS
        self._known = -1.0  # the version that is loaded
        self._next = math.inf  # completion, as of that version

    def submit(self, slot: int, work: float, at: float, token: Token) -> None:
        """Start a job on an idle slot of this worker."""
        key, begin = self._first + slot, super().submit

        def step(kept: list[float]) -> None:
            self._load(kept)
            begin(key, work, at, token)
            self._tokens[key] = token
            self._keep(kept)

        self.shared.change(at, step)

    def next_completion(self) -> float:
        """Return when the next job of this worker will be complete if no worker adds one.

        It is now if this worker is no longer an owner: the next change raises `OwnershipLost`.
        """
        if self.shared.version != self._known:
            try:
                self.shared.read(self._load)
            except OwnershipLost:
                self._next = max(self._now, 0.0)
        return self._next

    def complete(self) -> tuple[float, int, Token]:
        """Advance to the earliest completion of this worker; earlier ones of others are kept for them."""
        found = self.complete_by(math.inf)
        if found is None:
            raise ValueError("no job is left to complete")
        return found

    def complete_by(self, until: float) -> tuple[float, int, Token] | None:
        """Advance to the earliest completion of this worker; None if it is later."""
        if self.next_completion() > until:
            return None
        found = self.shared.change(self._next, lambda kept: self._completed(kept, until))
        return None if found is None else (found[0], found[1] - self._first, found[2])

    def _completed(self, kept: list[float], until: float) -> tuple[float, int, Token] | None:
        self._load(kept)
        if not self._tokens or self._next > until:
            return None
        while not (own := [job for job in self._done if job[1] in self._tokens]):
            self._finish_first()
        self._done.remove(own[0])
        del self._tokens[own[0][1]]
        self._serving.discard(own[0][1])
        self._keep(kept)
        return own[0]

    def used(self, now: float) -> float:
        """Return the core-seconds that all workers have used up to `now`."""
        self.shared.change(now, self._load)  # removes dead owners
        return super().used(now)

    def _own_end(self) -> float:
        """Return when the first job of this worker is complete."""
        for at, key, _ in self._done:
            if key in self._tokens:
                return at
        now, attained, busy = self._now, self._attained, len(self._running)
        for end, key, _ in sorted(self._running, key=lambda job: job[:2]):
            now, attained, busy = now + (end - attained) / self._rate(busy), end, busy - 1
            if key in self._tokens:
                return now
        return math.inf

    def _load(self, kept: Sequence[float]) -> None:
        """Load the shared state; the tokens of other workers are unknown."""
        if self.shared.version == self._known:
            return
        self.speed = self._described_speed * self.shared.factor
        _load(self, kept, self._tokens)
        self._known, self._next = self.shared.version, self._own_end()

    def _keep(self, kept: list[float]) -> None:
        """Store the state as the next version."""
        _keep(self, kept)
        self._known, self._next = self.shared.version + 1.0, self._own_end()


class SharedLink(VirtualLink):
    """A link that several runs share."""

    def __init__(self, folder: Path, label: str, role: str, bandwidth_mbps: float | None, latency_ms: float) -> None:
        super().__init__(bandwidth_mbps, latency_ms)
        self._described_byte_s = self._byte_s
        described = (-1.0 if bandwidth_mbps is None else bandwidth_mbps, latency_ms)
        self.shared = SharedValues(_link_file(folder, label), f"link {label}", role, 0, described, [-math.inf, 0.0])

    def transmit(self, size_bytes: float, at: float) -> float:
        """Return when a frame that is ready at `at` arrives at the other end."""
        return self.shared.change(at, lambda kept: self._transmitted(kept, size_bytes, at))

    def _transmitted(self, kept: list[float], size_bytes: float, at: float) -> float:
        self._load(kept)
        arrival = super().transmit(size_bytes, at)
        kept[:] = [self._free, self._taken]
        return arrival

    def _load(self, kept: list[float]) -> None:
        self._byte_s = self._described_byte_s / self.shared.factor
        self._free, self._taken = kept

    def leeway(self, now: float, seconds: float) -> tuple[float, float]:
        """Return how many more bytes it could send within some seconds, and when half of that will be free again."""
        self.shared.read(self._load)
        return super().leeway(now, seconds)

    def used(self, now: float) -> float:
        """Return for how many seconds up to `now` it has transmitted frames of any run."""
        self.shared.read(self._load)
        return super().used(now)


def scale_machines(folder: Path, factors: Mapping[str, float], now: float) -> None:
    """Scale the speed of machines by factors of their description, from now on; the folder must exist."""

    def step(kept: list[float], described: tuple[float, float], factor: float) -> None:
        cpu: VirtualCpu[None] = VirtualCpu(int(described[0]), described[1] * factor, 0)
        _load(cpu, kept, {})
        cpu._advance(now)  # running jobs proceeded at the old speed until now
        _keep(cpu, kept)

    for machine, factor in factors.items():
        scale(_cpu_file(folder, machine), factor, step)


def scale_links(folder: Path, factors: Mapping[str, float]) -> None:
    """Scale the bandwidth of links by factors of their description, by label, for all frames from now on."""
    for label, factor in factors.items():
        scale(_link_file(folder, label), factor, lambda *_: None)


def _cpu_file(folder: Path, machine: str) -> Path:
    return folder / f"{quote(machine, safe='')}.cpu"


def _link_file(folder: Path, label: str) -> Path:
    return folder / f"{quote(label, safe='')}.link"


def _load(cpu: VirtualCpu[Token], kept: Sequence[float], tokens: Mapping[int, Token]) -> None:
    """Load the state of a processor, with the known tokens of its jobs."""
    cpu._now, cpu._attained, cpu._used, running = kept[0], kept[1], kept[2], int(kept[3])
    keys = [int(key) for key in kept[5::2]]
    jobs = [(end, key, tokens.get(key)) for end, key in zip(kept[4::2], keys, strict=True)]
    cpu._running = jobs[:running]  # type: ignore[assignment]
    heapify(cpu._running)
    cpu._done = deque(jobs[running:])  # type: ignore[arg-type]


def _keep(cpu: VirtualCpu[Token], kept: list[float]) -> None:
    """Store the state of a processor."""
    jobs = [float(value) for job in (*cpu._running, *cpu._done) for value in job[:2]]
    kept[:] = [cpu._now, cpu._attained, cpu._used, float(len(cpu._running)), *jobs]


def _without(kept: list[float], removed: set[int]) -> list[float]:
    """Return a processor's state without the jobs of removed owners, from its last event on."""
    running = int(kept[3])
    jobs = [(kept[place], kept[place + 1], place < 4 + 2 * running) for place in range(4, len(kept), 2)]
    left = [job for job in jobs if int(job[1]) // SLOTS not in removed]
    pairs = [value for end, key, _ in left for value in (end, key)]
    return [*kept[:3], float(sum(runs for _, _, runs in left)), *pairs]
