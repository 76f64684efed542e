"""Options of `penstock run` that are generated from the settings of a run: names, types and help."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer

from penstock.cli.inputs import cluster_names, objective_names, policy_names
from penstock.model.errors import InvalidInput
from penstock.model.setting import Field
from penstock.runtime.config import BY_PATH, Changes

COMPLETIONS = {
    "execution.emulate": cluster_names,
    "planning.policy": policy_names,
    "planning.objective": objective_names,
}
OPTIONS = {_name: _each for _each in BY_PATH.values() if (_name := _each.setting.option.lstrip("-").replace("-", "_"))}
"""Settings that have an option, by the name of its parameter."""


def config_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option to a command for every setting that has one; it receives the used ones as `options`."""
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "options"]

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        values = {each.path: _value(each, arguments.pop(name)) for name, each in OPTIONS.items()}
        command(**arguments, options={path: value for path, value in values.items() if value is not None})

    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(each))
        for name, each in OPTIONS.items()
    ]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    call.__signature__ = inspect.Signature([*keyword, *added])  # type: ignore[attr-defined]
    return call


def with_options_of(
    command: Callable[..., None], *omitted: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the arguments and options of another command, except the omitted ones."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        kept = [each for name, each in signature.parameters.items() if name not in omitted]
        function.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return function

    return decorate


def nested(options: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """Return settings by path as nested tables."""
    found: dict[str, dict[str, object]] = {}
    for path, value in options.items():
        section, _, name = path.rpartition(".")
        found.setdefault(section, {})[name] = value
    return found


def merged(first: Changes, second: Changes) -> dict[str, object]:
    """Return the settings of two tables; those of the second replace those of the first."""
    found = dict(first)
    for section, values in second.items():
        before = found.get(section)
        found[section] = {**before, **values} if isinstance(before, Mapping) and isinstance(values, Mapping) else values
    return found


@contextmanager
def naming_options(options: Mapping[str, object]) -> Iterator[None]:
    """Name the option in an error about a setting, if the command line set it."""
    try:
        yield
    except InvalidInput as error:
        if error.path not in options:
            raise
        raise type(error)(BY_PATH[error.path].setting.option, error.problem) from None


def _value(each: Field, value: object) -> object:
    """Convert a text to a number, for a setting that takes numbers and words, and a list to a table of numbers."""
    if isinstance(value, list):
        return dict(_entry(each, text) for text in value) or None
    if isinstance(value, str) and each.setting.words and value not in each.setting.words:
        with suppress(ValueError):
            return float(value)
    return value


def _entry(each: Field, text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isdecimal():
        raise InvalidInput(each.setting.option, f"expected COMPONENT=NUMBER, got {text!r}")
    return name, int(number)


def _is_table(each: Field) -> bool:
    return get_origin(get_args(each.kind)[0]) is dict


def _annotation(each: Field) -> Any:
    """Return the type and the option of a setting. Bounds are checked with the settings, not by typer."""
    kind = list[str] if _is_table(each) else str if each.setting.words or each.setting.octal else _plain(each.kind)
    flag = each.setting.option
    names = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    metavar = "SECONDS" if each.setting.unit == "s" else "OCTAL" if each.setting.octal else None
    metavar = "COMPONENT=NUMBER" if _is_table(each) else metavar
    section = each.path.partition(".")[0].replace("_", " ").capitalize()
    complete = COMPLETIONS.get(each.path)
    option = typer.Option(names, help=each.help, metavar=metavar, autocompletion=complete, rich_help_panel=section)
    return Annotated[kind | None, option]


def _plain(kind: Any) -> type:
    """Return the type that typer parses: a number, true or false, or text."""
    if get_origin(kind) is Annotated:
        return _plain(get_args(kind)[0])
    found = next((part for part in (kind, *get_args(kind)) if part in (int, float, bool)), None)
    if found is None and NoneType in get_args(kind):
        return _plain(get_args(kind)[0])
    return found or str
