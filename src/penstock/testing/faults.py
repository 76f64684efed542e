"""The faults of a simulated cluster, and the requests of its user, by a random schedule.

Connections are cut at both ends or at one; disks are slow, full, and have incomplete files after a crash; processes are
suspended, crash and recover, soon, late or never; the driver crashes. When the schedule has no more faults, the
application must end with correct output.
"""

import math
from collections.abc import Callable
from functools import partial
from operator import itemgetter

from penstock.runtime.storage import checkpoints
from penstock.testing.fault_schedule import CHECKPOINTS, LEAST, Fault, FaultSchedule, draw_policies
from penstock.testing.processes import DriverProcess, WorkerProcess
from penstock.testing.simulated_cluster import SimulatedCluster
from penstock.testing.simulation import SimulatedLine, SimulatedProcess


class FaultyCluster(SimulatedCluster):
    """One run of one schedule."""

    def __init__(self, schedule: FaultSchedule, trace: Callable[[str], None] | None = None) -> None:
        self.damaged = False  # a checkpoint was, possibly the only one
        self._at_event = [(fault.event, fault) for fault in schedule.faults if fault.event]
        self._at_label: dict[str, list[Fault]] = {}
        for fault in schedule.faults:
            if fault.label:
                self._at_label.setdefault(fault.label, []).append(fault)
        self._next_fault = math.inf  # number of events
        self.postpone(Fault("may end"), LEAST)
        super().__init__(schedule, trace)

    def stepped(self) -> None:
        """Apply the faults that are due after a number of events."""
        while self._at_event and self.events >= self._next_fault:
            fault = self._at_event.pop(0)[1]
            if fault.kind == "may end":
                self.known.place.may_end = True
            else:
                self._apply(fault, None)
            self._next_fault = self._at_event[0][0] if self._at_event else math.inf

    def reached(self, label: str, process: SimulatedProcess) -> None:
        """Apply the faults that wait for a message or an action."""
        waiting = self._at_label.get(label)
        if waiting:
            fault = waiting[0]
            fault.countdown -= 1
            if fault.countdown <= 0:
                waiting.pop(0)
                self._apply(fault, process)

    def postpone(self, fault: Fault, event: int) -> None:
        """Schedule a fault for later."""
        self._at_event.append((event, fault))
        self._at_event.sort(key=itemgetter(0))
        self._next_fault = self._at_event[0][0]

    def _apply(self, fault: Fault, near: SimulatedProcess | None) -> None:
        """Apply a fault to a process, the one near the trigger or any; count it if it had a target."""
        if self.now > self.quiet_after or self.over:
            return
        self.last_fault = self.now
        self.count(f"* {fault.kind}" + (f" at {fault.label}" if fault.label else ""))
        change = _CHANGES.get(fault.kind)
        if change is not None:
            applied = change(self)
        else:
            living = [one for one in self.by_port.values() if one.alive and one.driver is self.driver]
            if fault.near and isinstance(near, WorkerProcess) and near.alive:
                living = [near]
            applied = bool(living) and _FAULTS[fault.kind](self, self.rng.choice(living))
        self.counts[fault.kind] += applied


