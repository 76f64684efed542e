"""Runs an author's code under an error policy: what to do when it raises is decided here, call by call.

A component without a policy never comes here. A guard runs tuples one by one and says how far it has come: to the end,
or to a tuple that is to be tried again at a later time. It waits for nothing itself.

Tuples that are skipped go to a sink of the task's own: what that has ready joins what the task publishes at a
checkpoint, and its state joins the task's, so that a dead letter is written as often as any output: once.
"""

import logging
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.api.logic import Logic
from penstock.api.on_error import DeadLetter, ErrorPolicy, Retry, Skip
from penstock.runtime.protocol.codec import Unreadable
from penstock.runtime.worker.logic import Movable, UserError, call, shown

_LOG = logging.getLogger(__name__)


class Done(NamedTuple):
    """How far a guard has come with a batch."""

    made: list[Any]  # what follows from the tuples that it is done with
    taken: int  # so many of them
    until: float | None = None  # when the next of them is to be tried again; None: there is none


class Guard:
    """Runs the calls of one task under its component's policy."""

    def __init__(self, policy: ErrorPolicy, letters: Sink[Any] | None, logic: Logic, context: TaskContext) -> None:
        self._policy = policy
        self._logic = logic
        self._context = context
        self._tries: dict[float | None, int] = {}  # of a timer by its time, or of the tuple that is next
        self.until = 0.0  # the task stands still so long
        self.skipped = self.retried = 0  # since they were last told
        self._letters = letters
        self._movable: Movable | None = None  # where the letters are open
        self._told = False

    def run(self, values: Sequence[Any], now: float) -> Done:
        """Let an operator process tuples, or a sink take them."""
        made: list[Any] = []
        self.until = 0.0
        for place, value in enumerate(values):
            try:
                made += self._apply(value)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # sys.exit included
                if self._again(None, now):
                    return Done(made, place, self.until)
                self.give_up("write" if isinstance(self._logic, Sink) else "process", value, error)
            else:
                if self._tries:
                    self._tries.pop(None, None)
        return Done(made, len(values))

    def fire(self, when: float, now: float) -> Done:
        """Run the timer that was due at a time."""
        assert isinstance(self._logic, Operator), "sinks have no timers"
        self.until = 0.0
        try:
            given = self._logic.on_timer(when)
            made = [] if given is None else list(given)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self._again(when, now):
                return Done([], 0, self.until)
            self.give_up("on_timer", when, error)
            return Done([], 1)
        self._tries.pop(when, None)
        return Done(made, 1)

    def poll(self, now: float, limit: int) -> Any:
        """Ask a source for tuples: nothing where it is to be asked again later. There is no tuple to skip."""
        assert isinstance(self._logic, Source)
        self.until = 0.0
        try:
            found = self._logic.poll(now, limit)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self._again(None, now):
                return []
            raise UserError("", "poll") from error
        self._tries.pop(None, None)
        return found

    def take_counts(self) -> tuple[int, int]:
        """Return how many tuples were skipped, and how often one was to be tried again, since the last call."""
        counts = self.skipped, self.retried
        self.skipped = self.retried = 0
        return counts

    def open(self) -> None:
        """Get ready to skip tuples: also a task that has ended may have some to publish."""
        if self._letters is not None:
            call(self._letters.open, self._context)
            self._movable = Movable(self._letters)

    def flush(self, now: float) -> None:
        """Let the sink of dead letters finish a file where it is long enough."""
        if self._letters is not None and self._movable is not None:
            call(self._letters.flush, now)

    def prepare(self) -> Sequence[tuple[str, str]]:
        """Finish the files of dead letters: return the name of each, and the one it is to get."""
        if self._letters is None or self._movable is None:
            return ()
        return call(self._letters.prepare)  # type: ignore[no-any-return]

    def save(self) -> bytes:
        """Return the state of the sink of dead letters, encoded; to be called after `prepare`."""
        return b"" if self._movable is None else self._movable.save()

    def load(self, saved: bytes) -> None:
        """Go on with a state that was saved elsewhere, or before."""
        if self._movable is not None and saved:
            self._movable.load(saved)

    def close(self) -> None:
        """Drop what was not prepared: those tuples come again."""
        if self._letters is not None and self._movable is not None:
            self._movable = None
            call(self._letters.close)

    def _apply(self, value: Any) -> list[Any]:
        if isinstance(value, Unreadable):
            raise value.error
        if isinstance(self._logic, Sink):
            self._logic.write([value])
            return []
        assert isinstance(self._logic, Operator), "sources take no tuples"
        given = self._logic.process(value)
        return [] if given is None else list(given)

    def _again(self, key: float | None, now: float) -> bool:
        """Say whether a call is to be tried again, and keep in mind when."""
        policy, tries = self._policy, self._tries.pop(key, 0)
        if not isinstance(policy, Retry) or tries >= policy.times:
            return False
        self._tries[key] = tries + 1
        self.retried += 1
        self.until = now + policy.delay(tries)
        return True

    def give_up(self, name: str, value: Any, error: BaseException, where: str = "") -> None:
        """Skip a tuple, or end the run: no retry is left, or, of one that cannot be sent, would be any use."""
        policy = self._policy.then if isinstance(self._policy, Retry) else self._policy
        if isinstance(value, Unreadable):
            name, value = "gives", value.value
        if not isinstance(policy, Skip) or self._letters is None:
            raise UserError(shown(value), where) from error
        line = _line(error)
        letter = DeadLetter(
            component=self._context.component,
            task=self._context.task,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            call=name,
            tuple=_writable(value),
            error=line,
            traceback="".join(traceback.format_exception(error)),
        )
        call(self._letters.write, [letter], about=shown(value))
        self.skipped += 1
        if not self._told:
            self._told = True
            _LOG.warning("skips tuples that it raises on, to %s; the first: %s", policy.folder, line)


def _line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _writable(value: Any) -> Any:
    """Return a tuple as JSON can hold it, or else what Python shows of it."""
    try:
        msgspec.json.encode(value)
    except Exception:  # an author's object may refuse in any way
        return shown(value, None)
    return value
