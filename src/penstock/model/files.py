"""Applications, clusters, plans and costs as TOML or JSON files.

Reading a written file returns an equal object. A file that cannot be read is rejected in one line that names the file
and the field. Files are written under a temporary name and then renamed, so that readers never see an incomplete file.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.decoding import Undecodable, decode_json, decode_toml
from penstock.model.entity import Entity, to_invalid_input
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.plan import Plan
from penstock.model.topology import Application

E = TypeVar("E", bound=Entity)

_TELLTALE: dict[str, type[Entity]] = {"machines": Cluster, "components": Application, "tasks": Plan}
_NOUN: dict[type[Entity], str] = {Cluster: "a cluster", Application: "an application", Plan: "a plan", Costs: "costs"}


def load_application(path: str | Path) -> Application:
    """Read an application."""
    return _decode(Path(path), _read(Path(path)), Application)


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster."""
    return _decode(Path(path), _read(Path(path)), Cluster)


def load_plan(path: str | Path) -> Plan:
    """Read a plan."""
    return _decode(Path(path), _read(Path(path)), Plan)


def load_costs(path: str | Path) -> Costs:
    """Read the overheads of an engine, and the measured costs of components and streams."""
    return _decode(Path(path), _read(Path(path)), Costs)


def load_any(path: str | Path) -> Application | Cluster | Plan:
    """Read an application, a cluster or a plan, depending on the content."""
    raw = _read(Path(path))
    for field, kind in _TELLTALE.items():
        if isinstance(raw, dict) and field in raw:
            found = _decode(Path(path), raw, kind)
            assert isinstance(found, Application | Cluster | Plan), "the table has no other types"
            return found
    raise FileProblem(f"{path}: expected components, machines or tasks at the top, for an application, cluster or plan")


def load_table(path: str | Path) -> dict[str, Any]:
    """Read a table of names and values."""
    raw = _read(Path(path))
    if not isinstance(raw, dict):
        raise FileProblem(f"{path}: expected a table of names and values; write NAME = VALUE")
    found: dict[str, Any] = msgspec.to_builtins(raw)
    return found


def save(what: Entity, path: str | Path) -> None:
    """Write an application, cluster, plan or costs, as TOML or JSON depending on the file's extension."""
    target = Path(path)
    builtins = msgspec.to_builtins(what)
    if _ending(target) == ".json":
        data = msgspec.json.format(msgspec.json.encode(builtins), indent=2) + b"\n"
    else:
        data = msgspec.toml.encode(builtins)
    write_whole(target, data)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: it appears complete or not at all."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise FileProblem.of(error, path, "cannot be written", "choose another path") from None


def make_folder(path: Path, remedy: str = "choose another folder") -> None:
    """Create a folder, with those above it; one that exists is kept."""
    with FileProblem.on(path, "cannot be created", remedy):
        path.mkdir(parents=True, exist_ok=True)


def read_text(path: Path) -> str:
    """Read a text file."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileProblem(f"{path}: expected UTF-8 text, byte {error.start} is not; save the file as UTF-8") from None
    except OSError as error:
        raise FileProblem.of(error, path, "cannot be read", "check the path") from None


def _read(path: Path) -> Any:
    ending = _ending(path)
    text = read_text(path)
    try:
        return decode_json(text) if ending == ".json" else decode_toml(text)
    except Undecodable as error:
        kind = "JSON" if ending == ".json" else "TOML"
        raise FileProblem(f"{path}: not valid {kind}, {error}; correct it there") from None


def _decode(path: Path, raw: Any, kind: type[E]) -> E:
    if (other := _other_kind(raw, kind)) is not None:
        raise FileProblem(f"{path}: expected {_NOUN[kind]}, this is {_NOUN[other]}; choose another file")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        invalid = to_invalid_input(error, raw, kind)
        raise type(invalid)("", f"{path}: {invalid}") from None
    except InvalidInput as invalid:
        raise type(invalid)("", f"{path}: {invalid}") from None


def _other_kind(raw: Any, kind: type[Entity]) -> type[Entity] | None:
    """Return the kind of object in the file if it is clearly not `kind`; costs have tables where others have lists."""
    own = next((name for name, known in _TELLTALE.items() if known is kind), None)
    if not isinstance(raw, dict) or own in raw:
        return None
    found = [other for field, other in _TELLTALE.items() if field in raw and (own or isinstance(raw[field], list))]
    return found[0] if found else None


def _ending(path: Path) -> str:
    if path.suffix.lower() not in (".toml", ".json"):
        raise FileProblem(f"{path}: expected a name that ends in .toml or .json; rename it")
    return path.suffix.lower()


def _umask() -> int:
    """Return the process's file mode mask without changing it, if possible, as other threads may be creating files."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    current = os.umask(0o077)
    os.umask(current)
    return current
