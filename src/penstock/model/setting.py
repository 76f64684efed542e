"""What is known of a setting beside its type and default: its meaning, its unit, its option on the command line.

The annotation of a field contains all of it, once; help texts, error messages and reference pages are generated from
that. Bounds are in the type, where msgspec checks them.

    interval_s: Annotated[NonNegative, Setting("Time between checkpoints.", unit="s", option="--every")] = 5.0
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from penstock.model.entity import Entity, type_hints
from penstock.model.errors import InvalidInput

_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false"}
BOUNDLESS = 1e9  # a bound beyond this keeps numbers representable; not documented
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


@dataclass(frozen=True)
class Setting:
    """One setting, as people see it."""

    description: str
    unit: str = ""
    option: str = ""  # of the command line; empty: only files and programs can set it
    fixed: bool = False  # a run that is resumed keeps it
    words: Mapping[str, float] = field(default_factory=dict)  # texts that stand for numbers
    octal: bool = False


@dataclass(frozen=True)
class Field:
    """A field of settings: where it is, what it may hold, and its setting."""

    name: str
    path: str  # with its section: `checkpointing.interval_s`
    kind: Any
    default: Any
    setting: Setting

    @property
    def default_text(self) -> str:
        """The default, with its unit; empty if the description must state what happens by default."""
        if self.default is None or self.default == {} or self.default == "":
            return ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.setting.octal:
            return f"{self.default:03o}"
        text = f"{self.default:g}" if isinstance(self.default, float) else str(self.default)
        return f"{text} {self.setting.unit}".rstrip()

    @property
    def help(self) -> str:
        """The description and the default, for the help of a command."""
        default = f" Default: {self.default_text}." if self.default_text else ""
        return self.setting.description + default

    @property
    def kind_text(self) -> str:
        """What the field may hold, for a reference page."""
        if self.setting.octal:
            return "octal number from 000 to 077"
        return ", ".join([_kind_text(self.kind), *self.setting.words])

    def parsed(self, value: object) -> object:
        """Return a value of a file or the command line with words and octal texts as numbers."""
        if isinstance(value, str) and value in self.setting.words:
            return self.setting.words[value]
        if isinstance(value, str) and self.setting.octal:
            try:
                return int(value, 8)
            except ValueError:
                return value
        return value

    def refused(self, error: InvalidInput, value: object) -> InvalidInput:
        """Return an error about the field's value with what to do about it."""
        problem = error.problem
        if self.setting.octal:
            shown = f"{value:03o}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)
            problem = f"expected an octal number from 000 to 077, got {shown}"
        if "; " in problem:  # it states what to do already
            return error
        expected, _, got = problem.partition(", got ")
        if self.setting.words and got:
            *words, last = expected, *self.setting.words
            problem = f"{', '.join(words)} or {last}, got {got}"
        default = f"default: {self.default_text}" if self.default_text else "leave it out for the default"
        return type(error)(error.path, f"{problem}; {default}")


class Section(Entity, frozen=True, kw_only=True, omit_defaults=False):
    """Settings that belong together. What is stored has all of them, so that a later default changes nothing."""

    def _check_field(self, name: str, kind: Any) -> None:
        try:
            super()._check_field(name, kind)
        except InvalidInput as error:
            known = fields(type(self))
            raise known[name].refused(error, getattr(self, name)) if name in known else error from None


@cache
def fields(section: type[Entity], prefix: str = "") -> dict[str, Field]:
    """Return the settings of a section, by name; fields without a description are not settings."""
    found = {}
    hints = type_hints(section, include_extras=True)
    for each in msgspec.structs.fields(section):
        setting = _setting(hints[each.name])
        if setting is not None:
            path = f"{prefix}.{each.name}" if prefix else each.name
            default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
            found[each.name] = Field(each.name, path, hints[each.name], default, setting)
    return found


def _setting(kind: Any) -> Setting | None:
    notes = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    for note in notes:
        if isinstance(note, Setting):
            return note
    return next((Setting(note.description) for note in notes if isinstance(note, Meta) and note.description), None)


def _kind_text(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        bounds = [
            f"{sign} {bound:g}"
            for note in notes
            if isinstance(note, Meta)
            for name, sign in _SIGNS.items()
            if (bound := getattr(note, name)) is not None and abs(bound) < BOUNDLESS
        ]
        return " ".join([_kind_text(inner), " and ".join(bounds)]).rstrip()
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(str(member.value) for member in kind)
    if get_origin(kind) is dict:
        return f"table of {_kind_text(get_args(kind)[1])}"
    parts = [part for part in get_args(kind) if part is not type(None)]
    return _kind_text(parts[0]) if parts else _WORDS.get(kind, "any value")
