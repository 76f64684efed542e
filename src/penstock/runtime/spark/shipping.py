"""Ships the user's code to the executors: the modules of an application, as a zip file.

Modules are shipped as files and imported there as here. Installed packages (`site-packages`, the standard library) are
expected on the executors: Penstock itself needs msgspec, numpy and pyarrow, and is shipped to every master that does
not run in the driver's own process.
"""

import ast
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from penstock.api.dataflow import Dataflow
from penstock.runtime.spark.executors import is_local

_INSTALLED = {"site-packages", "dist-packages"}
_IGNORED = {"__pycache__"}  # and names that begin with a dot
_SAME_TIME = (1980, 1, 1, 0, 0, 0)  # of all files in a zip, so that equal code gives an equal zip


def modules_of(flow: Dataflow) -> list[ModuleType]:
    """Return the modules in which the dataflow's functions and classes are written."""
    names: set[str] = set()
    waiting: list[Any] = [value for part in flow.parts.values() for value in (part.logic, part.emits)]
    waiting += [key for part in flow.parts.values() for outlet in part.inputs for key in outlet.keys]
    for _ in range(10_000):
        if not waiting:
            break
        value = waiting.pop()
        if isinstance(value, partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, dict):
            waiting += value.values()
        elif not isinstance(value, str | int | float | bytes | None):
            names.add(getattr(value, "__module__", None) or type(value).__module__)
            names.add(type(value).__module__)
            waiting += (
                [one for one in vars(value).values() if callable(one)]
                if hasattr(value, "__dict__") and not isinstance(value, type | ModuleType)
                else []
            )
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def ship(spark: SparkSession, *modules: ModuleType) -> list[str]:
    """Make modules of the user importable on every executor, with the user's modules that they import.

    All import statements in the source are followed; a module of a package ships the whole package. `__main__`, a
    script or a notebook, is serialized with its functions, and only what it imports is shipped. Returns the names of
    the packages and modules sent; nothing is sent twice. Call it before the first slot is launched: a Python process
    keeps a module that it has imported, and Spark reuses its processes.
    """
    sent = []
    if not is_local(spark):
        sent.append("penstock")
        _send(spark, _penstock())
    found: dict[str, list[Path]] = {}
    waiting = [name for module in modules for name in _first(module)]
    while waiting:
        name = waiting.pop()
        places = [] if name in found else _own_places(name)
        if places:
            found[name] = places
            files = [file for place in places for file in _files(place) if file.suffix == ".py"]
            waiting.extend(name for file in files for name in _imported(file))
    if found:
        _send(spark, _zipped(place for places in found.values() for place in places))
    return sorted([*sent, *found])


def _first(module: ModuleType) -> Iterable[str]:
    """Return the names to start with: a module's own, or those that `__main__` imports."""
    if module.__name__ != "__main__":
        return [module.__name__.partition(".")[0]]
    if getattr(module, "__file__", None):
        return _imported(Path(str(module.__file__)))
    # A notebook has no source file: use its global names instead.
    held = list(vars(module).values())
    names = [value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) for value in held]
    return {name.partition(".")[0] for name in names if isinstance(name, str)}


def _own_places(name: str) -> list[Path]:
    """Return the file of a top-level module or the folders of a package, none if it is not the user's."""
    if name in sys.stdlib_module_names or name in ("__main__", "penstock"):
        return []
    # Only folders: an archive may be one that an earlier session sent, and removed since.
    folders = [place for place in sys.path if Path(place).is_dir()]
    found = getattr(sys.modules.get(name), "__spec__", None) or PathFinder.find_spec(name, folders)
    if found is None:
        return []
    places = [Path(place).resolve() for place in found.submodule_search_locations or [str(found.origin)]]
    return [place for place in places if place.exists() and not _INSTALLED.intersection(place.parts)]


def _imported(file: Path) -> set[str]:
    """Return the top-level names that a source file imports; relative imports apart."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # never imported, or it would have failed here
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def _files(place: Path) -> Iterator[Path]:
    """Yield a module's file, or all files of a package, in order."""
    if place.is_file():
        yield place
        return
    for file in sorted(place.rglob("*")):
        inside = file.relative_to(place).parts
        if file.is_file() and not any(part in _IGNORED or part.startswith(".") for part in inside):
            yield file


@cache
def _penstock() -> bytes:
    return _zipped([Path(__file__).parents[2]])


def _zipped(places: Iterable[Path]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for place in sorted(places):
            for file in _files(place):
                archive.writestr(zipfile.ZipInfo(str(file.relative_to(place.parent)), _SAME_TIME), file.read_bytes())
    return made.getvalue()


def _send(spark: SparkSession, archive: bytes) -> None:
    """Send a zip file to Spark; its name depends on its content, since Spark rejects two files of the same name."""
    name = f"penstock-{hashlib.sha256(archive).hexdigest()[:12]}.zip"
    context = spark.sparkContext
    if any(listed.endswith(name) for listed in context.listFiles):
        return
    file = Path(context._temp_dir, name)  # the session's folder: later executors fetch it from there
    file.write_bytes(archive)
    context.addPyFile(str(file))
