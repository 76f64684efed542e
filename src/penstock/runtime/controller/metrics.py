"""Measurements of a run from its workers' reports: rates, queues and times over the last seconds."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.model.status import ComponentStatus, Latency, MachineStatus
from penstock.model.topology import Kind
from penstock.runtime.controller.membership import Member
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.worker_messages import ActivityReport, TaskReport

RATES_S = 2.0  # the window of rates
LATENCY_S = 5.0  # the window of latencies
MAX_SAMPLES = 4096


class _Reading(NamedTuple):
    at: float  # controller's time
    interval: float
    task: TaskReport


class Metrics:
    """The latest readings of every task and worker."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._tasks: dict[int, deque[_Reading]] = {}
        self._workers: dict[int, tuple[float, ActivityReport]] = {}
        self._latencies: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)  # finished, s
        self.emitted = 0
        self.written = 0
        self._processed: Counter[int] = Counter()  # by task
        self._skipped: Counter[int] = Counter()
        self._retried: Counter[int] = Counter()

    def report(self, worker: int, report: ActivityReport, now: float) -> None:
        """Take a worker's report."""
        self._workers[worker] = (now, report)
        for task in report.tasks:
            readings = self._tasks.setdefault(task.task, deque())
            readings.append(_Reading(now, report.interval, task))
            while readings[0].at < now - LATENCY_S:
                readings.popleft()
            kind = self._layout.components[task.task].kind
            self._processed[task.task] += task.processed
            self.emitted += task.emitted if kind is Kind.SOURCE else 0
            self.written += task.processed if kind is Kind.SINK else 0
            if task.skipped or task.retried:
                self._skipped[task.task] += task.skipped
                self._retried[task.task] += task.retried

    def latency(self, finished: float, seconds: float) -> None:
        """Take the end-to-end latency of a traced tuple."""
        self._latencies.append((finished, seconds))

    def end_to_end(self, now: float, last_s: float = LATENCY_S) -> Latency | None:
        """Return the latencies of the last seconds."""
        times = [1e3 * seconds for finished, seconds in self._latencies if finished >= now - last_s]
        if not times:
            return None
        times.sort()
        return Latency(
            count=len(times),
            p50_ms=percentile(times, 0.5),
            p99_ms=percentile(times, 0.99),
            mean_ms=sum(times) / len(times),
            worst_ms=times[-1],
        )

    def components(self, machines: Sequence[str], now: float) -> list[ComponentStatus]:
        """Return the status of every component; `machines` has the machine of each task."""
        found = []
        for position in self._layout.application.order:
            component = self._layout.application.components[position]
            tasks = self._layout.tasks(component.name)
            readings = [list(self._recent(task, now)) for task in tasks]
            flat = [reading for each in readings for reading in each]
            processed = sum(r.task.processed for r in flat)
            busy = sum(r.task.busy for r in flat)
            spent = sorted(
                1e3 * time for task in tasks for r in self._tasks.get(task, ()) for time in r.task.response_times
            )
            latest = [self._tasks[task][-1].task for task in tasks if self._tasks.get(task)]
            found.append(
                ComponentStatus(
                    name=component.name,
                    kind=component.kind.value,
                    tasks=component.parallelism,
                    machines=len({machines[task] for task in tasks}),
                    rate_tps=sum(_rate(each) for each in readings),
                    queue=sum(task.queue for task in latest),
                    waiting_out=sum(task.waiting_out for task in latest),
                    processing_ms=1e3 * busy / processed if processed else None,
                    p50_ms=percentile(spent, 0.5) if spent else None,
                    p99_ms=percentile(spent, 0.99) if spent else None,
                    blocked=max((_blocked(each) for each in readings), default=0.0),
                    skipped=sum(self._skipped[task] for task in tasks),
                    retried=sum(self._retried[task] for task in tasks),
                    processed=tuple(self._processed[task] for task in tasks),
                )
            )
        return found

    def blocked(self, task: int, now: float) -> float:
        """Return the share of the last seconds in which a task lacked credit."""
        return _blocked(list(self._recent(task, now)))

    def queue(self, task: int) -> int:
        """Return the number of tuples that wait for a task."""
        readings = self._tasks.get(task)
        return readings[-1].task.queue if readings else 0

    def machine(self, worker: int, member: Member, tasks: int, now: float) -> MachineStatus:
        """Return the status of a worker with a number of tasks."""
        _, report = self._workers.get(worker, (0.0, None))
        note = "late" if report and report.warning else ""
        if now < member.excluded_until:
            note = f"excluded for {member.excluded_until - now:.0f} s more: {member.reason}"
        return MachineStatus(
            name=member.site.name,
            slots=member.site.slots,
            host=member.host,
            tasks=tasks,
            cpu=report.cpu if report else 0.0,
            alive=member.alive,
            lag_ms=1e3 * report.lag if report else 0.0,
            offset_ms=1e3 * member.clock.estimate.offset,
            note=note,
            pid=member.pid,
        )

    def warnings(self) -> list[str]:
        """Return the warning of the worker with the greatest lag, and how many others warn."""
        warned = [report for _, report in self._workers.values() if report.warning]
        if not warned:
            return []
        worst = max(warned, key=lambda report: report.lag).warning
        others = len(warned) - 1
        return [worst + (f" ({others} more machine{'s' if others > 1 else ''} late)" if others else "")]

    def _recent(self, task: int, now: float) -> Iterable[_Reading]:
        """Return the readings of the last seconds; a worker with longer tuples reports at the end of each."""
        readings = self._tasks.get(task, deque())
        return (one for one in readings if one.at >= now - RATES_S - (one.interval if one is readings[-1] else 0.0))


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return a percentile of sorted numbers: the nearest rank."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def _rate(readings: Sequence[_Reading]) -> float:
    seconds = sum(reading.interval for reading in readings)
    return sum(reading.task.processed for reading in readings) / seconds if seconds else 0.0


def _blocked(readings: Sequence[_Reading]) -> float:
    seconds = sum(reading.interval for reading in readings)
    return min(1.0, sum(reading.task.blocked for reading in readings) / seconds) if seconds else 0.0
