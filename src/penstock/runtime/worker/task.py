"""One task: its logic, its inbox and out-queues, the limits of a source, why it is suspended, and its counters.

A task processes the items of its inbox in order. It pauses while its out-queues are full, so that back-pressure reaches
the sources. It uses no sockets and no clock except that of its context.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import length_hint
from typing import Any, NamedTuple

from penstock.api.contracts import Operator, Sink, Source, TaskContext, Timed, is_time
from penstock.api.logic import FilterOperator, Logic, MapOperator
from penstock.model.errors import FileProblem, InvalidInput, nearest, shown
from penstock.model.topology import Component, Kind
from penstock.runtime.protocol.frames import END, PROGRESS, MarkerBody, MovingTask, Pending, Waiting
from penstock.runtime.protocol.transport import LARGEST
from penstock.runtime.protocol.worker_messages import StatePart, TaskReport
from penstock.runtime.storage.checkpoints import TaskState
from penstock.runtime.worker.error_policy import ErrorGuard
from penstock.runtime.worker.input import Inbox
from penstock.runtime.worker.keyed_runner import KeyedRunner
from penstock.runtime.worker.keyed_state import KeyedState
from penstock.runtime.worker.logic import LogicState, UserError, call_author, list_results
from penstock.runtime.worker.output import Batch, OutQueue, SampledTuple
from penstock.runtime.worker.service_time import BatchSize, MeasuredServiceTime
from penstock.runtime.worker.token_bucket import TokenBucket

TURN_S = 0.01  # after which a worker reads its connections; a call in progress is completed first
MIN_WAIT_S = 50e-6  # before another poll of a source that had no tuples and is due at once
PROGRESS_S = 0.05  # interval between the progress markers of a source
CHUNK = 1024  # maximum tuples of a task per turn
PORTIONS = 4  # number of steps in which an out-queue is filled
RESPONSE_TIMES = 256  # maximum kept per report
LARGEST_STATE = LARGEST // 2  # bytes; the contents of the out-queues share the frame
SMALL_STATE = LARGEST_STATE // 4  # bytes; a state that was not larger recently is assumed not to be too large now

Process = Callable[[Iterator[Any]], list[Any]]


class AuthorCode(NamedTuple):
    """The author's code for one task."""

    logic: Logic
    guard: ErrorGuard | None = None  # None: an exception of the logic ends the run
    outputs: Sequence[str] = ()  # names, if there are several


class SourceLimits(NamedTuple):
    """The limits of a source."""

    in_flight: int = 0  # tuples not processed to the end; 0: no limit
    rates: Mapping[str, float] = {}  # component -> tuples per second of all its tasks, if limited; may change


class PolledTuples(NamedTuple):
    """The tuples of one poll of a source."""

    values: list[Any]
    dues: list[float]
    ready: list[float]  # the earliest time to emit each: its due time, or when the rate limit allows it


