"""Specifications: a name with parameters, such as `local-search:seconds=0.5` or `hetero:machines=20,seed=3`.

Policies, applications, clusters and arrival processes are all specified in this form, on the command line and in
experiment files. A builder is a class or function whose parameters have types; values are converted to these types, or
rejected with the parameter's path. `none` stands for None; a value cannot contain a comma.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.entity import refuse_endless, to_invalid_input, type_hints
from penstock.model.errors import InvalidInput, UnknownName, choices, nearest

T = TypeVar("T")

_signature = cache(inspect.signature)


def build(path: str, builder: Callable[..., T], settings: str, preset: Mapping[str, Any] | None = None) -> T:
    """Call a builder with the parameters of a text, `parameter=value,parameter=value`; they override `preset`.

    `path` is the location of the text, for error messages.
    """
    known = _signature(builder).parameters
    hints = type_hints(builder, include_extras=True)
    values: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        parameter, equals, text = setting.partition("=")
        if parameter not in known:
            has = nearest(parameter, known) if known else "it has none"
            raise UnknownName(path, f"no parameter is named {parameter!r}; {has}")
        if not equals:
            raise InvalidInput(f"{path}.{parameter}", f"expected {parameter}=VALUE, got {setting!r}")
        if parameter in values:
            raise InvalidInput(f"{path}.{parameter}", f"given twice, again as {text!r}; remove one")
        values[parameter] = _converted(f"{path}.{parameter}", text, hints[parameter])
    values = {**(preset or {}), **values}
    for parameter, described in known.items():
        if described.default is inspect.Parameter.empty and parameter not in values:
            raise InvalidInput(f"{path}.{parameter}", f"missing; add {parameter}=VALUE")
    try:
        return builder(**values)
    except InvalidInput as error:
        raise error.below(path) from None


def parameter_value(path: str, value: Any, kind: Any) -> Any:
    """Convert the value of a parameter of a user's function to its type; for `Any`, guess the type from the text.

    Texts of lists and tables are JSON.
    """
    if isinstance(value, str) and kind is not str and (kind is Any or value.startswith(("[", "{"))):
        with suppress(Undecodable):
            value = decode_json(value)
    return _converted(path, value, kind)


def _converted(path: str, text: Any, kind: Any) -> Any:
    named = get_args(kind) if get_origin(kind) is Literal else ()
    value = None if text == "none" and text not in named and kind is not str else text
    if named and value not in named:
        raise InvalidInput(path, f"expected one of {choices(named)}, got {text!r}")
    try:
        converted = msgspec.convert(value, kind, strict=False, dec_hook=_constructed)
    except msgspec.ValidationError as error:
        raise to_invalid_input(error, value, kind).below(path) from None
    except TypeError:  # a type that msgspec does not support
        problem = f"a parameter of type {kind} cannot be set from outside, got {text!r}"
        raise InvalidInput(path, f"{problem}; annotate it with a plain type") from None
    refuse_endless(path, converted)
    return converted


def _constructed(kind: type, value: Any) -> Any:
    """Create an object of a type that msgspec does not know, such as `Path`, from the value of a parameter."""
    return value if isinstance(value, kind) else kind(value)
