"""The workers of a run as the controller knows them: alive, lost, excluded.

A lost worker may still act: it may be cut off, or suspended for a while. It is *fenced* once it can no longer act,
because its process has ended or its lease has expired. No epoch starts before every lost worker is fenced. A site whose
workers keep failing is excluded for a while, as long as enough other sites remain.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.runtime.clocks import WorkerClock
from penstock.runtime.controller.run_spec import Site
from penstock.runtime.protocol.controller_messages import Peer
from penstock.runtime.protocol.worker_messages import Register

LATE_S = 1.5  # between heartbeats; a longer interval counts as late
MAX_FAILURES = 4  # of a site within the window, before it is excluded
MAX_LATE = 8  # late heartbeats of a site within the window, before it is excluded
WINDOW_S = 60.0
EXCLUSION_S = 30.0  # the first time; doubled every further time
PAUSE_S = 1.0  # between two ticks; after a longer interval the controller itself was suspended
SILENT_S = 2.0  # without a heartbeat, before the status warns


@dataclass
class Member:
    """A site and its worker."""

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
    last_message: float = 0.0  # of its loop; heartbeats come from another thread
    fence: float = -math.inf  # from when on a lost worker can no longer act
    failures: deque[float] = field(default_factory=deque)  # when
    late_beats: deque[float] = field(default_factory=deque)  # when
    exclusions: int = 0  # so far
    excluded_until: float = -math.inf
    reason: str = ""  # for its exclusion
    leaving: bool = False  # its worker ends on purpose once its tasks have moved
    detached: bool = False  # nothing is in flight to it or from it any more

    @property
    def where(self) -> str:
        """The process, for people."""
        return f"pid {self.pid} on {self.host}"

    @property
    def peer(self) -> Peer:
        """The worker's address, for the other workers; without a port if it is not alive."""
        return Peer(self.site.name, self.host, self.port if self.alive else 0, self.incarnation)