def _crash(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    cluster.crash(process, cluster.rng.choice(("soon", "soon", "late", _or_never(cluster))), noisy=True)
    return True


def _vanish(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    cluster.crash(process, cluster.rng.choice(("soon", "late", _or_never(cluster))), noisy=False)
    return True


def _or_never(cluster: FaultyCluster) -> str:
    """Return that a process never recovers, unless too few would remain."""
    there = sum(process.alive for process in cluster.processes.values())
    return "never" if there > 2 else "late"


def _pause(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    seconds = cluster.rng.choice((0.02, 0.2, 0.45, 0.7, 1.2)) * cluster.rng.uniform(0.7, 1.3)
    if cluster.rng.random() < 0.5:
        process.pause(seconds)
    else:
        process.stops_in_turn = seconds
        process.wake_soon()
    return True


def _stall(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    process.stalled_until = cluster.now + cluster.rng.uniform(0.02, 0.8)
    return True


def _cut_line(cluster: FaultyCluster, process: WorkerProcess, at_both_ends: bool) -> bool:
    """Cut a connection between running workers; the sender notices at the latest when something is lost."""
    rng = cluster.rng
    lines = [line for line in process.called.values() if not line.broken and line.receiver.alive]
    if not lines:
        return False
    line = rng.choice(lines)
    line.cut()
    receiver = line.receiver
    assert isinstance(receiver, WorkerProcess)
    sender_learns = at_both_ends or rng.random() < 0.5
    if sender_learns or line.lossy:
        line.lossy = True
        line.sender.notice_loss(line)
    if at_both_ends or not sender_learns:
        cluster.after(5 * cluster.delay(), receiver.lose_caller, line)
    return True


def _cut_control(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    rng, driver = cluster.rng, process.driver
    process.up.cut()
    process.down.cut()
    ends = rng.choice(("both", "driver", "worker"))
    process.half_open = ends == "worker"
    soon, late = 5 * cluster.delay(), rng.uniform(0.5, 2.0)  # by when the system has detected it by itself
    cluster.after(late if ends == "worker" else soon, driver.lose, process)
    cluster.after(late if ends == "driver" else soon, process.lose_driver, None)
    if ends == "driver" and rng.random() < 0.5:
        cluster.take_for_lost(process)
    return True


def _damage(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    """Corrupt the latest checkpoint, so that the previous one is needed, and force a recovery."""
    numbers = checkpoints.numbers(cluster.disk, CHECKPOINTS)
    if cluster.damaged:
        return False
    if len(numbers) < 2:
        cluster.postpone(Fault("damage"), cluster.events + 30)
        return False
    manifest = checkpoints.load_manifest(cluster.disk, CHECKPOINTS, numbers[0])
    if manifest.last or not manifest.files:
        return False
    cluster.damaged = True
    path = f"{checkpoints.folder_of(CHECKPOINTS, numbers[0])}/{cluster.rng.choice(sorted(manifest.files))}"
    data = cluster.disk.read(path)
    place = cluster.rng.randrange(len(data))
    cut = cluster.rng.random() < 0.5
    cluster.disk.damage(path, data[:place] if cut else data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    if cluster.rng.random() < 0.5:
        return _crash(cluster, process)
    return _driver(cluster)


def _cut_heart(_: FaultyCluster, process: WorkerProcess) -> bool:
    process.cut_heart()
    return True


def _slow_line(cluster: FaultyCluster, process: WorkerProcess) -> bool:
    rng = cluster.rng
    lines: list[SimulatedLine] = [process.up, process.down, process.beats, process.pulses, *process.called.values()]
    line = rng.choice(lines)
    line.clear_at = max(line.clear_at, cluster.now + rng.choice((0.02, 0.1, 0.5)) * rng.uniform(0.5, 1.5))
    return True


_FAULTS: dict[str, Callable[[FaultyCluster, WorkerProcess], bool]] = {
    "crash": _crash,
    "vanish": _vanish,
    "pause": _pause,
    "stall": _stall,
    "cut": partial(_cut_line, at_both_ends=True),
    "half cut": partial(_cut_line, at_both_ends=False),
    "cut control": _cut_control,
    "cut heart": _cut_heart,
    "slow line": _slow_line,
    "damage": _damage,
}


def _driver(cluster: FaultyCluster) -> bool:
    alive = cluster.driver.alive
    if alive:
        cluster.crash_driver(noisy=cluster.rng.random() < 0.7)
    return alive


def _pause_driver(cluster: FaultyCluster) -> bool:
    alive = cluster.driver.alive
    cluster.driver.pause(cluster.rng.choice((0.05, 0.3, 0.8)) * cluster.rng.uniform(0.7, 1.3))
    return alive


def _full_disk(cluster: FaultyCluster) -> bool:
    cluster.fill_disk(cluster.rng.uniform(0.02, 1.0))
    return True


def _slow_disk(cluster: FaultyCluster) -> bool:
    cluster.slow_disk(cluster.rng.uniform(0.05, 1.0))
    return True


def _move(cluster: FaultyCluster, most: int) -> bool:
    """Move a task, or several in one operation."""
    driver, rng = cluster.driver, cluster.rng
    count = 1 if most == 1 else rng.randrange(2, most + 1)
    if not _listens(driver):
        return False
    controller = driver.controller
    slots = sorted(controller.members.slots)
    tasks = rng.sample(controller.layout.names, count)
    moves = [(task, rng.choice(slots)) for task in tasks]
    cluster.note(f"requests {moves}")
    controller.operate(moves, "move", lambda done: cluster.moved(len(done.done), done.error), cluster.now)
    driver.serve()
    return True


def _switch(cluster: FaultyCluster) -> bool:
    """Switch to other tuple policies, and sometimes move a task in the same operation."""
    driver, rng = cluster.driver, cluster.rng
    if not _listens(driver):
        return False
    controller = driver.controller
    tuples = draw_policies(rng, controller.layout.application)
    moves = [(rng.choice(controller.layout.names), rng.choice(sorted(controller.members.slots)))] * rng.randrange(2)
    cluster.note(f"requests {tuples} and {moves}")
    done = cluster.switched
    controller.operate(moves, "switch", lambda each: done(tuples, each.error), cluster.now, tuples=tuples)
    driver.serve()
    return True


def _leave(cluster: FaultyCluster) -> bool:
    """Have a worker leave on purpose; another one replaces it."""
    driver, rng = cluster.driver, cluster.rng
    if not _listens(driver):
        return False
    site = rng.choice(sorted(driver.controller.members.by_name))
    leaves = driver.controller.relocate(site, cluster.now) == ""
    driver.serve()
    return leaves


def _drain(cluster: FaultyCluster) -> bool:
    if cluster.events < LEAST:
        cluster.postpone(Fault("drain"), LEAST)
        return False
    if not _listens(cluster.driver) or cluster.driver.controller.phase == "starting":
        return False
    cluster.drained = True
    cluster.driver.controller.drain(cluster.now)
    cluster.driver.serve()
    return True


def _stop(cluster: FaultyCluster) -> bool:
    """Stop the run at once; it is resumed after a while."""
    if not _listens(cluster.driver) or cluster.driver.controller.phase == "starting":
        return False
    cluster.stopping = True
    cluster.driver.controller.stop(cluster.now)
    cluster.driver.serve()
    return True


def _listens(driver: DriverProcess) -> bool:
    return driver.alive and not driver.paused


_CHANGES: dict[str, Callable[[FaultyCluster], bool]] = {
    "driver": _driver,
    "pause driver": _pause_driver,
    "full disk": _full_disk,
    "slow disk": _slow_disk,
    "move": partial(_move, most=1),
    "apply": partial(_move, most=4),
    "switch": _switch,
    "leave": _leave,
    "drain": _drain,
    "stop": _stop,
}
