"""Packages that import a public name when it is first used, so that importing the package itself costs nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_imports(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    names: for every module, the names that the package exports from it, separated by commas; `a as b` exports `a`
    under the name `b`.
    """
    origin: dict[str, tuple[str, str]] = {}
    for module, entries in names.items():
        for entry in entries.split(","):
            attribute, _, public = entry.strip().partition(" as ")
            origin[public or attribute] = (module, attribute)

    def get(name: str) -> Any:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = origin[name]
        return getattr(import_module(module), attribute)

    return get, lambda: sorted(origin)
