"""What a program wants to hear while a run starts."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.storage.run_folder import RunInfo


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class StartCallbacks:
    """Functions that are called while a run starts. One that raises ends the start."""

    progress: Callable[[str], None] = _ignore  # with what the start waits for
    notify: Callable[[str], None] = _ignore  # with what a person should know, such as warnings
    created: Callable[[RunInfo], None] = _ignore  # as soon as a new run has its folder, before anything of it can run
