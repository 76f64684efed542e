"""Errors that a user can correct, each with the path of the field, the value found there and a remedy.

Every error that ends in a one-line message on a terminal derives from `PenstockError`; any other exception is a defect
of Penstock. There are subclasses for errors that a caller may want to distinguish.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from typing import TypeVar

Member = TypeVar("Member", bound=Enum)


class PenstockError(Exception):
    """Invalid input: the text is one line and contains a remedy."""

    exit_code = 2  # exit code of a command that fails with it


class InvalidInput(PenstockError, ValueError):
    """A field with an invalid value.

    `path` locates the field from the root of the object or file (`machines[3].cores`, empty for the root); `problem`
    contains what was expected and what was found.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)

    def below(self, prefix: str) -> "InvalidInput":
        """Return the same error with `prefix` in front of its path."""
        return type(self)(join_path(prefix, self.path), self.problem)


class CyclicTopology(InvalidInput):
    """Streams that lead from a component back to itself."""


class UnreachableComponent(InvalidInput):
    """A component without a path from a source, or without a path to a sink."""


class UnequalForward(InvalidInput):
    """A forward stream between components of different parallelism."""


class UnknownName(InvalidInput):
    """A name that is not defined: a component, machine, link, policy or parameter."""


class DuplicateName(InvalidInput):
    """A name that occurs twice."""


class UnknownMachine(UnknownName):
    """A component pinned to, or a task placed on, a machine that the cluster does not have."""


class FileProblem(PenstockError):
    """A file that cannot be read, written or parsed; the text starts with its path."""

    @classmethod
    def of(cls, error: OSError, path: object, problem: str, remedy: str) -> "FileProblem":
        """Return the problem of a path, with the reason that the operating system gives."""
        return cls(f"{path}: {problem}, {(error.strerror or str(error)).lower()}; {remedy}")

    @classmethod
    @contextmanager
    def on(cls, path: object, problem: str, remedy: str) -> Iterator[None]:
        """Report an error of the operating system in the block as the problem of a path."""
        try:
            yield
        except OSError as error:
            raise cls.of(error, path, problem, remedy) from None


def join_path(prefix: str, rest: str) -> str:
    """Join two field paths: `machines[3]` and `cores` give `machines[3].cores`."""
    if not prefix or not rest:
        return prefix or rest
    return f"{prefix}{rest}" if rest.startswith("[") else f"{prefix}.{rest}"


def choices(names: Iterable[object]) -> str:
    """List the valid names, for the end of an error message."""
    listed = sorted(str(name) for name in names)
    shown = listed if len(listed) <= 24 else [*listed[:24], f"… {len(listed) - 24} more"]
    return ", ".join(shown)


def nearest(name: object, known: Iterable[object]) -> str:
    """Suggest valid names for a wrong one: similar names, or all names."""
    names = {str(each).lower(): str(each) for each in known}
    close = [names[match] for match in get_close_matches(str(name).lower(), names)]
    return f"did you mean {' or '.join(close)}?" if close else f"there are {choices(names.values())}"


def member(field: str, kind: type[Member], given: object) -> Member:
    """Return the member of an enumeration with this value, or raise `UnknownName` with the choices.

    Members are compared by identity, so every public function that takes one converts it once, on entry.
    """
    try:
        return kind(given)
    except ValueError:
        names = [str(one.value) for one in kind]
        close = get_close_matches(str(given), names)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        problem = f"no {field.rpartition('.')[2]} is named {given!r}; there are {choices(names)}{hint}"
        raise UnknownName(field, problem) from None


def shown(value: object, most: int | None = 200) -> str:
    """Return the `repr` of a value for an error message, cut to a maximum length."""
    try:
        text = repr(value)
    except Exception:  # an author's object may raise any exception
        return f"<{type(value).__name__} that cannot be shown>"
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def with_type(error: BaseException) -> str:
    """Return the type and the text of an exception; the text of an author's may raise one itself."""
    try:
        text = str(error)
    except Exception:
        text = "its text cannot be shown"
    return f"{type(error).__name__}: {text}"


def refuse_duplicates(path: str, names: Iterable[str]) -> None:
    """Raise `DuplicateName` for the first name that occurs twice in the list at `path`."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in seen:
            raise DuplicateName(f"{path}[{position}]", f"{name!r} is already at {path}[{seen[name]}]; rename one")
        seen[name] = position
