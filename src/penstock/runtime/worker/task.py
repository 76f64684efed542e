"""One task: its logic, its inbox and out-queues, and what it counts.

A task processes what has come to its inbox, in order. It stops while its out-queues are full, so that pressure works
back to the sources. It knows no sockets and reads no clock but the one it is given.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.api.contracts import Operator, Sink, Source, TaskContext, Timed, is_time
from penstock.api.logic import Logic
from penstock.model.errors import FileProblem, InvalidInput, nearest
from penstock.model.topology import Component, Kind
from penstock.runtime.protocol.frames import END, InState, Pending
from penstock.runtime.protocol.transport import LARGEST
from penstock.runtime.protocol.worker_messages import TaskReport
from penstock.runtime.storage.checkpoints import TaskState
from penstock.runtime.worker.error_policy import Guard
from penstock.runtime.worker.input import Delivery, InChannel
from penstock.runtime.worker.lane import MarkerOf, Sampled
from penstock.runtime.worker.logic import Movable, UserError, batch_process, call, listed, run_batch, shown, write
from penstock.runtime.worker.output import OutQueue
from penstock.runtime.worker.service_time import Pace, Stride

SOONEST_S = 50e-6  # after which a source that had nothing, and says that it is due, is asked again
CHUNK = 1024  # tuples of a task, or of a source, per turn
STRIDE = 64  # tuples of an operator between two looks at the clock
PORTIONS = 4  # in which an out-queue is filled
SPENT = 256  # sampled times a report
LARGEST_STATE = LARGEST // 2  # bytes; what waits in the out-queues is in the same frame
SURELY_SMALL = LARGEST_STATE // 4  # bytes that a state had lately which is not too large now either


class Task:
    """One task, wherever it runs."""

    def __init__(
        self,
        number: int,
        component: Component,
        context: TaskContext,
        logic: Logic,
        outputs: Sequence[str] = (),
        guard: Guard | None = None,
    ) -> None:
        self.number = number
        self.component = component
        self.context = context
        self.logic = logic
        self.outputs = outputs
        self.guard = guard  # None: an exception of its logic ends the run
        self.is_source = component.kind is Kind.SOURCE
        self.publishes = isinstance(logic, Sink) and logic.exactly_once  # at a checkpoint, after the last tuple too
        self.slot = ""
        self.inputs: dict[tuple[int, int], InChannel] = {}
        self.inbox: deque[Delivery | tuple[InChannel, MarkerOf]] = deque()
        self.aside: deque[Delivery | tuple[InChannel, MarkerOf]] = deque()  # what came after a barrier
        self.queued = 0  # tuples in the inbox, and aside
        self.active = 0  # inputs that some of these came on
        self.queues: list[OutQueue] = []
        self.open_channels = 0  # inputs that have not ended
        self.ended = False  # END sent on
        self.closed = False  # its logic is, or was never opened
        self.saving = False  # it stands still until its state is saved
        self.pending: list[tuple[int, Pending]] = []  # files to be published, and the checkpoint that has them first
        self.finishing = False  # a source that gives no more
        self.preparing = -1  # the move for which it stands still: what was said of it then must stay true
        self.saved = b""  # the state of its logic, once it is about to leave
        self.size = -1  # bytes of its state when it was last saved; below 0: it never was
        self.stood = 0.0  # since when it stands still for a move
        self.leaving = -1  # the move that takes it elsewhere
        self.arriving = -1  # the move that brought it, until all that was on its way has come
        self.unsettled = 0  # channels of which that is not known yet
        self.since = 0.0  # when it came, where a move brought it
        self.left = 0.0  # arriving: when it left, on the clock of the worker that it left
        self.passing: list[Any] = []  # markers of a move that are to follow the task
        self.counted = 0  # tuples that it gave (a source) or took
        self.processed = self.given = 0  # since the last report
        self.process = batch_process(logic) if isinstance(logic, Operator) else None
        self.pace = Pace()
        self.stride = Stride(CHUNK, batched=True) if self.process is None else Stride(STRIDE, batched=False)
        self.busy = self.blocked = 0.0
        self.blocked_since: float | None = None
        self.spent: list[float] = []
        self.next_poll = 0.0
        self.progressed = 0  # in-flight limit: tuples of this source that are processed to the end
        self.marked_progress = 0
        self.movable: Movable | None = None

    @property
    def name(self) -> str:
        """Its name in plans and output."""
        return self.context.name

    def open(self) -> None:
        """Open the logic."""
        call(self.logic.open, self.context)
        self.movable = Movable(self.logic)

    def prepare_output(self) -> None:
        """Have a sink finish the files that it has written, and a guard those of what was skipped."""
        if isinstance(self.logic, Sink) and not self.closed:
            self.pending += listed(self.logic.prepare, each=_publishable)
        if self.guard is not None:
            self.pending += map(_publishable, self.guard.prepare())

    def unwritten(self) -> str:
        """Have it finish its files; say why it cannot, which a full disk is no reason to end the run for."""
        try:
            self.prepare_output()
        except UserError as error:
            if isinstance(error.__cause__, FileProblem | OSError):
                return str(error.__cause__)
            raise
        return ""

    @property
    def unsavable(self) -> str:
        """Why its state cannot be saved; a source that cannot rewind has none."""
        return "" if self.closed or self.movable is None or self.is_source else self.movable.problem()

    def state_pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the state of its logic, encoded; nothing where that is closed."""
        if not self.closed and self.movable is not None:
            yield from self.movable.pieces()

    def saved_state(self, size: int) -> TaskState:
        """Return the runtime's own part of its state at a checkpoint, when all that it gave before has been sent on."""
        now, self.size = self.context.now(), size
        return TaskState(
            self.ended,
            self.counted,
            tuple(when - now for when in self.context.timers),
            tuple(way for way, channel in self.inputs.items() if channel.ended),
            tuple(queue.turn for queue in self.queues),
            size,
            b"" if self.guard is None else self.guard.save(),
        )

    def restore(self, state: TaskState, logic: bytes) -> None:
        """Go on from a checkpoint; all that was given before it has been processed to the end."""
        self.size = len(logic)
        if not self.closed and self.movable is not None:
            self.movable.load(logic)
        if self.guard is not None:
            self.guard.load(state.letters)
        now = self.context.now()
        self.context.timers = [now + after for after in state.timers]
        self.counted = self.progressed = self.marked_progress = state.counted
        for way in state.ended_inputs:
            self.inputs[way].ended = True
        self.open_channels = sum(not channel.ended for channel in self.inputs.values())
        for queue, turn in zip(self.queues, state.turns, strict=True):
            queue.turn = turn

    def set_aside(self, channel: InChannel) -> None:
        """Hold back what has come on a channel after its barrier."""
        kept: deque[Delivery | tuple[InChannel, MarkerOf]] = deque()
        for item in self.inbox:
            of = item.channel if isinstance(item, Delivery) else item[0]
            (self.aside if of is channel else kept).append(item)
        self.inbox = kept

    def go_on(self) -> None:
        """Go on behind the barriers."""
        self.saving = False
        for channel in self.inputs.values():
            channel.barred = False
        self.inbox.extendleft(reversed(self.aside))
        self.aside.clear()

    def prepare(self, move: int, now: float) -> str:
        """Say why it cannot move; return nothing where it can.

        One whose state may be too large for a frame, or may come to be more than it was opened with, or whose files the
        disk may not take, stands still from now on, with its state saved, until it is told to move or is released: what
        was said of it stays true.
        """
        if self.closed or self.movable is None:  # it has no logic left to move
            return ""
        problem = self.movable.problem()
        writes = isinstance(self.logic, Sink) or self.guard is not None
        if not problem and (writes or self.movable.guessed or not 0 <= self.size <= SURELY_SMALL):
            problem = self.save()
            self.preparing, self.stood = move, now
        if problem:
            self.release()
        return problem

    def save(self) -> str:
        """Save the state that it takes along; say why it cannot."""
        problem = self.unwritten()
        if problem:
            return problem
        self.saved = b"" if self.closed or self.movable is None else self.movable.save()
        self.size = len(self.saved)
        if self.size <= LARGEST_STATE:
            return ""
        size, most = (f"{count / 2**20:.1f} MiB" for count in (self.size, LARGEST_STATE))
        return f"its state takes {size}, and at most {most} can move"

    def release(self) -> None:
        """Go on: the move was given up, or takes it to another slot of the same worker."""
        self.preparing, self.saved = -1, b""

    @property
    def stands(self) -> bool:
        """Whether it must do nothing, as it is about to move or to be saved."""
        return self.saving or self.preparing >= 0 or self.leaving >= 0

    def leave(self) -> None:
        """Let go of all that has gone elsewhere with it."""
        self.inbox.clear()
        self.queued, self.queues = 0, []

    def full(self) -> bool:
        """Whether it must wait until its out-queues have room."""
        for queue in self.queues:  # noqa: SIM110  asked for every batch, and `any` takes twice as long
            if queue.full:
                return True
        return False

    def portion(self) -> int:
        """Return how many tuples it may run at once, so that what follows does not fill its out-queues by far."""
        return min((queue.limit for queue in self.queues), default=CHUNK * PORTIONS) // PORTIONS

    @property
    def waiting_out(self) -> int:
        """Tuples in its out-queues."""
        return sum(queue.backlog for queue in self.queues)

    def poll(self, now: float, limit: int) -> tuple[list[Any], Sequence[float] | None] | None:
        """Ask a source for tuples and when they were due; None: it has ended."""
        assert isinstance(self.logic, Source)
        found = call(self.logic.poll, now, limit) if self.guard is None else self.guard.poll(now, limit)
        if found is None:
            return None
        given, dues = (found.values, found.dues) if isinstance(found, Timed) else (found, None)
        values: list[Any] = call(list, given, about=shown(given), name="poll")
        if dues is not None:
            self._check_dues(len(values), dues)
        if not values:
            self.next_poll = self._next_due(now)
        return values, dues

    def _next_due(self, now: float) -> float:
        """Return when to ask a source again that had nothing."""
        if self.guard is not None and self.guard.until > 0.0:
            return self.guard.until
        due = call(self.logic.next_due, now)  # type: ignore[union-attr]
        if not is_time(due):
            raise InvalidInput("next_due", f"expected a time in seconds, got {shown(due)}; add to now")
        return due if due > now else now + SOONEST_S

    def _check_dues(self, count: int, dues: Sequence[float]) -> None:
        """Refuse times that do not fit the values that a source gave."""
        try:
            given, fits = len(dues), math.isfinite(sum(dues))
        except TypeError:
            given, fits = count, False
        if given != count:
            raise InvalidInput("poll", f"expected a due for each of {count} values, got {given}")
        if not fits:
            raise InvalidInput("poll", f"expected times in seconds as dues, got {shown(dues)}")

    def run(self, values: list[Any]) -> list[Any]:
        """Process tuples; return what follows from them."""
        if self.process is not None:
            return run_batch(self.process, values)
        if isinstance(self.logic, Sink):
            write(self.logic, values)
            return []
        return values

    @property
    def next_timer(self) -> float:
        """When the next timer is due that can be run: none while there is no room for what it gives."""
        timers = self.context.timers
        if not timers or self.ended or self.stands or self.full():
            return math.inf
        return timers[0] if self.guard is None else max(timers[0], self.guard.until)

    def take_timer(self) -> float:
        """Take the timer that is due first."""
        return heapq.heappop(self.context.timers)

    def fire(self, when: float, now: float) -> list[Any]:
        """Run the timer that was due at a time; one that is to be tried again is asked for again."""
        if self.guard is not None:
            done = self.guard.fire(when, now)
            if done.until is not None:
                heapq.heappush(self.context.timers, when)
            return done.made
        return listed(self.logic.on_timer, when) if isinstance(self.logic, Operator) else []

    def finish(self) -> list[Any]:
        """Return the last tuples of an operator."""
        return listed(self.logic.finish) if isinstance(self.logic, Operator) else []

    def close(self) -> None:
        """Close the logic; timers that are not due yet never will be."""
        self.context.timers.clear()
        self.closed = True
        call(self.logic.close)

    def let_go(self) -> None:
        """Close all that is open."""
        if self.guard is not None:
            self.guard.close()
        if not self.closed and self.movable is not None:
            self.close()

    def put(self, values: list[Any], sampled: Sequence[Sampled] = ()) -> None:
        """Put tuples into the out-queues."""
        self.given += len(values)
        if self.outputs:
            values, sampled = self._with_outputs(values, sampled)
        for queue in self.queues:
            if queue.output is None:
                queue.put(values, sampled)
            else:
                queue.put(*_selected(values, sampled, queue.output))

    def _with_outputs(self, values: list[Any], sampled: Sequence[Sampled]) -> tuple[list[Any], Sequence[Sampled]]:
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
        if name in self.outputs:
            return ""
        return f"there is no output {name!r}, got {shown(pair)}; {nearest(name, self.outputs)}"

    def put_marker(self, marker: MarkerOf) -> None:
        """Put a marker into every out-queue."""
        for queue in self.queues:
            queue.put_marker(marker)

    def end(self) -> None:
        """Say on every channel that nothing follows."""
        self.put_marker(MarkerOf(END, 0, 0))

    def report(self, now: float) -> TaskReport:
        """Return what it did since the last report, and begin to count anew."""
        if self.blocked_since is not None:
            self.blocked += now - self.blocked_since
            self.blocked_since = now
        figures = (self.processed, self.given, self.busy, self.blocked, self.queued, self.waiting_out)
        mishaps = (0, 0) if self.guard is None else self.guard.take_counts()
        report = TaskReport(self.number, *figures, tuple(self.spent), *mishaps)
        self.processed = self.given = 0
        self.busy = self.blocked = 0.0
        self.spent.clear()
        return report

    def input_state(self) -> tuple[InState, ...]:
        """Return the receiver's ends, as of what has been processed: the inbox goes after them."""
        waiting: dict[int, int] = {}
        for item in self.inbox:
            channel, count = (item.channel, len(item)) if isinstance(item, Delivery) else (item[0], 1)
            waiting[id(channel)] = waiting.get(id(channel), 0) + count
        return tuple(
            InState(
                channel.stream,
                channel.source,
                channel.expected - waiting.get(id(channel), 0),
                channel.consumed,
                channel.ended,
                tuple(channel.progress.items()),
                channel.granted,
            )
            for channel in self.inputs.values()
        )

    def load_inputs(self, states: Sequence[InState]) -> None:
        """Take over the receiver's ends."""
        for state in states:
            channel = self.inputs[state.stream, state.source]
            channel.expected, channel.consumed, channel.ended = state.expected, state.consumed, state.ended
            channel.progress, channel.granted = dict(state.progress), state.granted
        self.open_channels = sum(not channel.ended for channel in self.inputs.values())


def _publishable(pair: tuple[str, str]) -> tuple[int, Pending]:
    """Return the name of a file and the one it is to get, which no checkpoint has yet."""
    name, final = pair
    return 0, (str(name), str(final))


def _selected(values: list[Any], sampled: Sequence[Sampled], output: str) -> tuple[list[Any], list[Sampled]]:
    """Pick the tuples of one named output."""
    kept: list[Any] = []
    at = {one.place: one for one in sampled}
    marks: list[Sampled] = []
    for place, (name, value) in enumerate(values):
        if name == output:
            if place in at:
                marks.append(at[place]._replace(place=len(kept)))
            kept.append(value)
    return kept, marks
