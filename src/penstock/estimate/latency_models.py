"""Trained models of one application's latencies, and their file format.

A file is one `.npz`: the arrays of all regressors, and a JSON header with the features, the application's shape, the
version and a checksum of everything. It contains no code. A file that is corrupt, or was created for other features or
another application, is rejected in one line.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.estimate.regression import KINDS, Regressor, Scaling
from penstock.model.cluster import Cluster, Machine
from penstock.model.decoding import decode_json
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.features import EDGE_FEATURES, TASK_FEATURES, WINDOW_S
from penstock.model.files import write_whole
from penstock.model.taskgraph import Floats
from penstock.model.topology import Kind, Topology

VERSION = 3
FORMAT = "penstock latency models"
HEADER = "header"
AGAIN = "train again"
SHOWN = 3  # number of machines, and of kinds of machines, that a warning lists
ALIKE = 0.01  # relative tolerance for a machine's cpu and memory to equal those of the training


@dataclass(frozen=True, eq=False)
class ModelSet:
    """A regressor for every component that processes tuples, and for every stream."""

    components: Mapping[str, Regressor]
    streams: Mapping[str, Regressor]  # by label, `source->target`


@dataclass(frozen=True, eq=False)
class LatencyModels(ModelSet):
    """The models used for prediction, and simpler ones trained on the same rows for comparison."""

    application: str = ""
    parallelism: Mapping[str, int] = field(default_factory=dict)  # tasks of each component in the training, for display
    beside: Mapping[str, ModelSet] = field(default_factory=dict)  # simpler models by kind: mean, linear
    window_s: float = WINDOW_S
    notes: Mapping[str, Any] = field(default_factory=dict)  # information on the training, for display
    checksum: str = ""  # of the file
    machines: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # trained on: cpu and memory (MB)
    runs: Mapping[str, str] = field(default_factory=dict)  # trained on: name -> digest of the measurements

    def foreign(self, cluster: Cluster) -> str:
        """Return a warning about machines on which the models were not trained; empty if there are none.

        Models without training tables have no machines.
        """
        here = {one.name: (one.cpu, one.memory_mb) for one in cluster.machines if not self._knows(one)}
        if not here or not self.machines:
            return ""
        where = f"the model was trained on {_listed(self.machines)}, not on {_listed(here)} of {cluster.name!r}"
        return f"{where}; its predictions may be inaccurate: {AGAIN} on runs of this cluster"

    def _knows(self, machine: Machine) -> bool:
        seen = self.machines.get(machine.name)
        own = (machine.cpu, machine.memory_mb)
        return seen is not None and all(abs(a - b) <= ALIKE * b for a, b in zip(own, seen, strict=True))

    def check(self, topology: Topology) -> None:
        """Raise for an application with components or streams that the models lack, or without some that they have."""
        own = [component.name for component in topology.components if component.kind is not Kind.SOURCE]
        for noun, known, wanted in (
            ("component", self.components, own),
            ("stream", self.streams, [stream.label for stream in topology.streams]),
        ):
            trained = f"was trained for {self.application!r}, which has"
            for name in wanted:
                if name not in known:
                    problem = f"it {trained} no {noun} {name!r}, as {topology.name!r} has; {AGAIN} on its tables"
                    raise InvalidInput("model", problem)
            for name in known:
                if name not in wanted:
                    problem = f"it {trained} a {noun} {name!r}, which {topology.name!r} lacks; {AGAIN} on its tables"
                    raise InvalidInput("model", problem)


def _listed(machines: Mapping[str, tuple[float, float]]) -> str:
    """Describe machines by their capacity, the most frequent kinds first."""
    kinds: dict[tuple[float, float], list[str]] = {}
    for name, kind in machines.items():
        kinds.setdefault(kind, []).append(name)
    groups = []
    for (cpu, memory), names in sorted(kinds.items(), key=lambda one: -len(one[1])):
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        groups.append(f"{', '.join(names[:SHOWN])}{more} (cpu {cpu:g}, {memory:g} MB)")
    return ", ".join(groups[:SHOWN]) + (f" and {len(groups) - SHOWN} other kinds" if len(groups) > SHOWN else "")


class _Entry(msgspec.Struct):
    """A regressor's numbers; its arrays are named by its position in the list."""

    set: str  # "" for the models themselves, else the kind of simpler models
    of: str  # component or stream
    name: str
    kind: str
    bias: float
    gamma: float
    label_centre: float
    label_spread: float
    shortest: float
    longest: float
    logarithm: bool


class _Header(msgspec.Struct):
    format: str
    version: int
    task_features: tuple[str, ...]
    edge_features: tuple[str, ...]
    window_s: float
    application: str
    parallelism: dict[str, int]
    models: list[_Entry]
    checksum: str
    notes: dict[str, Any] = {}
    machines: dict[str, tuple[float, float]] = {}
    runs: dict[str, str] = {}


def save_models(models: LatencyModels, path: str | Path) -> None:
    """Write models to a file, atomically."""
    entries: list[_Entry] = []
    arrays: dict[str, Floats] = {}
    sets = {"": models, **models.beside}
    for called, one in sets.items():
        for of, regressors in (("component", one.components), ("stream", one.streams)):
            for name, regressor in regressors.items():
                arrays |= _arrays(len(entries), regressor)
                entries.append(_entry(called, of, name, regressor))
    header = _Header(
        format=FORMAT,
        version=VERSION,
        task_features=TASK_FEATURES,
        edge_features=EDGE_FEATURES,
        window_s=models.window_s,
        application=models.application,
        parallelism=dict(models.parallelism),
        models=entries,
        checksum="",
        notes=dict(models.notes),
        machines=dict(models.machines),
        runs=dict(models.runs),
    )
    header.checksum = _checksum(header, arrays)
    packed = BytesIO()
    text = np.frombuffer(msgspec.json.encode(header), dtype=np.uint8)
    np.savez(packed, **{HEADER: text, **arrays})  # type: ignore[arg-type]
    write_whole(Path(path), packed.getvalue())