class Membership:
    """All sites of a run."""

    def __init__(self, sites: tuple[Site, ...], lease_s: float, silent_s: float, now: float) -> None:
        self.all = [Member(site) for site in sites]
        self.by_name = {site.name: number for number, site in enumerate(sites)}
        self.slots = {slot: number for number, site in enumerate(sites) for slot in site.slots}
        self._lease_s = lease_s
        self._silent_s = max(silent_s, lease_s)
        self._incarnations = 0
        self._fence = -math.inf  # from when on replaced workers can no longer act
        self._last_check = now

    def __getitem__(self, number: int) -> Member:
        return self.all[number]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def add(self, site: Site) -> None:
        """Add a site."""
        self.by_name[site.name] = number = len(self.all)
        self.slots |= dict.fromkeys(site.slots, number)
        self.all.append(Member(site))

    def register(self, message: Register, now: float) -> int | None:
        """Register a worker and return its number; None: its site is unknown, has a worker, or is excluded."""
        number = self.by_name.get(message.worker)
        if number is None or self.all[number].alive or self.is_excluded(number, now):
            return None
        self._incarnations += 1
        member = self.all[number]
        self._fence, member.fence = max(self._fence, member.fence), -math.inf  # its predecessor may still act
        member.host, member.port, member.pid = message.host, message.port, message.pid
        member.incarnation = self._incarnations
        member.registered = member.alive = True
        member.leaving = member.detached = False
        member.ready, member.epoch = False, 0
        member.clock = WorkerClock()
        member.last_beat = now
        return number

    def lose(self, number: int, now: float) -> None:
        """Record the loss of a worker; it may act until its lease expires."""
        member = self.all[number]
        member.alive = member.ready = False
        member.fence = member.last_beat + self._lease_s
        if not member.detached:
            member.failures.append(now)
            _forget(member.failures, now)

    def end_process(self, number: int) -> None:
        """Record that the process of a lost worker has ended."""
        self.all[number].fence = -math.inf

    def record_beat(self, number: int, now: float) -> None:
        """Record a heartbeat, or any other message."""
        member = self.all[number]
        if member.epoch and now - member.last_beat > LATE_S:
            member.late_beats.append(now)
            _forget(member.late_beats, now)
        member.last_beat = now

    def silent(self, now: float) -> list[int]:
        """Return the workers whose heartbeats have stopped although their connections are open."""
        pause, self._last_check = now - self._last_check, now
        if pause > PAUSE_S:  # what they sent meanwhile has not been read yet
            for member in self.all:
                member.last_beat += pause
        return [
            number
            for number, member in enumerate(self.all)
            if member.alive and member.epoch and now - member.last_beat > self._silent_s
        ]

    def unfenced(self, now: float) -> bool:
        """Return whether a lost worker may still act."""
        return now < self._fence or any(not member.alive and now < member.fence for member in self.all)

    @property
    def alive(self) -> list[int]:
        """The workers that are alive."""
        return [number for number, member in enumerate(self.all) if member.alive]

    @property
    def assigned(self) -> list[int]:
        """The workers that are alive and have been assigned an epoch."""
        return [number for number, member in enumerate(self.all) if member.alive and member.epoch]

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The addresses of all workers, by number."""
        return tuple(member.peer for member in self.all)

    def in_epoch(self, epoch: int) -> list[int]:
        """Return the workers that take part in an epoch."""
        return [number for number, member in enumerate(self.all) if member.alive and member.epoch == epoch]

    def busy_since(self, when: float) -> str:
        """Return the name of a worker that is alive and whose loop has sent nothing since a time; empty: none."""
        return next((member.site.name for member in self.all if member.alive and member.last_message < when), "")

    def missing(self, now: float) -> list[int]:
        """Return the sites, excluded ones apart, without a worker."""
        return [n for n, member in enumerate(self.all) if not member.alive and not self.is_excluded(n, now)]

    def usable(self, now: float, ready: bool = False) -> list[str]:
        """Return the slots that tasks can have; `ready`: only of workers that already take part in the epoch."""
        found = [
            (slot, self.all[number].leaving)
            for slot, number in self.slots.items()
            if (self.all[number].ready if ready else self.all[number].alive) and not self.is_excluded(number, now)
        ]
        return [slot for slot, leaving in found if not leaving] or [slot for slot, _ in found]

    def is_excluded(self, number: int, now: float) -> bool:
        """Return whether a site is excluded."""
        return now < self.all[number].excluded_until

    def exclude_unreliable(self, now: float, report: Callable[[int, str], None]) -> None:
        """Exclude sites that keep failing or are late, as long as more than half of all remain; report each."""
        for number, member in enumerate(self.all):
            if self.is_excluded(number, now):
                continue
            _forget(member.failures, now)
            _forget(member.late_beats, now)
            if len(member.failures) >= MAX_FAILURES:
                reason = f"its worker was lost {len(member.failures)} times in {WINDOW_S:g} s"
            elif len(member.late_beats) >= MAX_LATE:
                reason = f"its heartbeats were late {len(member.late_beats)} times in {WINDOW_S:g} s"
            else:
                continue
            remaining = sum(not self.is_excluded(other, now) for other in range(len(self.all))) - 1
            if 2 * remaining <= len(self.all):
                continue
            member.excluded_until = now + EXCLUSION_S * 2**member.exclusions
            member.exclusions += 1
            member.failures.clear()
            member.late_beats.clear()
            member.reason = reason
            report(number, f"{reason}; excluded for {member.excluded_until - now:g} s")

    def warnings(self, now: float) -> list[str]:
        """Return a warning for each worker whose heartbeats are overdue."""
        return [
            f"no heartbeat from worker {m.site.name!r} ({m.where}) for {now - m.last_beat:.0f} s"
            for m in self.all
            if m.alive and m.epoch and now - m.last_beat > SILENT_S
        ]


def _forget(times: deque[float], now: float) -> None:
    while times and times[0] < now - WINDOW_S:
        times.popleft()
