"""Files are read back as they were written, and malformed ones are rejected in one line that names the field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.entity import Entity
from penstock.model.errors import FileProblem
from penstock.model.files import load_any, load_application, load_cluster, save
from penstock.model.topology import Application, Component, Kind, Stream
from tests.conftest import Ran
from tests.generators import applications, clusters


@given(st.one_of(applications(), clusters()), st.sampled_from([".toml", ".json"]))
def test_what_is_saved_is_loaded_equal(
    tmp_path_factory: pytest.TempPathFactory, what: Application | Cluster, ending: str
) -> None:
    path = tmp_path_factory.mktemp("files") / f"thing{ending}"
    save(what, path)
    assert load_any(path) == what
    assert [child.name for child in path.parent.iterdir()] == [path.name]


APPLICATION = Application(
    name="app",
    components=(
        Component(name="in", kind=Kind.SOURCE),
        Component(name="work", parallelism=2, cpu=0.5, memory_mb=100),
        Component(name="out", kind=Kind.SINK),
    ),
    streams=(Stream(source="in", target="work"), Stream(source="work", target="out")),
    rate_tps={"in": 10.0},
)
CLUSTER = Cluster(
    name="net",
    machines=(Machine(name="a"), Machine(name="b"), Machine(name="c"), Machine(name="d")),
    switches=("s",),
    links=(Link(source="a", target="s", bandwidth_mbps=1), Link(source="s", target="b", bandwidth_mbps=1)),
)

Change = Callable[[Any], None]


def put(path: str, value: object) -> Change:
    """Return a change that sets the field at a path such as `machines.3.cores`."""

    def change(raw: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            raw = raw[int(step)] if isinstance(raw, list) else raw[step]
        raw[int(last) if isinstance(raw, list) else last] = value

    return change


def drop(path: str) -> Change:
    """Return a change that removes the field at a path."""

    def change(raw: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            raw = raw[int(step)] if isinstance(raw, list) else raw[step]
        del raw[int(last) if isinstance(raw, list) else last]

    return change


WRONG_APPLICATIONS: list[tuple[Change, str]] = [
    (put("components.1.parallelism", 0), "components[1].parallelism: expected a whole number ≥ 1, got 0"),
    (put("components.1.parallelism", -2), "components[1].parallelism: expected a whole number ≥ 1, got -2"),
    (put("components.1.parallelism", 1.5), "components[1].parallelism: expected a whole number, got 1.5"),
    (put("components.1.parallelism", "two"), "components[1].parallelism: expected a whole number, got 'two'"),
    (put("components.1.parallelisable", False), "components[1].parallelism: expected 1"),
    (put("components.1.parallelisable", "no"), "components[1].parallelisable: expected true or false, got 'no'"),
    (put("components.1.max_parallelism", 1), "components[1].parallelism: expected ≤ max_parallelism 1, got 2"),
    (put("components.1.min_parallelism", 3), "components[1].parallelism: expected ≥ min_parallelism 3, got 2"),
    (put("components.1.cpu", -1), "components[1].cpu: expected a number ≥ 0, got -1"),
    (put("components.1.cpu", "fast"), "components[1].cpu: expected a number, got 'fast'"),
    (put("components.1.memory_mb", -0.5), "components[1].memory_mb: expected a number ≥ 0, got -0.5"),
    (put("components.1.kind", "bolt"), "components[1].kind: expected one of source, operator, sink, got 'bolt'"),
    (put("components.1.name", "two words"), "components[1].name: expected a name without white space"),
    (put("components.1.name", ""), "components[1].name: expected a name"),
    (put("components.1.name", 201 * "a"), "not . or .., of 1 to 200 characters, got 'aaa"),
    *(
        (put("components.1.name", name), "components[1].name: expected a name without white space, control characters")
        for name in (".", "..", "a\x1b[2J", "a\x00", "a\x7f", "a\x9b", "a\u202eb", "a\u200b")
    ),
    (put("components.1.name", "in"), "components[1]: 'in' is already at components[0]"),
    (put("components.1.colour", "red"), "components[1].colour: unknown field"),
    (put("components.1.resources", {"gpu": -1.0}), "components[1].resources.gpu: expected a number ≥ 0, got -1.0"),
    (put("components.1.service", {"distribution": "normal"}), "components[1].service.distribution: expected one of"),
    (put("components.1.service", {"distribution": "gamma"}), "components[1].service.cv: expected a number > 0"),
    (put("components.1.service", {"cv": 1.0}), "components[1].service.cv: expected none"),
    (drop("components.1.name"), "components[1].name: missing"),
    (put("components", []), "components: expected at least one"),
    (put("components", 3), "components: expected a list, got 3"),
    (drop("components.1"), "streams[0].target: no component is named 'work'"),
    (drop("name"), "name: missing"),
    (put("streams.0.source", "lost"), "streams[0].source: no component is named 'lost'; there are in, out, work"),
    (put("streams.0.grouping", "random"), "streams[0].grouping: expected one of shuffle, fields"),
    (put("streams.0.grouping", "forward"), "streams[0].grouping: forward joins task k to task k"),
    (put("streams.0.selectivity", -1), "streams[0].selectivity: expected a number ≥ 0, got -1"),
    (put("streams.0.tuple_bytes", None), "streams[0].tuple_bytes: expected a number, got nothing"),
    (put("streams.1.target", "in"), "streams[1].target: 'in' is a source"),
    (put("streams.0", {"source": "out", "target": "work"}), "streams[0].source: 'out' is a sink"),
    (put("streams.1", {"source": "work", "target": "work"}), "streams: they form a cycle, work -> work"),
    (drop("streams.0"), "components[0]: no stream leads on from 'in'"),
    (put("rate_tps", {"work": 1.0}), "rate_tps.work: no source is named 'work'"),
    (put("rate_tps", {"in": 0.0}), "rate_tps.in: expected a number > 0, got 0.0"),
    (put("rate_tps", {"in": 1e300}), "rate_tps.in: expected a number ≤ 1000000000000000, got 1e+300"),
    (put("rate_tps", {"a b": 1.0}), "rate_tps.a b: expected a name without white space"),
    (put("components.1.parallelism", 10**12), "components[1].parallelism: expected a whole number ≤ 100000"),
    (put("availability", 1.5), "availability: expected a number ≤ 1"),
    (put("availability", 1.5), "availability: expected a number ≤ 1, got 1.5"),
]
WRONG_CLUSTERS: list[tuple[Change, str]] = [
    (put("machines.3.cores", -2), "machines[3].cores: expected a whole number ≥ 1, got -2"),
    (put("machines.3.speed", 0), "machines[3].speed: expected a number > 0, got 0"),
    (put("machines.3.memory_mb", -5.0), "machines[3].memory_mb: expected a number > 0, got -5.0"),
    (put("machines.3.slots", 0), "machines[3].slots: expected a whole number ≥ 1, got 0"),
    (put("machines.3.processes", 2), "machines[3].processes: expected ≤ the 1 slots, got 2"),
    (put("machines.3.failure_probability", 2), "machines[3].failure_probability: expected a number ≤ 1, got 2"),
    (put("machines.3.name", "a"), "machines[3]: 'a' is already at machines[0]"),
    (put("machines.3.ram", 5), "machines[3].ram: unknown field; there are"),
    (put("machines.3", "d"), "machines[3]: expected a table, got 'd'"),
    (put("machines", {}), "machines: expected a list"),
    (put("machines", []), "machines: expected at least one"),
    (put("switches", ["a"]), "switches[0]: 'a' is already used"),
    (put("links.1.target", "z"), "links[1].target: no machine or switch is named 'z'"),
    (put("links.1.target", "s"), "links[1].target: expected another end than 's'"),
    (put("links.1.bandwidth_mbps", -1), "links[1].bandwidth_mbps: expected a number ≥ 0, got -1"),
    (drop("links.1.bandwidth_mbps"), "links[1].bandwidth_mbps: missing"),
    (put("links.1.directed", 1), "links[1].directed: expected true or false, got 1"),
    (put("links.1", {"source": "a", "target": "s", "bandwidth_mbps": 2}), "links[1]: 'a--s' is already at links[0]"),
    (put("machines.3.network_mbps", 10.0), "machines[3].network_mbps: expected none on a cluster with links"),
    (put("machines.3.receive_mbps", 10.0), "machines[3].receive_mbps: expected none without network_mbps"),
    (drop("links"), "switches: expected links that join them"),
    (put("machines.3.resources", {"gpu": 1e300}), "machines[3].resources.gpu: expected a number ≤ 1000000000000000"),
    (put("distances", {"same_slot_ms": -1}), "distances.same_slot_ms: expected a number ≥ 0, got -1"),
]
BROKEN_TEXTS = [
    ("app.toml", 'name = "x', "not valid TOML"),
    ("app.json", '{"name": ', "not valid JSON"),
    (
        "app.toml",
        'name = "x"\ncomponents = [{ name = "a", resources = { gpu = inf } }]',
        "components[0].resources.gpu: expected",
    ),
    (
        "app.toml",
        'name = "x"\ncomponents = [{ name = "a", cpu = nan }]',
        "components[0].cpu: expected a number ≥ 0, got nan",
    ),
    ("app.json", "[]", "expected a table, got []"),
    ("app.yaml", "name: x", "ends in .toml or .json"),
]


def test_there_are_at_least_fifty_malformed_files() -> None:
    assert len(WRONG_APPLICATIONS) + len(WRONG_CLUSTERS) + len(BROKEN_TEXTS) >= 50


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), WRONG_APPLICATIONS, ids=[m for _, m in WRONG_APPLICATIONS])
def test_a_wrong_application_is_rejected_in_one_line(
    penstock: Callable[..., Ran], tmp_path: Path, change: Change, message: str
) -> None:
    path = wrong(APPLICATION, change, tmp_path)
    assert_refused(penstock("plan", path, "tata-3"), path, message)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "message"), WRONG_CLUSTERS, ids=[m for _, m in WRONG_CLUSTERS])
def test_a_wrong_cluster_is_rejected_in_one_line(
    penstock: Callable[..., Ran], tmp_path: Path, change: Change, message: str
) -> None:
    path = wrong(CLUSTER, change, tmp_path)
    assert_refused(penstock("plan", "word-count", path), path, message)


@pytest.mark.parametrize(("name", "text", "message"), BROKEN_TEXTS)
def test_a_broken_text_is_rejected_in_one_line(
    penstock: Callable[..., Ran], tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert_refused(penstock("plan", path, "tata-3"), path, message)


def wrong(what: Entity, change: Change, folder: Path) -> Path:
    raw = json.loads(msgspec.json.encode(what))
    change(raw)
    path = folder / "wrong.json"
    path.write_text(json.dumps(raw))
    return path


def assert_refused(ran: Ran, path: Path, message: str) -> None:
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"error: {path}: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err


def test_a_missing_file_or_one_that_is_not_text_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="no such file"):
        load_application(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(FileProblem, match="expected UTF-8 text, byte 0"):
        load_cluster(tmp_path / "binary.toml")


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="cannot be written"):
        save(APPLICATION, tmp_path / "no-such-folder" / "app.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(FileProblem, match="cannot be written"):
        save(APPLICATION, tmp_path / "folder.toml")
    assert [child.name for child in tmp_path.iterdir()] == ["folder.toml"]
