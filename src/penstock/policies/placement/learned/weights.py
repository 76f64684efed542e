"""Files of trained networks: one `.npz` with arrays and a JSON header, which has the checksum and the provenance.

A file contains no code. One that is corrupt, or of another network, is rejected in one line.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.model.decoding import decode_json
from penstock.model.errors import FileProblem
from penstock.model.files import write_whole
from penstock.policies.placement.learned.features import Singles

FORMAT = "penstock placement network"
VERSION = 1
HEADER = "header"
NETWORKS = ("neural", "tata", "ni")
AGAIN = "train it again with penstock models train placement"
SHIPPED = Path(__file__).parent / "weights"


class Provenance(msgspec.Struct, frozen=True):
    """How a network came about."""

    network: str  # neural, tata or ni
    settings: dict[str, Any]  # of the training
    data: str  # the instances of the training
    seed: int
    commit: str
    steps: int
    placements: int
    device: str
    curve: list[tuple[int, float]]  # step and mean reward of validation, greedy


class _Header(msgspec.Struct):
    format: str
    version: int
    checksum: str
    provenance: Provenance


class Network:
    """The arrays of a trained network, by name, and its provenance."""

    def __init__(self, arrays: Mapping[str, Singles], provenance: Provenance) -> None:
        self.arrays, self.provenance = dict(arrays), provenance

    def __getitem__(self, name: str) -> Singles:
        return self.arrays[name]


def save_network(path: Path, arrays: Mapping[str, Singles], provenance: Provenance) -> None:
    """Write a network to a file."""
    singles = {name: np.asarray(array, dtype=np.float32) for name, array in sorted(arrays.items())}
    header = _Header(FORMAT, VERSION, _checksum(singles, provenance), provenance)
    buffer = BytesIO()
    text = np.frombuffer(msgspec.json.encode(header), dtype=np.uint8)
    np.savez_compressed(buffer, **{HEADER: text}, **singles)  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())


def load_network(path: Path, network: str) -> Network:
    """Read a network from a file; `network` is the kind that is expected."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileProblem.of(error, path, "cannot be read", "name a file of penstock models train placement") from None
    try:
        with np.load(BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError):
        raise FileProblem(f"{path}: is no .npz file, or a damaged one; {AGAIN}") from None
    header = _header(path, arrays.pop(HEADER, None))
    if _checksum(arrays, header.provenance) != header.checksum:
        raise FileProblem(f"{path}: its checksum differs, it is damaged; {AGAIN}")
    if header.provenance.network != network:
        raise FileProblem(
            f"{path}: has weights of {header.provenance.network!r}, expected {network!r}; name another file"
        )
    return Network(arrays, header.provenance)


@cache
def shipped_network(network: str) -> Network:
    """Return the network that is part of the package."""
    return load_network(SHIPPED / f"{network}.npz", network)


def chosen_network(network: str, file: str | None) -> Network:
    """Return the network of a file, or else the shipped one."""
    return shipped_network(network) if file is None else _kept(file, network)


@cache
def _kept(file: str, network: str) -> Network:
    return load_network(Path(file), network)


def _header(path: Path, text: Any) -> _Header:
    if text is None or text.dtype != np.uint8:
        raise FileProblem(f"{path}: has no weights of a placement network; name another file")
    try:
        header: _Header = decode_json(text.tobytes(), _Header)
    except Exception:
        raise FileProblem(f"{path}: its header is damaged or of another version; {AGAIN}") from None
    if (header.format, header.version) != (FORMAT, VERSION):
        raise FileProblem(f"{path}: is {header.format!r} version {header.version}, expected {VERSION}; {AGAIN}")
    return header


def _checksum(arrays: Mapping[str, Singles], provenance: Provenance) -> str:
    digest = hashlib.sha256(msgspec.json.encode(provenance))
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
