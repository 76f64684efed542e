"""The workers of a run as the controller knows them: which are there, which were lost, which are trusted.

A worker that was lost may live on: cut off, or stopped for a while. It is *fenced* once it surely acts no more, because
its process has ended or because its lease has: until then no epoch begins without it. A site whose workers keep failing
is left out for a while, as long as enough others are there.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.runtime.clocks import WorkerClock
from penstock.runtime.controller.settings import Site
from penstock.runtime.protocol.controller_messages import Peer
from penstock.runtime.protocol.worker_messages import Register

LATE_S = 1.5  # between signs of life, from which on they count as late
FAILURES = 4  # of a site within a while that are too many
LATES = 8  # late signs of life within a while that are too many
WHILE_S = 60.0
REST_S = 30.0  # that a site is left out for the first time; twice as long every further time
PAUSE_S = 1.0  # between two ticks, from which on it was the controller that stood still


@dataclass
class Member:
    """A site, and the worker that is there."""

    site: Site
    host: str = ""
    port: int = 0
    pid: int = 0
    incarnation: int = 0
    registered: bool = False
    alive: bool = False
    ready: bool = False  # in the current epoch
    epoch: int = 0  # the last that it was assigned
    clock: WorkerClock = field(default_factory=WorkerClock)
    last_beat: float = 0.0
    last_word: float = 0.0  # when its loop last said something, which a beat is not
    fence: float = -math.inf  # after which a worker that was lost surely acts no more
    failures: deque[float] = field(default_factory=deque)
    lates: deque[float] = field(default_factory=deque)
    rests: int = 0  # how often it was left out
    out_until: float = -math.inf
    reason: str = ""  # why it is left out
    leaving: bool = False  # its worker is to end once its tasks are elsewhere, on purpose
    parted: bool = False  # nothing is on its way to it or from it any more

    @property
    def where(self) -> str:
        """The process, for people."""
        return f"pid {self.pid} on {self.host}"

    @property
    def peer(self) -> Peer:
        """The worker, for the others; without a port where there is none."""
        return Peer(self.site.name, self.host, self.port if self.alive else 0, self.incarnation)


class Members:
    """All sites of a run."""

    def __init__(self, sites: tuple[Site, ...], lease_s: float, silent_s: float, now: float) -> None:
        self.all = [Member(site) for site in sites]
        self.by_name = {site.name: number for number, site in enumerate(sites)}
        self.slots = {slot: number for number, site in enumerate(sites) for slot in site.slots}
        self._lease_s = lease_s
        self._silent_s = max(silent_s, lease_s)
        self._incarnations = 0
        self._fence = -math.inf  # after which those surely act no more that were replaced
        self._last_look = now

    def __getitem__(self, number: int) -> Member:
        return self.all[number]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def add(self, site: Site) -> None:
        """Take in a site that was not there before."""
        self.by_name[site.name] = number = len(self.all)
        self.slots |= dict.fromkeys(site.slots, number)
        self.all.append(Member(site))

    def register(self, message: Register, now: float) -> int | None:
        """Take a worker in and return its number; None refuses one that is not wanted."""
        number = self.by_name.get(message.worker)
        if number is None or self.all[number].alive or self.is_out(number, now):
            return None
        self._incarnations += 1
        member = self.all[number]
        self._fence, member.fence = max(self._fence, member.fence), -math.inf  # the one before may live on
        member.host, member.port, member.pid = message.host, message.port, message.pid
        member.incarnation = self._incarnations
        member.registered = member.alive = True
        member.leaving = member.parted = False
        member.ready, member.epoch = False, 0
        member.clock = WorkerClock()
        member.last_beat = now
        return number

    def lost(self, number: int, now: float) -> None:
        """Note that a worker was lost; it may act until its lease has ended."""
        member = self.all[number]
        member.alive = member.ready = False
        member.fence = member.last_beat + self._lease_s
        if not member.parted:
            member.failures.append(now)
            _forget(member.failures, now)

    def gone(self, number: int) -> None:
        """Note that the process of a worker that was lost has ended."""
        self.all[number].fence = -math.inf

    def beat(self, number: int, now: float) -> None:
        """Note a sign of life."""
        member = self.all[number]
        if member.epoch and now - member.last_beat > LATE_S:
            member.lates.append(now)
            _forget(member.lates, now)
        member.last_beat = now

    def silent(self, now: float) -> list[int]:
        """Return the workers that have given no sign of life for too long, though their connection stands."""
        pause, self._last_look = now - self._last_look, now
        if pause > PAUSE_S:  # what they said meanwhile has not been read yet
            for member in self.all:
                member.last_beat += pause
        return [
            number
            for number, member in enumerate(self.all)
            if member.alive and member.epoch and now - member.last_beat > self._silent_s
        ]

    def unfenced(self, now: float) -> bool:
        """Say whether a worker that was lost may still act."""
        return now < self._fence or any(not member.alive and now < member.fence for member in self.all)

    @property
    def alive(self) -> list[int]:
        """The workers that are there."""
        return [number for number, member in enumerate(self.all) if member.alive]

    def busy_since(self, when: float) -> str:
        """Return the name of a worker that is alive but has not had time to say anything since then, or nothing."""
        return next((member.site.name for member in self.all if member.alive and member.last_word < when), "")

    def missing(self, now: float) -> list[int]:
        """Return the sites whose worker is not there and is waited for."""
        return [n for n, member in enumerate(self.all) if not member.alive and not self.is_out(n, now)]

    def usable(self, now: float, ready: bool = False) -> list[str]:
        """Return the slots that tasks can be put on; `ready`: whose workers take part in the epoch already."""
        found = [
            (slot, self.all[number].leaving)
            for slot, number in self.slots.items()
            if (self.all[number].ready if ready else self.all[number].alive) and not self.is_out(number, now)
        ]
        return [slot for slot, leaving in found if not leaving] or [slot for slot, _ in found]

    def is_out(self, number: int, now: float) -> bool:
        """Say whether a site is left out."""
        return now < self.all[number].out_until

    def judge(self, now: float, say: Callable[[int, str], None]) -> None:
        """Leave out sites that keep failing or are late, as long as more than half of all remain."""
        for number, member in enumerate(self.all):
            if self.is_out(number, now):
                continue
            _forget(member.failures, now)
            _forget(member.lates, now)
            if len(member.failures) >= FAILURES:
                reason = f"its worker was lost {len(member.failures)} times in {WHILE_S:g} s"
            elif len(member.lates) >= LATES:
                reason = f"its signs of life were late {len(member.lates)} times in {WHILE_S:g} s"
            else:
                continue
            left = sum(not self.is_out(other, now) for other in range(len(self.all))) - 1
            if 2 * left <= len(self.all):
                continue
            member.out_until = now + REST_S * 2**member.rests
            member.rests += 1
            member.failures.clear()
            member.lates.clear()
            member.reason = reason
            say(number, f"{reason}; left out for {member.out_until - now:g} s")


def _forget(times: deque[float], now: float) -> None:
    while times and times[0] < now - WHILE_S:
        times.popleft()