def load_models(path: str | Path) -> LatencyModels:
    """Read models from a file; reject one that is corrupt or was created for other features."""
    header, arrays = _read(Path(path))
    for noun, found, wanted in (
        ("tasks", header.task_features, TASK_FEATURES),
        ("edges", header.edge_features, EDGE_FEATURES),
    ):
        if tuple(found) != wanted:
            odd = next((name for name in found if name not in wanted), ", ".join(found))
            raise FileProblem(f"{path}: features of {noun} differ from those of this version, such as {odd!r}; {AGAIN}")
    sets: dict[str, tuple[dict[str, Regressor], dict[str, Regressor]]] = {}
    for number, entry in enumerate(header.models):
        width = len(TASK_FEATURES if entry.of == "component" else EDGE_FEATURES)
        regressor = _regressor(Path(path), entry, number, arrays, width)
        sets.setdefault(entry.set, ({}, {}))[entry.of == "stream"][entry.name] = regressor
    components, streams = sets.pop("", ({}, {}))
    return LatencyModels(
        components,
        streams,
        application=header.application,
        parallelism=header.parallelism,
        beside={name: ModelSet(*pair) for name, pair in sets.items()},
        window_s=header.window_s,
        notes=header.notes,
        checksum=header.checksum,
        machines=header.machines,
        runs=header.runs,
    )


def _read(path: Path) -> tuple[_Header, dict[str, Floats]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}; check the path") from None
    try:
        with np.load(BytesIO(data), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        header: _Header = decode_json(arrays.pop(HEADER).tobytes(), _Header)
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, RuntimeError) as error:
        why = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        if "allow_pickle" in why:  # numpy's advice on an unknown file
            why = "it is not in numpy's format"
        raise FileProblem(f"{path}: is not a valid file of latency models, {why}; {AGAIN}") from None
    if header.format != FORMAT or header.version != VERSION:
        found = f"{header.format!r}, version {header.version}"
        raise FileProblem(f"{path}: expected {FORMAT!r}, version {VERSION}, got {found}; {AGAIN}")
    if _checksum(header, arrays) != header.checksum:
        raise FileProblem(f"{path}: is damaged, its checksum differs; {AGAIN}")
    return header, arrays


def _checksum(header: _Header, arrays: Mapping[str, Floats]) -> str:
    """Return the digest of the content: every array with its name and shape, and the header without the digest."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    digest.update(msgspec.json.encode(msgspec.structs.replace(header, checksum=""), order="deterministic"))
    return digest.hexdigest()


def _entry(called: str, of: str, name: str, regressor: Regressor) -> _Entry:
    scaling = regressor.scaling
    return _Entry(
        set=called,
        of=of,
        name=name,
        kind=regressor.kind,
        bias=regressor.bias,
        gamma=regressor.gamma,
        label_centre=scaling.label_centre,
        label_spread=scaling.label_spread,
        shortest=scaling.shortest,
        longest=scaling.longest,
        logarithm=scaling.logarithm,
    )


def _arrays(number: int, regressor: Regressor) -> dict[str, Floats]:
    scaling = regressor.scaling
    ranges = np.stack([scaling.centre, scaling.spread, scaling.least, scaling.most, scaling.limit])  # [5, F]
    return {f"{number}/ranges": ranges, f"{number}/vectors": regressor.vectors, f"{number}/weights": regressor.weights}


def _regressor(path: Path, entry: _Entry, number: int, arrays: Mapping[str, Floats], width: int) -> Regressor:
    parts = [arrays.get(f"{number}/{name}") for name in ("ranges", "vectors", "weights")]
    ranges, vectors, weights = parts
    known = entry.kind in KINDS and entry.of in ("component", "stream")
    if ranges is None or vectors is None or weights is None or not known:
        raise FileProblem(f"{path}: the model of {entry.of} {entry.name!r} is incomplete or of unknown kind; {AGAIN}")
    if ranges.shape != (5, width) or vectors.shape != (len(weights), width):
        raise FileProblem(f"{path}: the model of {entry.of} {entry.name!r} has another shape; {AGAIN}")
    centre, spread, least, most, limit = ranges
    scaling = Scaling(
        centre=centre,
        spread=spread,
        least=least,
        most=most,
        limit=limit,
        label_centre=entry.label_centre,
        label_spread=entry.label_spread,
        shortest=entry.shortest,
        longest=entry.longest,
        logarithm=entry.logarithm,
    )
    return Regressor(entry.kind, scaling, entry.bias, entry.gamma, vectors, weights)


def pack_regressor(regressor: Regressor) -> bytes:
    """Serialise a regressor, for sending it from where it was trained."""
    packed = BytesIO()
    text = np.frombuffer(msgspec.json.encode(_entry("", "component", "", regressor)), dtype=np.uint8)
    np.savez(packed, **{HEADER: text, **_arrays(0, regressor)})  # type: ignore[arg-type]
    return packed.getvalue()


def unpack_regressor(data: bytes) -> Regressor:
    """Deserialise a regressor."""
    with np.load(BytesIO(data), allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    entry = decode_json(arrays.pop(HEADER).tobytes(), _Entry)
    return _regressor(Path("regressor"), entry, 0, arrays, arrays["0/ranges"].shape[1])
