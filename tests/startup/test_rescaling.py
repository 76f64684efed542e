"""A checkpoint is rewritten for other numbers of tasks, or the reason why not is given in one line."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.api.keys import key_group, owner
from penstock.model.errors import InvalidInput, UnknownName
from penstock.runtime.protocol.worker_messages import StatePart
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import CheckpointManifest, unpack_state
from penstock.runtime.storage.disk import Disk
from penstock.runtime.storage.key_groups import StateCodec
from penstock.runtime.worker import keyed_state
from penstock.runtime.worker.keyed_state import KeyedState
from penstock.startup.rescaling import rescale
from penstock.startup.resume import find_resumable, take_over
from penstock.testing import ManualClock, TestCluster
from tests.kept_run import DISK, keep_checkpoint, kept_run, place
from tests.runtime.flows import Given
from tests.runtime.words import words

FOLDER = "/checkpoints"


def counting(tasks: int = 3) -> ps.Dataflow:
    flow = ps.Dataflow("counting")
    given = flow.source("given", ps.Generated(lambda i: f"k{i * i % 97}", rate=1000.0), emits=str)
    counts = flow.stateful_map(
        "count", lambda n, word: (n + 1, (word, n + 1)), given.fields(), initial=0, parallelism=tasks, emits=Any
    )
    flow.sink("out", ps.Discard(), counts)
    return flow


def states(disk: Disk, manifest: CheckpointManifest, component: str) -> list[dict[Any, Any]]:
    """Return the states of the keys that each task of a component reads."""
    found = []
    tasks = manifest.shape.components[component][1]
    for task in range(tasks):
        state = KeyedState(StateCodec(component), task, tasks, ManualClock())
        saved = manifest.kept(f"{component}[{task}]", task)
        own = StatePart(manifest.number, saved.file, saved.offset, saved.size, saved.checksum)
        parts = [*saved.earlier, own]
        state.restore([(part, unpack_state(checkpoints.read_part(disk, FOLDER, part), "")[1]) for part in parts])
        found.append({key: value for group in state.groups() for key, value in group.states.items()})
    return found


def test_key_groups_go_to_their_new_owners_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_state, "SMALL", 0)
    cluster = TestCluster(counting(), workers=2, checkpoint_s=0.2).start()
    cluster.advance(1.3)
    manifest, _ = checkpoints.find_latest(cluster.disk, FOLDER)
    assert manifest is not None
    everything = {key: value for state in states(cluster.disk, manifest, "count") for key, value in state.items()}
    assert len(everything) > 20
    for tasks in (5, 1, 4, 3):
        manifest = rescale(cluster.disk, FOLDER, manifest, counting(tasks)).write(cluster.disk, FOLDER)
        checkpoints.verify(cluster.disk, FOLDER, manifest)
        found = states(cluster.disk, manifest, "count")
        assert len(found) == tasks
        assert {key: value for state in found for key, value in state.items()} == everything
        assert all(owner(key_group(key), tasks) == task for task, state in enumerate(found) for key in state)


def test_files_that_a_rescaled_checkpoint_uses_are_kept() -> None:
    cluster = TestCluster(counting(), workers=2, checkpoint_s=0.2).start()
    cluster.advance(1.3)
    manifest, _ = checkpoints.find_latest(cluster.disk, FOLDER)
    assert manifest is not None
    rescaled = rescale(cluster.disk, FOLDER, manifest, counting(7)).write(cluster.disk, FOLDER)
    checkpoints.retire(cluster.disk, FOLDER, [rescaled])
    assert checkpoints.numbers(cluster.disk, FOLDER) == [rescaled.number]
    checkpoints.verify(cluster.disk, FOLDER, rescaled)


def test_a_component_without_state_may_have_any_number_of_tasks(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 12)
    found = take_over(*find_resumable(info.path), words().resized({"split": 5}), {"split": 5})
    assert "'split' has 5 tasks instead of 2" in found.notes
    assert checkpoints.numbers(DISK, place(info)) == [12]  # nothing has changed yet
    manifest = found.clear().manifest
    found.lock.release()
    assert manifest is not None
    assert checkpoints.numbers(DISK, place(info))[0] == manifest.number == 13
    assert manifest.shape == checkpoints.shape_of(words().resized({"split": 5}))
    saved = manifest.kept("count[0]", 0)
    path = f"{checkpoints.folder_of(place(info), 13)}/{saved.file}"
    _, state = unpack_state(checkpoints.read(DISK, path, saved.offset, saved.size, saved.checksum), path)
    assert msgspec.msgpack.decode(state) == {"the": 7, "a": 3}
    again = take_over(*find_resumable(info.path), words().resized({"split": 5}))
    again.lock.release()
    assert again.manifest == manifest


class Divided(ps.Sink[Any]):
    def snapshot(self) -> dict[str, int]:
        return {}

    def rescale(self, states: Sequence[dict[str, int]], tasks: int) -> Sequence[dict[str, int]]:
        if tasks == 7:
            raise ValueError("not seven")
        return states if tasks == 8 else [states[0]] * tasks


REFUSED = [
    ("lines", 3, r"Given cannot divide its state among another number of tasks; keep .*, or give Given a method resc"),
    ("count", 3, r"it keeps its state itself, as one value per task; keep .*, or keep its state by key, with stateful"),
    ("out", 7, r"its rescale raised ValueError: not seven; keep the number of tasks"),
    ("out", 8, r"its rescale returned 2 states for 8 tasks; keep the number of tasks"),
]


@pytest.mark.parametrize(("component", "tasks", "problem"), REFUSED, ids=[f"{name}-{n}" for name, n, _ in REFUSED])
def test_what_cannot_be_divided_is_refused_with_the_reason(
    tmp_path: Path, component: str, tasks: int, problem: str
) -> None:
    flow = words(sink=Divided())
    flow.parts["lines"] = replace(flow.parts["lines"], logic=lambda: Given([]))
    info = kept_run(tmp_path, flow)
    keep_checkpoint(info, 12, flow, {"lines[0]": 1, "count[0]": {"a": 1}, "out[0]": {"a": 1}, "out[1]": {"b": 2}})
    before = {path.name for path in info.path.rglob("*")}
    with pytest.raises(InvalidInput, match=rf"^execution.parallelism: '{component}' cannot have {tasks} .*, {problem}"):
        take_over(*find_resumable(info.path), flow.resized({component: tasks}), {component: tasks})
    assert {path.name for path in info.path.rglob("*")} - {"lock"} == before


def test_another_number_of_tasks_must_be_asked_for(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 12)
    problem = r"'split' was operator × 2 and is operator × 5. .* with --parallelism split=5, or start a new run$"
    with pytest.raises(InvalidInput, match=problem):
        take_over(*find_resumable(info.path), words().resized({"split": 5}))


def test_a_dataflow_is_resized() -> None:
    flow = counting()
    assert flow.resized({"count": 9}).application["count"].parallelism == 9
    assert flow.application["count"].parallelism == 3
    with pytest.raises(UnknownName, match=r"^parallelism.cuont: 'counting' has no component 'cuont'; did you mean"):
        flow.resized({"cuont": 2})
    with pytest.raises(InvalidInput, match=r"^parallelism.count: keys can be distributed to at most 4096 tasks"):
        flow.resized({"count": 5000})
    with pytest.raises(InvalidInput, match=r"^parallelism.count: expected"):
        flow.resized({"count": 0})
