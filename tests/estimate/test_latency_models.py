from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.estimate import latency_models
from penstock.estimate.latency import LatencyModels, ModelSet, load_models, save_models
from penstock.estimate.latency_models import pack_regressor, unpack_regressor
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.topology import Topology
from tests.estimate.latency_cases import random_regressor
from tests.policies.cases import chain


def some_models(seed: int = 0) -> LatencyModels:
    rng = np.random.default_rng(seed)
    tasks, edges = rng.random((40, 5)) * 100, rng.random((40, 9)) * 100
    kinds = ("mean", "linear", "svr-rbf")
    return LatencyModels(
        {f"c{i}": random_regressor(rng, tasks, kinds[i]) for i in (1, 2)},
        {f"c{i}->c{i + 1}": random_regressor(rng, edges, kinds[i + 1]) for i in (0, 1)},
        application="chain",
        parallelism={"c0": 1, "c1": 2, "c2": 1},
        beside={"mean": ModelSet({"c1": random_regressor(rng, tasks, "mean")}, {})},
        window_s=10.0,
        notes={"component c1": {"accuracy": 0.9, "rows": 40}, "component c2": {"accuracy": None}},
    )


def same(one: ModelSet, other: ModelSet) -> bool:
    rng = np.random.default_rng(1)
    for ours, theirs, width in ((one.components, other.components, 5), (one.streams, other.streams, 9)):
        rows = rng.random((30, width)) * 150
        if list(ours) != list(theirs) or any((ours[n].predict(rows) != theirs[n].predict(rows)).any() for n in ours):
            return False
    return True


def test_what_is_saved_is_read_back_equal(tmp_path: Path) -> None:
    models = some_models()
    save_models(models, tmp_path / "models.npz")
    read = load_models(tmp_path / "models.npz")
    assert same(models, read)
    assert same(models.beside["mean"], read.beside["mean"])
    assert (read.application, read.window_s, read.parallelism) == ("chain", 10.0, models.parallelism)
    assert read.notes == models.notes


def test_a_packed_regressor_is_unpacked_equal() -> None:
    model = some_models().components["c2"]
    rows = np.random.default_rng(2).random((10, 5)) * 100
    assert (unpack_regressor(pack_regressor(model)).predict(rows) == model.predict(rows)).all()


def test_a_flipped_byte_is_detected_or_has_no_effect(tmp_path: Path) -> None:
    models, path = some_models(), tmp_path / "models.npz"
    save_models(models, path)
    whole = path.read_bytes()
    refused = 0
    for place in np.random.default_rng(3).integers(0, len(whole), 150).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        problem = _refusal(path, models)
        refused += bool(problem)
        assert "\n" not in problem
        assert problem.startswith(str(path)) or not problem
    assert refused >= 60  # the rest is the archive's own, such as dates


def _refusal(path: Path, models: LatencyModels) -> str:
    """Return why a file is rejected; empty if it is read as it was written."""
    try:
        read = load_models(path)
    except FileProblem as problem:
        return str(problem)
    assert same(read, models)
    return ""


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_rejects_a_truncated_file(tmp_path: Path, share: float) -> None:
    path = tmp_path / "models.npz"
    save_models(some_models(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(FileProblem, match="train again"):
        load_models(path)


def test_rejects_consistently_changed_numbers(tmp_path: Path) -> None:
    path = tmp_path / "models.npz"
    save_models(some_models(), path)
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    arrays["1/ranges"] = arrays["1/ranges"] * 2
    np.savez(path, **arrays)
    with pytest.raises(FileProblem, match="checksum"):
        load_models(path)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"version": 99}, "version 3"),
        ({"version": 1}, "version 3, got .* version 1; train again"),  # its features had other meanings
        ({"version": 2}, "version 3, got .* version 2; train again"),  # it does not contain where it was trained
        ({"format": "something else"}, "something else"),
        ({"task_features": ["machine_cpu", "moon_phase"]}, "moon_phase"),
    ],
)
def test_rejects_another_version_or_other_features(tmp_path: Path, change: dict[str, object], reported: str) -> None:
    path = tmp_path / "models.npz"
    save_models(some_models(), path)
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    header = msgspec.json.decode(arrays.pop("header").tobytes()) | change | {"checksum": ""}
    typed = msgspec.convert(header, latency_models._Header)
    header["checksum"] = latency_models._checksum(typed, arrays)
    np.savez(path, header=np.frombuffer(msgspec.json.encode(header), dtype=np.uint8), **arrays)
    with pytest.raises(FileProblem, match=reported):
        load_models(path)


def test_rejects_a_missing_file_or_one_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="cannot be read"):
        load_models(tmp_path / "none.npz")
    (tmp_path / "plan.npz").write_text("tasks = 1")
    with pytest.raises(FileProblem, match="not a valid file of latency models"):
        load_models(tmp_path / "plan.npz")


def test_contains_no_code(tmp_path: Path) -> None:
    path = tmp_path / "models.npz"
    np.savez(path, header=np.array([object()], dtype=object))
    with pytest.raises(FileProblem):
        load_models(path)


@pytest.mark.parametrize(
    ("other", "reported"),
    [
        (chain(1, 2, 1, 1), "no component 'c3'"),
        (chain(1, 2), "a component 'c2'"),
        (Topology(name="x", components=chain(1, 1, 1).components, streams=(*chain(1, 1, 1).streams,)), ""),
    ],
)
def test_rejects_an_application_other_than_the_trained_one(other: Topology, reported: str) -> None:
    if not reported:
        some_models().check(other)
        return
    with pytest.raises(InvalidInput, match=reported):
        some_models().check(other)
