"""Tables of builders by name; a specification may set the builder's parameters."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from penstock.model.errors import UnknownName, nearest
from penstock.model.spec import build

T = TypeVar("T")

Seed = int | np.random.Generator
"""A source of randomness: an integer, or a generator that the caller continues to use."""


class Choice(NamedTuple, Generic[T]):
    """One row of a table."""

    builder: Callable[..., T]
    summary: str
    preset: Mapping[str, Any] = MappingProxyType({})  # parameters that differ from the builder's defaults


def choose(kind: str, table: Mapping[str, Choice[T]], spec: str) -> T:
    """Build what a text specifies: a name in the table, or `name:parameter=value,parameter=value`."""
    name, _, settings = spec.partition(":")
    if name not in table:
        raise UnknownName(kind, f"unknown name {name!r}; {nearest(name, table)}")
    return build(f"{kind}.{name}", table[name].builder, settings, table[name].preset)
