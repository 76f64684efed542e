"""Runs an author's source, operator or sink: batches in, batches out, and the state that moves with a task."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from types import BuiltinFunctionType, FunctionType
from typing import Any, get_type_hints

import msgspec

from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.api.logic import FilterOperator, FlatMapOperator, Logic, MapOperator
from penstock.model.decoding import msgpack_decoder

Process = Callable[[Iterator[Any]], list[Any]]

PIECE = 500  # entries of a state from which on it is encoded in pieces, and those of the first piece
PIECE_BYTES = 128 * 1024  # of a piece, about: a fraction of a millisecond
STATELESS = (MapOperator, FlatMapOperator, FilterOperator)  # but for what their functions hide


class UserError(Exception):
    """An author's code raised: on which tuple, in which call, and the error itself as its cause."""

    def __init__(self, value: str = "", where: str = "", context: TaskContext | None = None) -> None:
        super().__init__(value)
        self.value = value
        self.where = where  # empty: in what every tuple goes through
        self.context = context  # of the task; None: of the one that runs


def batch_process(operator: Operator[Any, Any]) -> Process:
    """Return a function that runs an operator over an iterator of tuples and lists what it gives."""
    if type(operator) is MapOperator:
        function = operator.function
        return lambda values: [function(value) for value in values]
    if type(operator) is FilterOperator:
        predicate = operator.predicate
        return lambda values: [value for value in values if predicate(value)]
    process = operator.process

    def run(values: Iterator[Any]) -> list[Any]:
        made: list[Any] = []
        extend = made.extend
        for value in values:
            given = process(value)
            if given is not None:
                extend(given)
        return made

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


def write(sink: Sink[Any], values: list[Any]) -> None:
    """Let a sink take a batch; an exception becomes a `UserError` that shows its first tuple."""
    try:
        sink.write(values)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        first = shown(values[0])
        raise UserError(first if len(values) == 1 else f"{first} or one of the {len(values) - 1} after it") from error


def call(function: Callable[..., Any], *arguments: Any, about: str = "", name: str = "") -> Any:
    """Call an author's method; an exception becomes a `UserError`, but for Ctrl-C, which is not the author's."""
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(about, name or getattr(function, "__name__", "")) from error


def listed(
    function: Callable[..., Iterable[Any] | None], *arguments: Any, each: Callable[[Any], Any] | None = None
) -> list[Any]:
    """Return what an author's method gives as a list; an exception, also a generator's, becomes a `UserError`.

    each: what is made of everything in it.
    """

    def run() -> list[Any]:
        given = function(*arguments)
        return [] if given is None else list(given if each is None else map(each, given))

    return call(run, name=function.__name__)  # type: ignore[no-any-return]


def shown(value: Any, most: int | None = 200) -> str:
    """Write a tuple for an error message, in a limited number of characters."""
    try:
        text = repr(value)
    except Exception:  # an author's object may refuse in any way
        return f"<{type(value).__name__} that cannot be shown>"
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


class Movable:
    """What of a task's logic moves with it.

    An operator or sink without a `snapshot` of its own moves as it was made, which is right only while nothing in it
    has changed: a fingerprint taken when it was opened tells. Where none can be taken, it stays.
    """

    def __init__(self, logic: Logic) -> None:
        self._logic = logic
        # Whether it is only from what it looks like that it has no state.
        self.guessed = not (isinstance(logic, Source) or _has_own_snapshot(logic) or type(logic) in STATELESS)
        self._fresh = _fingerprint(logic) if self.guessed else None

    def problem(self) -> str:
        """Say why the logic cannot move; empty where it can."""
        if isinstance(self._logic, Source):
            return "" if self._logic.rewinds else f"{_kind(self._logic)} cannot rewind, so it stays where it is"
        if not self.guessed or (self._fresh is not None and _fingerprint(self._logic) == self._fresh):
            return ""
        has = "may have" if self._fresh is None else "has"
        return f"{_kind(self._logic)} {has} state but no snapshot; give it snapshot and restore"

    def save(self) -> bytes:
        """Return the logic's state, encoded."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the logic's state, encoded, in pieces: a large dict or list takes many, each a small part of a turn."""
        logic = self._logic
        if isinstance(logic, Source) and not logic.rewinds:
            return
        state = call(logic.position if isinstance(logic, Source) else logic.snapshot)
        if isinstance(state, dict) and len(state) > PIECE:
            yield b"\xdf" + len(state).to_bytes(4, "big")
            yield from _pieces(iter(state.items()), dict)
        elif type(state) is list and len(state) > PIECE:
            yield b"\xdd" + len(state).to_bytes(4, "big")
            yield from _pieces(iter(state), list)
        else:
            yield _encoded(state)

    def load(self, saved: bytes) -> None:
        """Give the logic a state that was saved elsewhere, or before."""
        logic = self._logic
        if isinstance(logic, Source) and not logic.rewinds:
            return
        giver, taker = (logic.position, logic.seek) if isinstance(logic, Source) else (logic.snapshot, logic.restore)

        def read() -> Any:
            return msgpack_decoder(_returns(giver))(saved)

        state = call(read, name=taker.__name__)
        if isinstance(logic, Source) or _has_own_snapshot(logic):
            call(taker, state)


def _encoded(state: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(state)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # shown only now: that of a large state takes longer than all else
        raise UserError(shown(state), "snapshot") from error


def _pieces(entries: Iterator[Any], gather: Callable[[Iterable[Any]], Any]) -> Iterator[memoryview]:
    """Yield the entries of a dict or list, encoded without a head, in pieces of about the same size."""
    count = PIECE
    while part := gather(islice(entries, count)):
        encoded = _encoded(part)
        head = 1 if len(part) < 16 else 3 if len(part) < 65536 else 5  # bytes in which MessagePack says how many come
        yield memoryview(encoded)[head:]  # no copy: states are large
        count = max(1, min(2 * count, count * PIECE_BYTES // len(encoded)))


def _kind(logic: Logic) -> str:
    return type(logic).__name__


def _has_own_snapshot(logic: Logic) -> bool:
    return type(logic).snapshot not in (Operator.snapshot, Sink.snapshot)  # type: ignore[union-attr]


def _fingerprint(logic: Logic) -> bytes | None:
    """Return something that changes when the logic's attributes do; None where that cannot be told.

    The context does not count, as its timers move along, nor does which function an attribute is.
    """
    kept = {
        name: value
        for name, value in vars(logic).items()
        if not isinstance(value, FunctionType | BuiltinFunctionType) and not _is_context(value)
    }
    try:
        return pickle.dumps(kept)  # compared, never loaded
    except Exception:  # an author's attribute may refuse in any way
        return None


def _is_context(value: Any) -> bool:
    """Say whether something is a task's context, or a method of it."""
    try:
        return isinstance(getattr(value, "__self__", value), TaskContext)
    except Exception:  # likewise
        return False


def _returns(method: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(method).get("return", Any)
    except Exception:  # an annotation may be any expression
        return Any
