"""What becomes of a tuple that an author's code raises an exception on: `errors=` of a component.

    flow.map("parse", parse, lines, errors=ps.Skip())
    flow.sink("store", Store, rows, errors=ps.Retry(times=5, wait=0.2, then=ps.Skip()))

An error policy is asked when `process`, `on_timer` or `write` raises, or the function of a `map`, `flat_map` or
`filter`. Tuples before the one in question keep their results, and what that one has given so far is dropped. State
that the code changed before it raised stays changed: change it last. A policy is also asked about a tuple that the
component emits but that cannot be sent, because its key function raises or it cannot be encoded; `Retry` goes on to its
`then` at once. For a source, `Retry` repeats `poll`. Everything else that raises (a factory, `open`, `finish`,
`snapshot`, …) ends the run, and a tuple that takes the whole process with it is no exception at all.
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
    """End the run, and name the component, the task and the tuple; what happens where nothing is said."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Put the tuple into a file and go on with the next.

    folder: where `DeadLetter`s are written, as lines of JSON; a relative one is below the run's folder. They show with
    the output of sinks, when a checkpoint is complete, and each of them exactly once.
    """

    folder: str = FOLDER

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str) or not self.folder:
            raise InvalidInput("folder", f"expected the name of a folder, got {self.folder!r}")


@dataclass(frozen=True, slots=True)
class Retry:
    """Try the tuple again after a while, for which the task stands still; other tasks go on.

    times: how often, after the first time.
    wait: seconds before the first of these; factor: by which the wait grows from one to the next.
    then: what to do when none of them has helped.
    Checkpoints wait behind the tuple, too, so all waits together should be short beside the time between these. When
    the task moves meanwhile, or everything goes back to a checkpoint, the count begins anew.
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
        """Return the seconds to wait after so many tries again."""
        return self.wait * self.factor**tries


ErrorPolicy = Fail | Skip | Retry


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a dead-letter file: a tuple that was skipped, and why."""

    component: str
    task: int  # its number within the component
    time: str  # when it was skipped: date and time of day, UTC
    call: str  # what raised: process, on_timer or write; of a tuple that cannot be sent or read: key, gives, outputs, …
    tuple: Any  # as JSON, or else as Python shows it; of a timer, the time that it was asked for
    error: str  # the exception, in a line
    traceback: str


class DeadLetters(JsonLines):
    """The sink of dead letters; by another name than a sink's own files, as both may be in one folder."""

    prefix = "letters"


def checked(path: str, given: Any) -> ErrorPolicy | None:
    """Return an error policy, None where it is to end the run; refuse what is none."""
    if given is None or isinstance(given, Fail):
        return None
    if isinstance(given, Skip | Retry):
        return given
    if isinstance(given, type) and issubclass(given, Fail | Skip | Retry):
        raise InvalidInput(path, f"expected an object, got the class; write ps.{given.__name__}()")
    raise InvalidInput(path, f"expected ps.Fail(), ps.Skip() or ps.Retry(), got {given!r}")


def letters_folder(policy: ErrorPolicy) -> str | None:
    """Return the folder to which tuples may be skipped under a policy; None: none ever is."""
    last = policy.then if isinstance(policy, Retry) else policy
    return last.folder if isinstance(last, Skip) else None
