"""The reports of a worker to the controller: periodic ones, with matching telemetry, and failures."""

import os
import resource
import traceback
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from penstock.api.contracts import TaskContext
from penstock.model.errors import FileProblem, PenstockError, with_type
from penstock.model.telemetry import RecordKind
from penstock.runtime.protocol.worker_messages import ActivityReport, Failure, TaskReport
from penstock.runtime.worker.execution.interface import MachineUsage
from penstock.runtime.worker.logic import UserError
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tracing import Tracer

REPORT_S = 0.25


class ProcessUsage(NamedTuple):
    """The resource use of a worker process."""

    cpu_seconds: Callable[[], float] = lambda: 0.0
    memory_mb: Callable[[], float | None] = lambda: None  # None: unknown


UNKNOWN = ProcessUsage()


class _Machine(Protocol):
    """The part of `TaskExecution` that describes the machine."""

    def usage(self, now: float, interval: float, cpu: float) -> MachineUsage: ...
    def capacity(self) -> tuple[float, float] | None: ...


class Reporter:
    """The reports of one worker in one epoch."""

    def __init__(
        self,
        epoch: int,
        process: ProcessUsage,
        machine: _Machine,
        tracer: Tracer,
        tasks: Mapping[int, Task],
        capacity: tuple[float, float] | None,
    ) -> None:
        self._epoch = epoch
        self._process = process
        self._machine = machine
        self._tracer = tracer
        self._tasks = tasks
        self._capacity = capacity  # of a real machine; None: unknown
        self._left: list[TaskReport] = []  # of tasks that have left since the last report
        self._last = self._last_cpu = 0.0
        self.due = float("inf")

    def start(self, now: float) -> None:
        """Restart the counters."""
        self._last, self._last_cpu = now, self._process.cpu_seconds()
        self.due = now + REPORT_S

    def left(self, task: Task, now: float) -> None:
        """Keep the counters of a departing task."""
        self._left.append(self._task_report(task, now))

    def report(self, now: float, aligning: bool, checkpoint: int, saved: tuple[int, ...]) -> ActivityReport:
        """Return the next report; the last arguments are those of its message."""
        interval = max(now - self._last, 1e-9)
        tasks = (*self._left, *(self._task_report(task, now) for task in self._tasks.values()))
        self._left = []
        roots, acks = self._tracer.take_trees()
        cpu_now = self._process.cpu_seconds()
        usage = self._machine.usage(now, interval, (cpu_now - self._last_cpu) / interval)
        self._tracer.record(RecordKind.MACHINE, now, interval=interval, lag=usage.lag, **self._machine_figures(usage))
        self._last, self._last_cpu = now, cpu_now
        self.due = now + REPORT_S
        measured = (tasks, roots, acks, usage.cpu, usage.lag, usage.warning)
        return ActivityReport(self._epoch, now, interval, *measured, aligning, checkpoint, saved)

    def _machine_figures(self, usage: MachineUsage) -> dict[str, float | None]:
        """Return the used fraction of the machine, the memory in use, and the capacity if it is known.

        The tasks of an emulated machine use the memory that they declare.
        """
        emulated = self._machine.capacity()
        if emulated is None:
            memory, share = self._process.memory_mb(), usage.cpu / self._capacity[0] if self._capacity else usage.cpu
        else:
            memory, share = sum(task.component.memory_mb for task in self._tasks.values()), usage.cpu
        capacity = emulated or self._capacity
        figures = {"busy": share, "memory_mb": memory}
        return figures if capacity is None else {**figures, "capacity_cpu": capacity[0], "capacity_mb": capacity[1]}

    def _task_report(self, task: Task, now: float) -> TaskReport:
        report = task.report(now)
        self._tracer.record(
            RecordKind.TASK,
            now,
            task=task.name,
            interval=max(now - max(self._last, task.since), 1e-9),
            processed=report.processed,
            given=report.emitted,
            queue=report.queue,
            waiting_out=report.waiting_out,
            busy=report.busy,
            blocked=report.blocked,
        )
        return report


def describe_failure(epoch: int, context: TaskContext | None, error: Exception, *, retries_disk: bool) -> Failure:
    """Return the report of an exception; `context` is that of the task whose code ran."""
    cause = error.__cause__ if isinstance(error, UserError) and error.__cause__ is not None else error
    text = str(cause) if isinstance(cause, PenstockError) else with_type(cause)
    if isinstance(error, UserError):
        text = f"{text} in {error.where}" if error.where else text
        context = error.context or context
    return Failure(
        epoch,
        context.component if context else "",
        context.task if context else -1,
        error.value if isinstance(error, UserError) else "",
        text,
        "".join(traceback.format_exception(cause)),
        isinstance(error, UserError | PenstockError)
        and not (retries_disk and isinstance(cause, FileProblem | OSError)),
    )


def resident_mb() -> float:
    """Return the resident memory of this process; its maximum so far if the current value is unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
