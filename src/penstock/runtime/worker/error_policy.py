"""Runs an author's code under an error policy, which decides call by call what happens when it raises.

Components without a policy do not use this module. A guard runs tuples one by one and reports its progress: to the end,
or to a tuple whose retry is due later. It never waits itself.

Skipped tuples go to a dead-letter sink of the task: its finished files are published with the task's at a checkpoint,
and its state joins the task's, so that a dead letter is written exactly once, like any output.
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
from penstock.model.errors import shown
from penstock.runtime.protocol.codec import UnreadableTuple
from penstock.runtime.worker.keyed_runner import KeyedRunner
from penstock.runtime.worker.logic import LogicState, UserError, call_author

_LOG = logging.getLogger(__name__)


class Attempt(NamedTuple):
    """The progress of a guard in a batch."""

    emitted: list[Any]  # results of the completed tuples
    done: int  # number of completed tuples
    retry_at: float | None = None  # time of the next tuple's retry; None: all tuples are completed


class ErrorGuard:
    """Runs the calls of one task under its component's policy."""

    def __init__(self, policy: ErrorPolicy, dead_letters: Sink[Any] | None, logic: Logic, context: TaskContext) -> None:
        self._policy = policy
        self._logic = logic
        self._context = context
        self._attempts: dict[float | None, int] = {}  # of a timer, by its time; None: of the next tuple
        self.retry_at = 0.0  # the task is suspended until then
        self.skipped = self.retried = 0  # since the last report
        self._dead_letters = dead_letters
        self._state: LogicState | None = None  # of the dead-letter sink, while that is open
        self._warned = False

    def run(self, values: Sequence[Any], now: float) -> Attempt:
        """Call an operator or a sink with tuples."""
        emitted: list[Any] = []
        self.retry_at = 0.0
        for place, value in enumerate(values):
            try:
                emitted += self._apply(value)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # including sys.exit
                if self._retries(None, now):
                    return Attempt(emitted, place, self.retry_at)
                self.give_up("write" if isinstance(self._logic, Sink) else "process", value, error)
            else:
                if self._attempts:
                    self._attempts.pop(None, None)
        return Attempt(emitted, len(values))

    def fire(self, when: float, now: float) -> Attempt:
        """Run the timer that was due at a time."""
        assert isinstance(self._logic, Operator), "sinks have no timers"
        self.retry_at = 0.0
        try:
            result = self._logic.on_timer(when)
            emitted = [] if result is None else list(result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self._retries(when, now):
                return Attempt([], 0, self.retry_at)
            self.give_up("on_timer", when, error)
            if isinstance(self._logic, KeyedRunner):
                self._logic.skip_timer()
            return Attempt([], 1)
        self._attempts.pop(when, None)
        return Attempt(emitted, 1)

    def poll(self, now: float, limit: int) -> Any:
        """Poll a source; return no tuples if the poll will be retried later. There is no tuple to skip."""
        assert isinstance(self._logic, Source)
        self.retry_at = 0.0
        try:
            polled = self._logic.poll(now, limit)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self._retries(None, now):
                return []
            raise UserError("", "poll") from error
        self._attempts.pop(None, None)
        return polled

    def take_counts(self) -> tuple[int, int]:
        """Return the numbers of skipped tuples and of retries since the last call."""
        counts = self.skipped, self.retried
        self.skipped = self.retried = 0
        return counts

    def open(self) -> None:
        """Open the dead-letter sink, also for a task that has ended: it may have dead letters to publish."""
        if self._dead_letters is not None:
            call_author(self._dead_letters.open, self._context)
            self._state = LogicState(self._dead_letters)

    def flush(self, now: float) -> None:
        """Let the dead-letter sink finish a file that has reached its size."""
        if self._dead_letters is not None and self._state is not None:
            call_author(self._dead_letters.flush, now)

    def prepare(self) -> Sequence[tuple[str, str]]:
        """Finish the files of dead letters: return the temporary and the final name of each."""
        if self._dead_letters is None or self._state is None:
            return ()
        return call_author(self._dead_letters.prepare)  # type: ignore[no-any-return]

    def save(self) -> bytes:
        """Return the encoded state of the dead-letter sink; to be called after `prepare`."""
        return b"" if self._state is None else self._state.save()

    def load(self, saved: bytes) -> None:
        """Restore a saved state of the dead-letter sink."""
        if self._state is not None and saved:
            self._state.load(saved)

    def close(self) -> None:
        """Discard the dead letters that were not prepared: their tuples will be processed again."""
        if self._dead_letters is not None and self._state is not None:
            self._state = None
            call_author(self._dead_letters.close)

    def _apply(self, value: Any) -> list[Any]:
        if isinstance(value, UnreadableTuple):
            raise value.error
        if isinstance(self._logic, Sink):
            self._logic.write([value])
            return []
        assert isinstance(self._logic, Operator), "sources take no tuples"
        emitted = self._logic.process(value)
        return [] if emitted is None else list(emitted)

    def _retries(self, key: float | None, now: float) -> bool:
        """Return whether a call will be retried, and set the time."""
        policy, attempts = self._policy, self._attempts.pop(key, 0)
        if not isinstance(policy, Retry) or attempts >= policy.times:
            return False
        self._attempts[key] = attempts + 1
        self.retried += 1
        self.retry_at = now + policy.delay(attempts)
        return True

    def give_up(self, name: str, value: Any, error: BaseException, where: str = "") -> None:
        """Skip a tuple or end the run: no retry is left, or retries are useless because the tuple cannot be sent."""
        policy = self._policy.then if isinstance(self._policy, Retry) else self._policy
        if isinstance(value, UnreadableTuple):
            name, value = "emits", value.value
        if not isinstance(policy, Skip) or self._dead_letters is None:
            raise UserError(shown(value), where) from error
        line = traceback.format_exception_only(error)[-1].strip()
        letter = DeadLetter(
            component=self._context.component,
            task=self._context.task,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            call=name,
            tuple=_writable(value),
            error=line,
            traceback="".join(traceback.format_exception(error)),
        )
        call_author(self._dead_letters.write, [letter], about=shown(value))
        self.skipped += 1
        if not self._warned:
            self._warned = True
            _LOG.warning("skips tuples that it raises on, to %s; the first: %s", policy.folder, line)


def _writable(value: Any) -> Any:
    """Return a tuple in JSON types, or its `repr` if that is impossible."""
    try:
        msgspec.json.encode(value)
    except Exception:  # an author's object may raise anything
        return shown(value, None)
    return value
