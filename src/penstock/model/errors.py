"""Mistakes a user can mend, each with the path of the field, what was found there and what to do instead.

Everything that ends in a one-line message on a terminal derives from `PenstockError`; any other exception is a defect
of Penstock. Named subclasses exist where a caller may want to tell one mistake from another.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import TypeVar

Member = TypeVar("Member", bound=Enum)


class PenstockError(Exception):
    """A user's mistake: its text is one line and says how to mend it."""

    exit_code = 2  # of the command that ends by it


class InvalidInput(PenstockError, ValueError):
    """A field that holds what it must not.

    `path` is where the field is, from the root of the object or file (`machines[3].cores`, empty for the root);
    `problem` says what was expected and what was found.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}" if path else problem)

    def below(self, prefix: str) -> "InvalidInput":
        """Return the same mistake, its path continued upwards by `prefix`."""
        return type(self)(join_path(prefix, self.path), self.problem)


class CyclicTopology(InvalidInput):
    """Streams that lead from a component back to itself."""


class UnreachableComponent(InvalidInput):
    """A component that no source feeds, or that feeds no sink."""


class UnequalForward(InvalidInput):
    """A forward stream between components of different parallelism."""


class UnknownName(InvalidInput):
    """A name that nothing in its scope has: a component, machine, link, policy or parameter."""


class DuplicateName(InvalidInput):
    """A name given twice in one scope."""


class UnknownMachine(UnknownName):
    """A component pinned to, or a task placed on, a machine that the cluster does not have."""


class FileProblem(PenstockError):
    """A file that cannot be read, written or understood; the text begins with its path."""


def join_path(prefix: str, rest: str) -> str:
    """Join two field paths: `machines[3]` and `cores` give `machines[3].cores`."""
    if not prefix or not rest:
        return prefix or rest
    return f"{prefix}{rest}" if rest.startswith("[") else f"{prefix}.{rest}"


def choices(names: Iterable[object]) -> str:
    """List what a wrong name could have been, for the end of an error message."""
    listed = sorted(str(name) for name in names)
    shown = listed if len(listed) <= 24 else [*listed[:24], f"… {len(listed) - 24} more"]
    return ", ".join(shown)


def nearest(name: object, known: Iterable[object]) -> str:
    """Say which names a wrong one could have been: those that look like it, or all."""
    names = {str(each).lower(): str(each) for each in known}
    close = [names[match] for match in get_close_matches(str(name).lower(), names)]
    return f"did you mean {' or '.join(close)}?" if close else f"there are {choices(names.values())}"


def member(field: str, kind: type[Member], given: object) -> Member:
    """Return the member of an enumeration with this value; raise `UnknownName`, with the choices, if there is none.

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
    """Return the `repr` of a value for an error message, cut to a number of characters."""
    try:
        text = repr(value)
    except Exception:  # an author's object may raise anything
        return f"<{type(value).__name__} that cannot be shown>"
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def refuse_duplicates(path: str, names: Iterable[str]) -> None:
    """Raise `DuplicateName` for the first name that the list at `path` holds twice."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in seen:
            raise DuplicateName(f"{path}[{position}]", f"{name!r} is already at {path}[{seen[name]}]; rename one")
        seen[name] = position
