"""Functions as bytes: what cloudpickle does, and msgspec structs besides.

Cloudpickle carries the classes of a script or notebook by value, but makes an msgspec struct again without its fields.
Here a struct is made again from its fields and options.
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
_MADE_ANEW = {"__annotations__", "__slots__", "__dict__", "__weakref__", "__orig_bases__", "__parameters__"}


def pack(function: Callable[..., object]) -> bytes:
    """Return a function, and all it refers to, as bytes that `pickle.loads` understands on an executor."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(function)  # type: ignore[no-untyped-call]
    except RecursionError:
        problem = "it nests too deeply, or a struct refers to itself; put such a struct into a module and import it"
    except (TypeError, NameError, pickle.PicklingError) as error:
        problem = f"{str(error).splitlines()[0]}; make such things in `open`, on the executor"
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
    """Return what pickle needs to make a struct again: maker, arguments, and what to set on it afterwards."""
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
    # Methods refer to the struct, so they follow its making.
    rest = {
        name: value
        for name, value in own.items()
        if name not in _MADE_ANEW and not isinstance(value, types.MemberDescriptorType)
    }
    return make_struct, made, rest, None, None, set_attributes


def _field_parts(field: FieldInfo) -> tuple[str, Any, dict[str, Any]]:
    default = {"default": field.default, "default_factory": field.default_factory}
    return field.name, field.type, {name: value for name, value in default.items() if value is not msgspec.NODEFAULT}


def make_struct(name: str, bases: tuple[Any, ...], fields: list[Any], options: dict[str, Any]) -> Any:
    """Make a struct that is equal in its fields and options to the one that was packed."""

    def body(space: dict[str, Any]) -> None:
        space["__annotations__"] = {field: kind for field, kind, _ in fields}
        space.update({field: msgspec.field(**default) for field, _, default in fields if default})

    return types.new_class(name, bases, options, body)


def set_attributes(struct: Any, rest: dict[str, Any]) -> None:
    """Give a struct its methods and the rest of what its class held."""
    for name, value in rest.items():
        setattr(struct, name, value)
