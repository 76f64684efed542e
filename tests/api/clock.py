"""A clock that tests set, and the context of a task that reads it."""

from pathlib import Path

from penstock.api.contracts import TaskContext


class Clock:
    """A time that tests set."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time


def context(
    task: int = 0,
    tasks: int = 1,
    *,
    component: str = "part",
    clock: Clock | None = None,
    seed: int = 0,
    folder: Path | str = ".",
) -> TaskContext:
    return TaskContext(component, task, tasks, clock=clock or Clock(), seed=seed, folder=str(folder))