class Task:
    """One task, independent of its execution."""

    def __init__(
        self,
        number: int,
        component: Component,
        context: TaskContext,
        code: AuthorCode,
        inbox: Inbox,
        queues: Sequence[OutQueue],
        slot: str,
        limits: SourceLimits,
    ) -> None:
        self.number = number
        self.component = component
        self.context = context
        self.logic, self.guard, self._outputs = code
        self.inbox = inbox
        self.queues = list(queues)
        self.slot = slot
        self.is_source = component.kind is Kind.SOURCE
        self.publishes = isinstance(self.logic, Sink) and self.logic.exactly_once  # even after its last tuple
        self.ended = False  # it has emitted END
        self.closed = False  # its logic is closed, or was never opened
        self.pending: list[tuple[int, Pending]] = []  # files to publish, with the first checkpoint that includes them
        self._process = batch_process(self.logic) if isinstance(self.logic, Operator) else None
        self.keyed = self.logic if isinstance(self.logic, KeyedRunner) else None
        self._state: LogicState | KeyedState | None = None  # once the logic is open
        self._state_size = -1  # bytes when last saved; below 0: never saved
        # Reasons for its suspension
        self.saving = False  # until its state is saved for a checkpoint
        self.preparing = -1  # the move for which it is suspended, so that the answer remains valid
        self.leaving = -1  # the move that takes it elsewhere
        self.suspended_at = 0.0  # for a move
        self._saved = b""  # the state of its logic, before it leaves
        # A source
        self.finishing = False  # it emits no more
        self.next_poll = 0.0
        self._limits = limits
        self._bucket: TokenBucket | None = None
        self._progressed = 0  # number of its tuples processed to the end
        self._marked = 0  # number of its tuples before the last progress marker
        self._progress_due = 0.0
        # Counters
        self.counted = 0  # tuples that it emitted (a source) or processed
        self.processed = self.emitted = 0  # since the last report, as the following
        self.busy = self.blocked = 0.0
        self.since = context.now()
        self._blocked_since: float | None = None
        self._response_times: list[float] = []
        self.service_time = MeasuredServiceTime()
        self.batch_size = BatchSize(CHUNK, batched=self._process is None)

    @property
    def name(self) -> str:
        """Its name in plans and output."""
        return self.context.name

    def open(self, ended: bool) -> None:
        """Open the logic; that of a task that has ended elsewhere stays closed, unless it has files to publish."""
        self.ended = ended
        self.closed = ended and not self.publishes
        if self.guard is not None:
            self.guard.open()
        if not self.closed:
            call_author(self.logic.open, self.context)
            self._state = LogicState(self.logic) if self.keyed is None else self.keyed.state

    def close_logic(self) -> None:
        """Close the logic; timers that are not due yet are dropped."""
        self.context.timers.clear()
        self.closed = True
        call_author(self.logic.close)

    def close(self) -> None:
        """Close everything that is open."""
        if self.guard is not None:
            self.guard.close()
        if not self.closed and self._state is not None:
            self.close_logic()

    # Running

    @property
    def suspended(self) -> bool:
        """Whether it must not run, because it will be moved or saved."""
        return self.saving or self.preparing >= 0 or self.leaving >= 0

    def full(self) -> bool:
        """Whether it is blocked until its out-queues have room."""
        for queue in self.queues:  # noqa: SIM110  called for every batch, and `any` takes twice the time
            if queue.full:
                return True
        return False

    def portion(self) -> int:
        """Return how many tuples it may process at once without exceeding the limit of an out-queue by much."""
        least = CHUNK * PORTIONS
        for queue in self.queues:
            if queue.limit < least:
                least = queue.limit
        return least // PORTIONS

    def run(self, values: list[Any]) -> list[Any]:
        """Process tuples; return the results. A task with a guard uses that instead."""
        if self._process is not None:
            return run_batch(self._process, values)
        if isinstance(self.logic, Sink):
            write_batch(self.logic, values)
            return []
        return values

    def put(self, values: list[Any], sampled: Sequence[SampledTuple] = ()) -> None:
        """Emit tuples: put them into the out-queues."""
        self.emitted += len(values)
        if self._outputs:
            values, sampled = self._with_outputs(values, sampled)
        for queue in self.queues:
            if queue.output is None:
                queue.put(values, sampled)
            else:
                queue.put(*_of_output(values, sampled, queue.output))

    def put_marker(self, marker: MarkerBody) -> None:
        """Put a marker into every out-queue."""
        for queue in self.queues:
            queue.put_marker(marker)

    def pump(self) -> None:
        """Send all sendable tuples of the out-queues."""
        for queue in self.queues:
            queue.pump()

    def count(self, count: int, arrived: float, now: float) -> None:
        """Count tuples that it has processed together; `arrived` is their time of arrival."""
        self.processed += count
        self.counted += count
        self.service_time.add(count, arrived, now)

    def count_emitted(self, count: int) -> None:
        """Count tuples that a source emits."""
        self.processed += count
        self.counted += count

    def add_busy(self, seconds: float) -> None:
        """Add to its busy time."""
        self.busy += seconds

    def finish(self) -> None:
        """Emit the last tuples of an operator, then END: its input has ended."""
        last = list_results(self.logic.finish) if isinstance(self.logic, Operator) else []
        if last:
            self.put(last)
        self.put_marker(MarkerBody(END))
        self.ended = True
        if not self.publishes:  # otherwise it is closed when its last files have been published
            self.close_logic()

    def flush(self, now: float) -> None:
        """Let a sink, and the dead-letter sink, finish a file that has reached its size."""
        if isinstance(self.logic, Sink) and not self.ended:
            call_author(self.logic.flush, now)
        if self.guard is not None:
            self.guard.flush(now)

    def _with_outputs(
        self, values: list[Any], sampled: Sequence[SampledTuple]
    ) -> tuple[list[Any], Sequence[SampledTuple]]:
        """Return the tuples that name one of the outputs; the error policy decides on the others."""
        problems = [self._output_problem(pair) for pair in values]
        if not any(problems):
            return values, sampled
        for pair, problem in zip(values, problems, strict=True):
            if problem:
                error = InvalidInput(f"{self.component.name}.outputs", problem)
                if self.guard is None:
                    raise error
                self.guard.give_up("outputs", pair, error)
        places = {place: new for new, place in enumerate(n for n, problem in enumerate(problems) if not problem)}
        kept = [one._replace(place=places[one.place]) for one in sampled if one.place in places]
        return [values[place] for place in places], kept

    def _output_problem(self, pair: Any) -> str:
        try:
            name, _ = pair
        except (TypeError, ValueError):
            return f"expected pairs (output, value), got {shown(pair)}"
        if name in self._outputs:
            return ""
        return f"there is no output {name!r}, got {shown(pair)}; {nearest(name, self._outputs)}"

    # Timers

    @property
    def next_timer(self) -> float:
        """The time of the next timer that can run; infinite while there is no room for its results."""
        timers = self.context.timers
        if not timers or self.ended or self.suspended or self.full():
            return math.inf
        return timers[0] if self.guard is None else max(timers[0], self.guard.retry_at)

    def fire_timers(self, now: float) -> None:
        """Run the timers that are due, while there is room for their results."""
        clock = self.context.now
        deadline = clock() + TURN_S
        for _ in range(len(self.context.timers)):  # timers that these set wait for the next call
            if self.next_timer > now or clock() >= deadline:
                return
            emitted = self._fire(heapq.heappop(self.context.timers), now)
            if emitted:
                self.put(emitted)

    def _fire(self, when: float, now: float) -> list[Any]:
        """Run the timer that was due at a time; set it again for a retry."""
        if self.guard is not None:
            attempt = self.guard.fire(when, now)
            if attempt.retry_at is not None:
                heapq.heappush(self.context.timers, when)
            return attempt.emitted
        return list_results(self.logic.on_timer, when) if isinstance(self.logic, Operator) else []

    # Sources

    def poll(self, now: float, limit: int, *, timed: bool = False, polled: int = 0) -> PolledTuples | None:
        """Poll a source for the tuples that are due, within its limits; None: no tuples now.

        timed: keep calls short. polled: number of tuples from earlier calls that are not emitted yet.
        """
        bucket, room = self._bucket_at(now), self.room(polled)
        if self.guard is not None and self.guard.retry_at > 0.0:  # an earlier wake-up does not advance the retry
            self.next_poll = max(self.next_poll, self.guard.retry_at)
        blocked = room <= 0 or self.full()
        if blocked or now < self.next_poll:
            self.note_blocked(now, blocked)
            return None
        self.note_blocked(now, False)
        most = min(limit, room)
        if timed:
            most = min(most, self.batch_size.count, self.portion())
        if bucket is not None:
            most = min(most, bucket.available(now))
        if most <= 0:
            return None
        self.next_poll = 0.0
        values, given = self._poll_logic(now, most)
        if not values:
            return None
        dues = [now] * len(values) if given is None else list(given)
        if bucket is None:
            return PolledTuples(values, dues, dues)
        return PolledTuples(values, dues, [max(both) for both in zip(dues, bucket.take(len(values), now), strict=True)])

    def _poll_logic(self, now: float, limit: int) -> tuple[list[Any], Sequence[float] | None]:
        """Return the tuples of a source and their due times; after the last tuples, note that it is finishing."""
        assert isinstance(self.logic, Source)
        found = call_author(self.logic.poll, now, limit) if self.guard is None else self.guard.poll(now, limit)
        if found is None:
            self.finishing = True
            return [], None
        given, dues = (found.values, found.dues) if isinstance(found, Timed) else (found, None)
        plain = type(given) is list or type(given) is tuple  # otherwise an author's code runs, and may raise
        values: list[Any] = list(given) if plain else call_author(list, given, about=shown(given), name="poll")
        if dues is not None:
            _check_dues(len(values), dues)
        if not values:
            self.next_poll = self._next_due(now)
        return values, dues

    def _next_due(self, now: float) -> float:
        """Return when to poll a source again after it had no tuples."""
        if self.guard is not None and self.guard.retry_at > 0.0:
            return self.guard.retry_at
        due = call_author(self.logic.next_due, now)  # type: ignore[union-attr]
        if not is_time(due):
            raise InvalidInput("next_due", f"expected a time in seconds, got {shown(due)}; add to now")
        return due if due > now else now + MIN_WAIT_S

    def room(self, polled: int = 0) -> int:
        """Return how many more tuples the in-flight limit lets a source emit, in addition to those already polled."""
        limit = self._limits.in_flight
        return (limit - (self.counted - self._progressed) if limit else CHUNK) - polled

    def next_poll_allowed(self) -> float:
        """Return when to poll a source next: when it has tuples and its rate limit allows one; 0: at once."""
        bucket = self._bucket_at(self.context.now()) if self._limits.rates else None
        return max(self.next_poll, 0.0 if bucket is None else bucket.next_token)

    def _bucket_at(self, now: float) -> TokenBucket | None:
        """Return the bucket that enforces the current rate limit of a source; None: no limit."""
        limit = self._limits.rates.get(self.component.name)
        if limit is None:
            self._bucket = None
            return None
        rate = limit / self.component.parallelism
        if self._bucket is None:
            self._bucket = TokenBucket(rate, now)
        elif self._bucket.rate != rate:
            self._bucket.set_rate(rate, now)
        return self._bucket

    def poll_soon(self) -> None:
        """Poll a source in the next turn."""
        self.next_poll = 0.0

    def drain(self) -> None:
        """Let a source end."""
        self.finishing = self.is_source

    def set_progress(self, value: int) -> None:
        """Note that the first `value` tuples of a source are processed to the end."""
        self._progressed = max(self._progressed, value)

    def mark_progress(self, now: float) -> None:
        """Emit a progress marker with a source's tuple count when due, so that sinks report the end of these tuples."""
        limit, ahead = self._limits.in_flight, self.counted - self._marked
        if limit and ahead and (now >= self._progress_due or ahead >= max(1, limit // 8)):
            self._marked = self.counted
            self._progress_due = now + PROGRESS_S
            self.put_marker(MarkerBody(PROGRESS, self.counted, self.number))

    def next_progress(self) -> float:
        """Return when `mark_progress` is due."""
        return self._progress_due if self._limits.in_flight and self.counted > self._marked else math.inf

    # Checkpoints

    def prepare_files(self) -> str:
        """Finish the files of a sink, and of dead letters; return a disk problem, which does not end the run."""
        try:
            if isinstance(self.logic, Sink) and not self.closed:
                self.pending += list_results(self.logic.prepare, each=_publishable)
            if self.guard is not None:
                self.pending += map(_publishable, self.guard.prepare())
        except UserError as error:
            if isinstance(error.__cause__, FileProblem | OSError):
                return str(error.__cause__)
            raise
        return ""

    def start_saving(self) -> None:
        """Suspend it until its state is saved for a checkpoint."""
        self.saving = True

    def resume_from_saving(self) -> None:
        """Resume behind the barriers of a checkpoint."""
        self.saving = False
        self.inbox.unblock()

    @property
    def unsavable(self) -> str:
        """Why its state cannot be saved; a source that cannot rewind has none."""
        return "" if self.closed or self._state is None or self.is_source else self._state.problem()

    def state_pieces(self, checkpoint: int) -> Iterator[bytes | memoryview]:
        """Yield the encoded state of its logic for a checkpoint; nothing if that is closed."""
        if not self.closed and self._state is not None:
            yield from self._state.pieces(checkpoint)

    def earlier_parts(self) -> tuple[StatePart, ...]:
        """Return the parts of a keyed state that are in earlier checkpoints, once its pieces are encoded."""
        return () if self.keyed is None or self.closed else self.keyed.state.earlier()

    def part_written(self, part: StatePart) -> None:
        """Note where a checkpoint has its part of a keyed state."""
        if self.keyed is not None:
            self.keyed.state.written(part)

    def saved_state(self, size: int) -> TaskState:
        """Return the runtime's part of its state at a checkpoint.

        Tuples in the out-queues are not part of it: the barrier follows them, so their receivers
        process them before they save.
        """
        now, self._state_size = self.context.now(), size if self.keyed is None else self.keyed.state.size
        return TaskState(
            self.ended,
            self.counted,
            self._timers(now),
            self.inbox.ended_channels(),
            tuple(queue.turn for queue in self.queues),
            size,
            b"" if self.guard is None else self.guard.save(),
        )

    def _timers(self, now: float) -> tuple[float, ...]:
        """Return the seconds to its timers; those of keys are in their state."""
        return () if self.keyed is not None else tuple(when - now for when in self.context.timers)

    def restore(self, state: TaskState, logic: bytes, parts: Sequence[tuple[StatePart, bytes]] = ()) -> None:
        """Restore the state of a checkpoint; all of its earlier output has been processed to the end."""
        now = self.context.now()
        if self.keyed is None:
            self._load_logic(logic, state.letters, [now + after for after in state.timers])
        else:
            self._load_keyed(partial(self.keyed.state.restore, parts), state.letters)
        self.counted = self._progressed = self._marked = state.counted
        self.inbox.end_channels(state.ended_inputs)
        for queue, turn in zip(self.queues, state.turns, strict=True):
            queue.turn = turn

    def assign_files(self, checkpoint: int) -> tuple[Pending, ...]:
        """Assign the files that are in no checkpoint yet to one; return all files to publish."""
        self.pending = [(first or checkpoint, pair) for first, pair in self.pending]
        return tuple(pair for _, pair in self.pending)

    def completed(self, checkpoint: int) -> None:
        """Forget the files that a complete checkpoint publishes; the next one has the changes since it."""
        if self.keyed is not None:
            self.keyed.state.completed(checkpoint)
        self.pending = [(first, pair) for first, pair in self.pending if first == 0 or first > checkpoint]

    # Moves

    def prepare(self, move: int, now: float) -> str:
        """Return why it cannot move; empty if it can.

        If the answer could become wrong, the task saves its state and is suspended until it is moved or released. This
        applies if its state may be too large for a frame or may grow from none, or if writing its files may fail. A
        state that was too large at the last checkpoint is not saved again.
        """
        if self.closed or self._state is None:  # it has no open logic to move
            return ""
        problem = self._state.problem() or _too_large(self._state_size, "took", " when it was last saved")
        writes = isinstance(self.logic, Sink) or self.guard is not None
        if not problem and (writes or self._state.guessed or not 0 <= self._state_size <= SMALL_STATE):
            problem = self._save()
            self.preparing, self.suspended_at = move, now
        if problem:
            self.release()
        return problem

    def release(self) -> None:
        """Resume: the move was aborted, or stays within the worker."""
        self.preparing, self._saved = -1, b""

    def leave(self, move: int, now: float) -> None:
        """Suspend it for a move to another worker."""
        self.leaving = move
        if self.preparing < 0:
            self.suspended_at = now

    def change_slot(self, slot: str) -> None:
        """Change its slot within this worker."""
        self.slot = slot

    def save_for_move(self) -> str:
        """Save the state for its move, unless it is saved already; return the reason for a failure."""
        return self._save() if self.preparing < 0 else ""

    def _save(self) -> str:
        problem = self.prepare_files()
        if problem:
            return problem
        self._saved = b"" if self.closed or self._state is None else self._state.save()
        problem = _too_large(len(self._saved), "takes")
        if not problem:  # else only a checkpoint notes the size: without one, a state that shrinks would never move
            self._state_size = len(self._saved)
        return problem

    def departing_state(
        self, epoch: int, slot: str, now: float, encode: Callable[[OutQueue, Batch], bytes]
    ) -> MovingTask:
        """Return everything that moves with it to another worker, after `save_for_move`."""
        return MovingTask(
            epoch,
            self.leaving,
            self.number,
            slot,
            self.suspended_at,
            self._saved,
            self._timers(now),
            self.ended,
            self.counted,
            self._progressed,
            self.inbox.save(),
            tuple(queue.save(encode) for queue in self.queues),
            tuple(pair for _, pair in self.pending),
            b"" if self.guard is None else self.guard.save(),
        )

    def clear(self) -> None:
        """Discard everything that has moved with it."""
        self.inbox.clear()
        self.queues = []

    def load(self, state: MovingTask, now: float, decode: Callable[[OutQueue, Waiting], Batch]) -> None:
        """Restore the state that it had on another worker."""
        if self.keyed is None:
            self._load_logic(state.logic, state.letters, [now + after for after in state.timers])
        else:
            self._state_size = len(state.logic)
            self._load_keyed(partial(self.keyed.state.load, state.logic), state.letters)
        self.pending = [(0, (name, final)) for name, final in state.pending]
        self.counted, self._progressed = state.counted, state.progressed
        self.inbox.load(state.inputs)
        for queue, saved in zip(self.queues, state.outputs, strict=True):
            queue.load(saved, decode)

    def _load_logic(self, logic: bytes, dead_letters: bytes, timers: list[float]) -> None:
        self._state_size = len(logic)
        if not self.closed and self._state is not None:
            self._state.load(logic)
        if self.guard is not None:
            self.guard.load(dead_letters)
        self.context.timers = timers

    def _load_keyed(self, load: Callable[[], None], dead_letters: bytes) -> None:
        assert self.keyed is not None
        if not self.closed:
            call_author(load, name="restore")
            self.context.timers.clear()
            self.keyed.resume()
        if self.guard is not None:
            self.guard.load(dead_letters)

    # Reports

    def note_blocked(self, now: float, blocked: bool) -> None:
        """Measure the time in which it is blocked for lack of credit."""
        if blocked:
            if self._blocked_since is None:
                self._blocked_since = now
        elif self._blocked_since is not None:
            self.blocked += max(0.0, now - self._blocked_since)
            self._blocked_since = None

    def note_response_time(self, seconds: float) -> None:
        """Keep the time of a sampled tuple from arrival to end of processing, up to the limit per report."""
        if len(self._response_times) < RESPONSE_TIMES:
            self._response_times.append(seconds)

    def report(self, now: float) -> TaskReport:
        """Return the counters since the last report, and reset them."""
        if self._blocked_since is not None:
            self.blocked += now - self._blocked_since
            self._blocked_since = now
        waiting_out = sum(queue.backlog for queue in self.queues)
        figures = (self.processed, self.emitted, self.busy, self.blocked, self.inbox.queued, waiting_out)
        errors = (0, 0) if self.guard is None else self.guard.take_counts()
        report = TaskReport(self.number, *figures, tuple(self._response_times), *errors)
        self.processed = self.emitted = 0
        self.busy = self.blocked = 0.0
        self._response_times.clear()
        return report


def _too_large(size: int, takes: str, when: str = "") -> str:
    """Return why a state of a size cannot move; empty if it can."""
    if size <= LARGEST_STATE:
        return ""
    taken, most = (f"{count / 2**20:.1f} MiB" for count in (size, LARGEST_STATE))
    return f"its state {takes} {taken}{when}, and at most {most} can move; use more tasks in a new run"


def batch_process(operator: Operator[Any, Any]) -> Process:
    """Return a function that runs an operator over an iterator of tuples and returns its results as a list."""
    if type(operator) is MapOperator:
        function = operator.function
        return lambda values: [function(value) for value in values]
    if type(operator) is FilterOperator:
        predicate = operator.predicate
        return lambda values: [value for value in values if predicate(value)]
    if isinstance(operator, KeyedRunner):
        return operator.run
    process = operator.process

    def run(values: Iterator[Any]) -> list[Any]:
        emitted: list[Any] = []
        extend = emitted.extend
        for value in values:
            result = process(value)
            if result is not None:
                extend(result)
        return emitted

    return run


def run_batch(process: Process, values: list[Any]) -> list[Any]:
    """Run a batch; an exception becomes a `UserError` that shows the tuple it was raised on."""
    iterator = iter(values)
    try:
        return process(iterator)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit is an author's error, too
        at = len(values) - length_hint(iterator) - 1
        raise UserError(shown(values[max(at, 0)])) from error


def write_batch(sink: Sink[Any], values: list[Any]) -> None:
    """Pass a batch to a sink; an exception becomes a `UserError` that shows its first tuple."""
    try:
        sink.write(values)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        first = shown(values[0])
        raise UserError(first if len(values) == 1 else f"{first} or one of the {len(values) - 1} after it") from error


def _check_dues(count: int, dues: Sequence[float]) -> None:
    """Reject due times that do not match the values of a source."""
    try:
        given, fits = len(dues), math.isfinite(sum(dues))
    except TypeError:
        given, fits = count, False
    if given != count:
        raise InvalidInput("poll", f"expected a due for each of {count} values, got {given}")
    if not fits:
        raise InvalidInput("poll", f"expected times in seconds as dues, got {shown(dues)}")


def _publishable(pair: tuple[str, str]) -> tuple[int, Pending]:
    """Return the temporary and final name of a file that is in no checkpoint yet."""
    name, final = pair
    return 0, (str(name), str(final))


def _of_output(values: list[Any], sampled: Sequence[SampledTuple], output: str) -> tuple[list[Any], list[SampledTuple]]:
    """Return the tuples of one named output."""
    kept: list[Any] = []
    at = {one.place: one for one in sampled}
    marks: list[SampledTuple] = []
    for place, (name, value) in enumerate(values):
        if name == output:
            if place in at:
                marks.append(at[place]._replace(place=len(kept)))
            kept.append(value)
    return kept, marks
