"""Tuples as columns: their Arrow schema, and batches that are validated against it.

Structs, named tuples, dataclasses and dicts have one column per field; plain tuples have `_1`, `_2`, …, as in Spark;
other values have one column `value`. Arrow alone would truncate 1.5 to 1 in an integer column, and drop a field that
its schema lacks; here both are errors.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa

from penstock.model.errors import InvalidInput

_PLAIN = {int, float, str, bool, bytes, NoneType}
_ARROW = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
    date: pa.date32(),
}
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def schema_for(values: Sequence[Any], owner: str, declared: type[msgspec.Struct] | None = None) -> pa.Schema:
    """Return the schema of tuples by their Struct type, else by their values; `owner` is the writing task."""
    if declared is None and values and all(type(value) is type(values[0]) for value in values):
        declared = type(values[0]) if isinstance(values[0], msgspec.Struct) else None
    rows = [row_of(value) for value in values]
    known = {} if declared is None else {name: _declared(kind) for name, kind in _hints(declared).items()}
    names = list(known) or list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise InvalidInput(owner, f"expected tuples with at least one field, got {values[0]!r}; add one")
    kinds = {name: known.get(name) or _shown(name, [row.get(name) for row in rows], owner) for name in names}
    return pa.schema(list(kinds.items()))


def batch_of(values: Sequence[Any], schema: pa.Schema, owner: str) -> pa.RecordBatch:
    """Return tuples as columns of a schema, or raise `InvalidInput` that names the field and the value."""
    names = schema.names
    fields = set(names)
    rows = [row_of(value) for value in values]
    for value, row in zip(values, rows, strict=True):
        if row.keys() != fields:
            _check_fields(value, row, names, owner)
    columns = [_column(field.name, field.type, [row.get(field.name) for row in rows], owner) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def row_of(value: Any) -> Mapping[str, Any]:
    """Return the fields of a tuple by name."""
    found = _fields(value)
    if found is not None:
        return found
    if isinstance(value, tuple | list):
        return {f"_{place}": part for place, part in enumerate(value, 1)}
    return {"value": value}


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Return the content of a value with named fields, else None."""
    if isinstance(value, dict):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _check_fields(value: Any, row: Mapping[str, Any], names: list[str], owner: str) -> None:
    """Reject a field that the schema lacks, and a missing field in anything but a dict."""
    for name in row:
        if name not in names:
            problem = f"expected one of the fields {', '.join(names)}, got {_short(row[name])} in another field"
            raise InvalidInput(f"{owner}.{name}", f"{problem}; pass a schema that has it, or remove it")
    if not isinstance(value, dict):
        missing = next(name for name in names if name not in row)
        raise InvalidInput(f"{owner}.{missing}", f"missing in {_short(value)}; all tuples need the same fields")


def _column(name: str, kind: pa.DataType, values: list[Any], owner: str) -> pa.Array:
    try:
        return _array(values, kind)
    except _MISFITS:
        misfit = next((value for value in values if not _fits(value, kind)), values)
        problem = f"expected {kind}, got {_short(misfit)}"
        raise InvalidInput(f"{owner}.{name}", f"{problem}; use values of one type, or pass another schema") from None


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind):
        passing: set[type] = {int, NoneType}
    else:
        passing = {NoneType} if kind.num_fields else _PLAIN
    return pa.array([value if type(value) in passing else _plain(value, kind) for value in values], type=kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array([value], kind)
    except _MISFITS:
        return False
    return True


def _plain(value: Any, kind: pa.DataType | None) -> Any:
    """Return a value as Arrow accepts it for a type, or raise if Arrow would lose a part; without a type, unchanged."""
    if isinstance(value, Enum):
        value = value.value
    named = _fields(value)
    if kind is None:
        return _untyped(value, named)
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if named is None or any(kind.get_field_index(name) < 0 for name in named):
            raise ValueError("a field that the schema lacks")
        return {name: _plain(part, kind.field(name).type) for name, part in named.items()}
    if pa.types.is_map(kind):
        return [(_plain(key, kind.key_type), _plain(part, kind.item_type)) for key, part in value.items()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
            raise TypeError("expected a list")
        return [_plain(part, kind.value_type) for part in value]
    if pa.types.is_integer(kind) and isinstance(value, float | np.floating):
        raise TypeError("expected a whole number")
    return value


def _untyped(value: Any, named: Mapping[str, Any] | None) -> Any:
    if named is not None:
        return {name: _plain(part, None) for name, part in named.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part, None) for part in value]
    return value


def _shown(name: str, values: list[Any], owner: str) -> pa.DataType:
    """Return the type that values show."""
    plain = [_plain(value, None) for value in values]
    try:
        kind = pa.array(plain).type
    except _MISFITS:
        first = next(value for value in plain if value is not None)
        try:
            kind = pa.array([first]).type
        except _MISFITS:
            problem = f"expected a value that Parquet supports, got {_short(first)}"
            raise InvalidInput(f"{owner}.{name}", f"{problem}; convert it to numbers, texts, lists or dicts") from None
    if _undetermined(kind):
        problem = f"expected a value to derive the type from, the first {len(values)} tuples have none"
        raise InvalidInput(f"{owner}.{name}", f"{problem}; pass a schema")
    return kind


def _undetermined(kind: pa.DataType) -> bool:
    """Whether a type, or a part of it, is known only from None."""
    return pa.types.is_null(kind) or any(_undetermined(kind.field(place).type) for place in range(kind.num_fields))


def _hints(declared: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(declared, include_extras=True)
    return {name: hints[name] for name in declared.__struct_fields__}


def _declared(kind: Any) -> pa.DataType | None:
    """Return the type of an annotation; None if it leaves it open."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _declared(arguments[0])
    if origin in (Union, UnionType):
        rest = [part for part in arguments if part is not NoneType]
        return _declared(rest[0]) if len(rest) == 1 else None
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and arguments[1:] == (...,)):
        inner = _declared(arguments[0])
        return None if inner is None else pa.list_(inner)
    if origin in (dict, Mapping):
        key, item = (_declared(part) for part in arguments)
        return None if key is None or item is None else pa.map_(key, item)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        parts = {name: _declared(part) for name, part in _hints(kind).items()}
        return None if not parts or None in parts.values() else pa.struct(list(parts.items()))
    if isinstance(kind, type) and issubclass(kind, Enum):
        kinds = {type(member.value) for member in kind}
        return _ARROW.get(kinds.pop()) if len(kinds) == 1 else None
    return _ARROW.get(kind)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
