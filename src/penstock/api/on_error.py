"""Error policies: what happens to a tuple for which an author's code raises; the `errors=` of a component.

    flow.map("parse", parse, lines, errors=ps.Skip())
    flow.sink("store", Store, rows, errors=ps.Retry(times=5, wait=0.2, then=ps.Skip()))

An error policy applies when `process`, `on_timer` or `write` raises, or the function of a `map`, `flat_map` or
`filter`. Earlier tuples keep their results; what the failing tuple has emitted so far is dropped. State that the code
changed before it raised stays changed: change it last. A policy also applies to a tuple that the component emits but
that cannot be sent, because its key function raises or it cannot be encoded; `Retry` then continues with its `then` at
once. For a source, `Retry` repeats `poll`. Any other exception (in a factory, `open`, `finish`, `snapshot`, …) ends the
run. A tuple that crashes the whole process raises no exception, so no policy applies.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.api.sinks.json_lines import JsonLines
from penstock.model.errors import InvalidInput

FOLDER = "dead-letters"


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run with an error that names the component, the task and the tuple; the default."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Write the tuple to a file and continue with the next.

    folder: where `DeadLetter`s are written, as lines of JSON; a relative one is inside the run's folder. Like the
    output of sinks, they become visible when a checkpoint is complete, each exactly once.
    """

    folder: str = FOLDER

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str) or not self.folder:
            raise InvalidInput("folder", f"expected the name of a folder, got {self.folder!r}")


@dataclass(frozen=True, slots=True)
class Retry:
    """Try the tuple again after a while; the task is suspended meanwhile, other tasks continue.

    times: maximum number of retries.
    wait: seconds before the first retry; factor: by which the wait grows with each retry.
    then: the policy if no retry succeeds.

    Checkpoints wait for the tuple as well, so all waits together should be short compared with the checkpoint interval.
    If the task moves meanwhile, or the run is rolled back to a checkpoint, the count starts again at 0.
    """

    times: int = 3
    wait: float = 0.1
    factor: float = 2.0
    then: Fail | Skip = field(default_factory=Fail)

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 1:
            raise InvalidInput("times", f"expected a whole number ≥ 1, got {self.times!r}")
        for name, least in (("wait", 0), ("factor", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
                raise InvalidInput(name, f"expected a number ≥ {least}, got {value!r}")
        if not isinstance(self.then, Fail | Skip):
            raise InvalidInput("then", f"expected Fail() or Skip(), got {self.then!r}")

    def delay(self, tries: int) -> float:
        """Return the seconds to wait before the next retry, given the number of retries so far."""
        return self.wait * self.factor**tries


ErrorPolicy = Fail | Skip | Retry


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a dead-letter file: a skipped tuple, and why."""

    component: str
    task: int  # its number within the component
    time: str  # when it was skipped: date and time of day, UTC
    call: str  # what raised: process, on_timer or write; if the tuple cannot be sent or read: key, emits, outputs, …
    tuple: Any  # as JSON, or else its repr; for a timer, the requested time
    error: str  # the exception, in one line
    traceback: str


class DeadLetters(JsonLines):
    """The sink of dead letters; its file names differ from those of a component's own files in the same folder."""

    prefix = "letters"


def check_error_policy(path: str, given: Any) -> ErrorPolicy | None:
    """Return an error policy, None if it ends the run; reject other objects."""
    if given is None or isinstance(given, Fail):
        return None
    if isinstance(given, Skip | Retry):
        return given
    if isinstance(given, type) and issubclass(given, Fail | Skip | Retry):
        raise InvalidInput(path, f"expected an object, got the class; write ps.{given.__name__}()")
    raise InvalidInput(path, f"expected ps.Fail(), ps.Skip() or ps.Retry(), got {given!r}")


def letters_folder(policy: ErrorPolicy) -> str | None:
    """Return the folder of the dead letters of a policy; None if it never skips."""
    last = policy.then if isinstance(policy, Retry) else policy
    return last.folder if isinstance(last, Skip) else None
