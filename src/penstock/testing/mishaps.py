"""What can go wrong in a simulated cluster, and what its user may ask for meanwhile."""

from typing import TYPE_CHECKING

from penstock.testing.drawing import LEAST, Fault
from penstock.testing.drivers import DriverProcess
from penstock.testing.network import Line
from penstock.testing.processes import Process
from penstock.testing.workers import WorkerProcess

if TYPE_CHECKING:
    from penstock.testing.faults import FaultyCluster


def happen(cluster: "FaultyCluster", fault: Fault, near: Process | None) -> None:
    """Let a fault befall a process: the one that is near, or any."""
    cluster.counts[fault.kind] += 1
    cluster.count(f"* {fault.kind}" + (f" at {fault.label}" if fault.label else ""))
    change = _CHANGES.get(fault.kind)
    if change is not None:
        change(cluster)
        return
    living = [process for process in cluster.by_port.values() if process.alive and process.driver is cluster.driver]
    if fault.near and isinstance(near, WorkerProcess) and near.alive:
        process = near
    elif living:
        process = cluster.rng.choice(living)
    else:
        return
    _MISHAPS[fault.kind](cluster, process)


def _crash(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    cluster.crash(process, cluster.rng.choice(("soon", "soon", "late", _or_never(cluster))), noisy=True)


def _vanish(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    cluster.crash(process, cluster.rng.choice(("soon", "late", _or_never(cluster))), noisy=False)


def _or_never(cluster: "FaultyCluster") -> str:
    """Return that a process never comes back, unless too few would be left."""
    there = sum(process.alive for process in cluster.processes.values())
    return "never" if there > 2 else "late"


def _pause(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    seconds = cluster.rng.choice((0.02, 0.2, 0.45, 0.7, 1.2)) * cluster.rng.uniform(0.7, 1.3)
    if cluster.rng.random() < 0.5:
        cluster.pause(process, seconds)
    else:
        process.stops_in_turn = seconds
        process.wake_soon()


def _stall(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    process.stalled_until = cluster.now + cluster.rng.uniform(0.02, 0.8)


def _cut(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    _cut_line(cluster, process, at_both_ends=True)


def _half_cut(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    _cut_line(cluster, process, at_both_ends=False)


def _cut_line(cluster: "FaultyCluster", process: WorkerProcess, at_both_ends: bool) -> None:
    """Cut a connection between workers that live on; who sends learns of it at the latest when something is lost."""
    rng = cluster.rng
    lines = [line for line in process.called.values() if not line.broken and line.receiver.alive]
    if not lines:
        return
    line = rng.choice(lines)
    line.cut()
    receiver = line.receiver
    assert isinstance(receiver, WorkerProcess)
    sender_learns = at_both_ends or rng.random() < 0.5
    if sender_learns or line.lossy:
        line.lossy = True
        cluster.tell_sender(line)
    if at_both_ends or not sender_learns:
        cluster.after(5 * cluster.delay(), receiver.lose_caller, line)


def _cut_control(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    rng, driver = cluster.rng, process.driver
    process.up.cut()
    process.down.cut()
    ends = rng.choice(("both", "driver", "worker"))
    process.half_open = ends == "worker"
    soon, late = 5 * cluster.delay(), rng.uniform(0.5, 2.0)  # by when the system has found out by itself
    cluster.after(late if ends == "worker" else soon, driver.lose, process)
    cluster.after(late if ends == "driver" else soon, process.lose_driver, None)
    if ends == "driver" and rng.random() < 0.5:
        cluster.take_for_lost(process)


def _cut_heart(_: "FaultyCluster", process: WorkerProcess) -> None:
    process.cut_heart()


def _slow_line(cluster: "FaultyCluster", process: WorkerProcess) -> None:
    rng = cluster.rng
    lines: list[Line] = [process.up, process.down, process.beats, process.pulses, *process.called.values()]
    line = rng.choice(lines)
    line.clear_at = max(line.clear_at, cluster.now + rng.choice((0.02, 0.1, 0.5)) * rng.uniform(0.5, 1.5))


_MISHAPS = {
    "crash": _crash,
    "vanish": _vanish,
    "pause": _pause,
    "stall": _stall,
    "cut": _cut,
    "half cut": _half_cut,
    "cut control": _cut_control,
    "cut heart": _cut_heart,
    "slow line": _slow_line,
}


def _driver(cluster: "FaultyCluster") -> None:
    if cluster.driver.alive:
        cluster.crash_driver(noisy=cluster.rng.random() < 0.7)


def _pause_driver(cluster: "FaultyCluster") -> None:
    cluster.pause(cluster.driver, cluster.rng.choice((0.05, 0.3, 0.8)) * cluster.rng.uniform(0.7, 1.3))


def _full_disk(cluster: "FaultyCluster") -> None:
    cluster.fill_disk(cluster.rng.uniform(0.02, 1.0))


def _slow_disk(cluster: "FaultyCluster") -> None:
    cluster.slow_disk(cluster.rng.uniform(0.05, 1.0))


def _move(cluster: "FaultyCluster") -> None:
    _request(cluster, 1)


def _apply(cluster: "FaultyCluster") -> None:
    _request(cluster, cluster.rng.randrange(2, 5))


def _request(cluster: "FaultyCluster", count: int) -> None:
    driver, rng = cluster.driver, cluster.rng
    if not _listens(driver):
        return
    controller = driver.controller
    slots = sorted(controller.slots)
    tasks = rng.sample(range(len(controller.placement)), count)
    moves = [(task, rng.choice(slots)) for task in tasks]
    cluster.note(f"asks for {moves}")
    controller.operations.request(moves, "move", lambda done: cluster.moved(len(done.done), done.error))
    driver.serve()


def _drain(cluster: "FaultyCluster") -> None:
    if cluster.events < LEAST:
        cluster.postpone(Fault("drain"), LEAST)
    elif _listens(cluster.driver) and cluster.driver.controller.phase != "starting":
        cluster.drained = True
        cluster.driver.controller.drain(cluster.now)
        cluster.driver.serve()


def _stop(cluster: "FaultyCluster") -> None:
    """Have the run stopped at once; somebody resumes it after a while."""
    if _listens(cluster.driver) and cluster.driver.controller.phase != "starting":
        cluster.stopping = True
        cluster.driver.controller.stop(cluster.now)
        cluster.driver.serve()


def _listens(driver: DriverProcess) -> bool:
    return driver.alive and not driver.paused


_CHANGES = {
    "driver": _driver,
    "pause driver": _pause_driver,
    "full disk": _full_disk,
    "slow disk": _slow_disk,
    "move": _move,
    "apply": _apply,
    "drain": _drain,
    "stop": _stop,
}
