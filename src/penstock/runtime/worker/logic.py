"""Calls an author's source, operator or sink, and saves and restores its state."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import BuiltinFunctionType, FunctionType
from typing import Any, get_type_hints

import msgspec

from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.api.logic import FilterOperator, FlatMapOperator, Logic, MapOperator
from penstock.model.decoding import msgpack_decoder
from penstock.model.errors import shown

PIECE = 500  # entries of a state above which it is encoded in pieces, and those of the first piece
PIECE_BYTES = 128 * 1024  # approximate bytes of a piece, which take a fraction of a millisecond
STATELESS = (MapOperator, FlatMapOperator, FilterOperator)  # except for state hidden in their functions


class UserError(Exception):
    """An exception of an author's code: the tuple and the call that raised it; its cause is the exception itself."""

    def __init__(self, value: str = "", where: str = "", context: TaskContext | None = None) -> None:
        super().__init__(value)
        self.value = value
        self.where = where  # empty: the call that processes every tuple
        self.context = context  # of the task; None: the running one


def call_author(function: Callable[..., Any], *arguments: Any, about: str = "", name: str = "") -> Any:
    """Call an author's method; an exception becomes a `UserError`, except for Ctrl-C, which is not the author's."""
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(about, name or getattr(function, "__name__", "")) from error


def list_results(
    function: Callable[..., Iterable[Any] | None], *arguments: Any, each: Callable[[Any], Any] | None = None
) -> list[Any]:
    """Return the result of an author's method as a list; an exception, even in a generator, becomes a `UserError`.

    each: a function applied to every element.
    """

    def run() -> list[Any]:
        result = function(*arguments)
        return [] if result is None else list(result if each is None else map(each, result))

    return call_author(run, name=function.__name__)  # type: ignore[no-any-return]


class LogicState:
    """The state of a task's logic: saved at checkpoints, and moved with the task.

    An operator or sink without its own `snapshot` moves in its initial state, which is correct only while nothing in it
    has changed. A fingerprint from when it was opened detects changes. If none can be computed, the task cannot move.
    """

    def __init__(self, logic: Logic) -> None:
        self._logic = logic
        # Whether the lack of state is assumed, not known.
        self.guessed = not (isinstance(logic, Source) or _has_own_snapshot(logic) or type(logic) in STATELESS)
        self._fresh = _fingerprint(logic) if self.guessed else None

    def problem(self) -> str:
        """Return why the state cannot be saved; empty if it can."""
        if isinstance(self._logic, Source):
            return "" if self._logic.rewinds else f"{_kind(self._logic)} cannot rewind, so it stays where it is"
        if not self.guessed or (self._fresh is not None and _fingerprint(self._logic) == self._fresh):
            return ""
        has = "may have" if self._fresh is None else "has"
        return f"{_kind(self._logic)} {has} state but no snapshot; give it snapshot and restore"

    def save(self) -> bytes:
        """Return the encoded state."""
        return b"".join(self.pieces())

    def pieces(self, checkpoint: int = 0) -> Iterator[bytes | memoryview]:
        """Yield the encoded state: in many pieces for a large dict or list, so that each takes a fraction of a turn."""
        logic = self._logic
        if isinstance(logic, Source) and not logic.rewinds:
            return
        state = call_author(logic.position if isinstance(logic, Source) else logic.snapshot)
        if isinstance(state, dict) and len(state) > PIECE:
            yield b"\xdf" + len(state).to_bytes(4, "big")
            yield from _pieces(iter(state.items()), dict)
        elif type(state) is list and len(state) > PIECE:
            yield b"\xdd" + len(state).to_bytes(4, "big")
            yield from _pieces(iter(state), list)
        else:
            yield _encoded(state)

    def load(self, saved: bytes) -> None:
        """Restore a saved state."""
        logic = self._logic
        if isinstance(logic, Source) and not logic.rewinds:
            return
        getter, setter = (logic.position, logic.seek) if isinstance(logic, Source) else (logic.snapshot, logic.restore)

        def read() -> Any:
            return msgpack_decoder(return_type(getter))(saved)

        state = call_author(read, name=setter.__name__)
        if isinstance(logic, Source) or _has_own_snapshot(logic):
            call_author(setter, state)


def _encoded(state: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(state)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # shown only now: the `repr` of a large state takes longer than everything else
        raise UserError(shown(state), "snapshot") from error


def _pieces(entries: Iterator[Any], gather: Callable[[Iterable[Any]], Any]) -> Iterator[memoryview]:
    """Yield the entries of a dict or list, encoded without a header, in pieces of about the same size."""
    count = PIECE
    while part := gather(islice(entries, count)):
        encoded = _encoded(part)
        header = 1 if len(part) < 16 else 3 if len(part) < 65536 else 5  # bytes of MessagePack's element count
        yield memoryview(encoded)[header:]  # no copy: states are large
        count = max(1, min(2 * count, count * PIECE_BYTES // len(encoded)))


def _kind(logic: Logic) -> str:
    return type(logic).__name__


def _has_own_snapshot(logic: Logic) -> bool:
    return type(logic).snapshot not in (Operator.snapshot, Sink.snapshot)  # type: ignore[union-attr]


def _fingerprint(logic: Logic) -> bytes | None:
    """Return a value that changes when the logic's attributes do; None if that cannot be determined.

    The context is ignored, because its timers move with the task; so are attributes that are functions.
    """
    kept = {
        name: value
        for name, value in vars(logic).items()
        if not isinstance(value, FunctionType | BuiltinFunctionType) and not _is_context(value)
    }
    try:
        return pickle.dumps(kept)  # compared, never loaded
    except Exception:  # an author's attribute may raise anything
        return None


def _is_context(value: Any) -> bool:
    """Return whether a value is a task's context, or a method of it."""
    try:
        return isinstance(getattr(value, "__self__", value), TaskContext)
    except Exception:  # likewise
        return False


def return_type(method: Callable[..., Any]) -> Any:
    """Return the annotated type of a state, by which it is decoded; `Any` if there is none."""
    try:
        return get_type_hints(method).get("return", Any)
    except Exception:  # an annotation may be any expression
        return Any
