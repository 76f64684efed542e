"""Serializes functions: cloudpickle, extended by msgspec structs.

Cloudpickle serializes the classes of a script or notebook by value, but restores an msgspec struct without its fields.
Here a struct is restored from its fields and options.
"""

import io
import pickle
import types
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

import msgspec
from msgspec.structs import FieldInfo
from pyspark.cloudpickle import cloudpickle

from penstock.model.errors import InvalidInput

_OPTIONS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields",
    "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_RESTORED = {"__annotations__", "__slots__", "__dict__", "__weakref__", "__orig_bases__", "__parameters__"}


def pack(function: Callable[..., object]) -> bytes:
    """Return a function, and all that it refers to, as bytes for `pickle.loads` on an executor."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(function)  # type: ignore[no-untyped-call]
    except RecursionError:
        problem = "it nests too deeply, or a struct refers to itself; put such a struct into a module and import it"
    except (TypeError, NameError, pickle.PicklingError) as error:
        problem = f"{str(error).splitlines()[0]}; create it in `open`, on the executor"
    else:
        return file.getvalue()
    raise InvalidInput("application", f"cannot be sent to the executors, {problem}")


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, msgspec.StructMeta) and not _importable(value):
            return _struct_parts(value)
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _importable(struct: Any) -> bool:
    return bool(cloudpickle._should_pickle_by_reference(struct))  # type: ignore[no-untyped-call]


def _struct_parts(struct: Any) -> tuple[Any, ...]:
    """Return what pickle needs to restore a struct: a function, its arguments, and the attributes to set afterwards."""
    own = vars(struct)
    fields = [field for field in msgspec.structs.fields(struct) if field.name in own.get("__annotations__", {})]
    kinds = signature(struct).parameters
    options = {name: getattr(struct.__struct_config__, name) for name in _OPTIONS}
    options["kw_only"] = any(kinds[field.name].kind is Parameter.KEYWORD_ONLY for field in fields)
    options["rename"] = {field.name: field.encode_name for field in fields}
    made = (
        struct.__name__,
        own.get("__orig_bases__", struct.__bases__),
        [_field_parts(field) for field in fields],
        options,
    )
    # Methods refer to the struct, so they are set after it exists.
    attributes = {
        name: value
        for name, value in own.items()
        if name not in _RESTORED and not isinstance(value, types.MemberDescriptorType)
    }
    return make_struct, made, attributes, None, None, set_attributes


def _field_parts(field: FieldInfo) -> tuple[str, Any, dict[str, Any]]:
    default = {"default": field.default, "default_factory": field.default_factory}
    return field.name, field.type, {name: value for name, value in default.items() if value is not msgspec.NODEFAULT}


def make_struct(name: str, bases: tuple[Any, ...], fields: list[Any], options: dict[str, Any]) -> Any:
    """Create a struct with the fields and options of the one that was packed."""

    def body(space: dict[str, Any]) -> None:
        space["__annotations__"] = {field: kind for field, kind, _ in fields}
        space.update({field: msgspec.field(**default) for field, _, default in fields if default})

    return types.new_class(name, bases, options, body)


def set_attributes(struct: Any, attributes: dict[str, Any]) -> None:
    """Set the methods and other attributes of a struct."""
    for name, value in attributes.items():
        setattr(struct, name, value)
