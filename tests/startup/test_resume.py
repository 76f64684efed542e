"""Taking runs over: from where they go on, and what is refused, in one line and with nothing changed."""

import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

import penstock as ps
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.session import running_session
from penstock.planning.failover_placement import completion
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import Outside, UnknownFormat
from penstock.runtime.storage.run_folder import RunInfo, RunInUse, RunLock, load, write_info
from penstock.startup.resume import (
    AlreadyCompleted,
    Resumption,
    emulated_cluster,
    find_resumable,
    plan_of,
    refuse_folders,
    take_over,
)
from tests.kept_run import damage, keep_checkpoint, keep_journal, kept_run, place
from tests.runtime.words import words
from tests.settings import arguments, config

CONFIG = config()


def taken(info: RunInfo, flow: ps.Dataflow | None = None) -> Resumption:
    """Take a run and let go of it again."""
    found = take_over(*find_resumable(info.path), flow or words())
    found.lock.release()
    return found


def refused(kind: type[PenstockError], info: RunInfo, flow: ps.Dataflow | None = None, **settings: Any) -> str:
    """Return the one line by which a resume is refused; its folder must be as it was, and its lock free."""
    before = (info.path / "run.json").read_bytes()
    with pytest.raises(kind) as error:
        ps.run(flow or words(), resume=info.path, **arguments(**settings))
    assert "\n" not in str(error.value)
    assert (info.path / "run.json").read_bytes() == before
    assert running_session() is None
    RunLock(info).release()
    return str(error.value)


# Where it continues


def test_goes_on_from_the_last_checkpoint_in_the_last_epoch_where_tasks_should_be(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 11)
    manifest = keep_checkpoint(info, 12)
    keep_journal(info, 5, {**manifest.placement, "count[0]": "local/1"})
    found = taken(info)
    assert (found.manifest, found.epoch, found.policy) == (manifest, 5, "t-storm")
    assert found.placement["count[0]"] == "local/1"
    assert found.warnings == []
    assert found.notes[0] == f"run {info.run} continues from checkpoint 12, after 40 source tuples"


def test_a_checkpoint_that_is_not_complete_does_not_count(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 11)
    keep_checkpoint(info, 12)
    Path(checkpoints.folder_of(place(info), 12), "manifest.json").unlink()
    found = taken(info).manifest
    assert found is not None
    assert found.number == 11


@pytest.mark.parametrize("file", ["w0.e3", "manifest.json"])
def test_a_damaged_checkpoint_is_passed_over_and_told_of(tmp_path: Path, file: str) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 11)
    keep_checkpoint(info, 12)
    path = damage(info, 12, file)
    found = taken(info)
    assert found.manifest is not None
    assert found.manifest.number == 11
    (warning,) = found.warnings
    assert warning.startswith(f"checkpoint 12 cannot be used: {path}: damaged, ")
    heard: list[str] = []
    found.report(heard.append)
    assert heard == [f"warning: {warning}", *found.notes]
    assert f"warning controller: {warning}" in info.log_path.read_text()


def test_what_came_after_the_checkpoint_is_taken_back(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    kept, later = info.output_path / "part-0.jsonl", info.output_path / "part-1.jsonl"
    for path in (kept, later):
        path.write_text("")
    keep_checkpoint(info, 11, pending={"out[0]": ((str(kept.with_name("_0")), str(kept)),)})
    keep_checkpoint(info, 12, pending={"out[0]": ((str(later.with_name("_1")), str(later)),)})
    damage(info, 12)
    Path(checkpoints.folder_of(place(info), 13)).mkdir()
    taken(info).clear()
    assert sorted(path.name for path in info.checkpoints_path.iterdir()) == ["000011"]
    assert list(info.output_path.iterdir()) == [kept]


def test_a_run_without_a_complete_checkpoint_begins_anew_in_a_later_epoch(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_journal(info, 4, {})
    found = taken(info)
    assert (found.manifest, found.epoch) == (None, 4)
    assert found.notes == [f"run {info.run} has no complete checkpoint, it starts from the beginning"]


def test_another_version_of_penstock_is_told_of(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1, version="0.0.1")
    reported = f"its checkpoint is of Penstock 0.0.1, this is {version('penstock')}; the format is the same"
    assert reported in taken(info).notes


def test_without_a_journal_the_checkpoint_says_where_tasks_were(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    manifest = keep_checkpoint(info, 2)
    found = taken(info)
    assert (found.epoch, found.placement, found.policy) == (3, manifest.placement, "round-robin")


def test_the_tuple_policies_are_those_that_were_in_force_or_that_it_was_started_with(tmp_path: Path) -> None:
    info = kept_run(tmp_path, routing="potus")
    found = taken(info)
    assert found.config.tuple_policies == TuplePolicies(routing="potus")
    found.lock.release()
    keep_journal(info, 2, {}, routing="shuffle")
    assert taken(info).config.tuple_policies == TuplePolicies(routing="shuffle")


def test_limits_are_those_that_were_in_force_or_that_it_was_started_with(tmp_path: Path) -> None:
    info = kept_run(tmp_path, limits={"lines": 10.0})
    found = taken(info)
    assert found.config.limits == {"lines": 10.0}
    found.lock.release()
    keep_journal(info, 2, {}, limits={"lines": 3.0})
    assert taken(info).config.limits == {"lines": 3.0}


# What is refused


def test_an_application_of_another_shape_is_refused_with_all_the_differences(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 12)
    other = ps.Dataflow("words")
    lines = other.source("lines", ps.Generated(str, rate=10), emits=str, parallelism=2)
    other.sink("file", ps.Discard(), lines)
    reported = refused(InvalidInput, info, other)
    assert reported.startswith(f"resume: checkpoint 12 of run {info.run} does not fit 'words': ")
    for difference in (
        "component 'count' was removed",
        "component 'file' is new",
        "component 'lines' was source × 1 and is source × 2",
        "stream lines->split shuffle was removed",
        "stream lines->file shuffle is new",
    ):
        assert difference in reported
    assert reported.endswith("Resume it with the application as it was, or start a new run")


def test_a_run_that_another_driver_has_is_refused(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1)
    lock = RunLock(info)
    with pytest.raises(RunInUse, match=f"run {info.run} is being run by process {os.getpid()}"):
        ps.run(words(), resume=info.path)
    lock.release()
    assert load(info.path) == info


def test_a_path_that_was_given_up_is_refused_also_where_that_has_just_happened(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1)
    found = find_resumable(info.path)
    write_info(msgspec.structs.replace(info, given_up=True))
    reported = "resume: run .* was a path that was given up, its tuples are with the application's other paths"
    with pytest.raises(InvalidInput, match=reported):
        take_over(*found, words())
    assert "penstock cluster serve" in refused(InvalidInput, info)


def test_a_run_at_its_end_has_nothing_to_resume(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 3, last=True)
    reported = refused(AlreadyCompleted, info)
    assert reported == (
        f"run {info.run} has completed, there is nothing to resume; its output is in {info.output_path}"
    )


def test_what_was_ready_at_the_end_is_published_where_the_driver_died_before(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    ready, final = info.output_path / "_part.e3", info.output_path / "part.jsonl"
    ready.write_text("all of it\n")
    keep_checkpoint(info, 3, pending={"out[0]": ((str(ready), str(final)),)}, published=False, last=True)
    with pytest.raises(AlreadyCompleted, match="they are published now") as end:
        ps.run(words(), resume=info.path)
    assert end.value.published
    assert final.read_text() == "all of it\n"
    assert not refused_again(info).published


def copied_to(folder: Path) -> ps.Dataflow:
    """Return the word count with a further sink, which writes to a folder outside the run's."""
    folder.mkdir()
    flow = words()
    flow.sink("copy", ps.JsonLines(folder), flow.parts["out"].inputs[0])
    return flow


@pytest.mark.parametrize("moved", [False, True], ids=["copied", "moved"])
def test_a_folder_that_was_copied_or_moved_publishes_its_own_files(tmp_path: Path, moved: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    flow = copied_to(elsewhere)
    info = kept_run(tmp_path / "first", flow)
    for folder in (info.output_path, elsewhere):
        (folder / "_part.e3").write_text("all of it\n")
    pairs = tuple((str(folder / "_part.e3"), str(folder / "part.jsonl")) for folder in (info.output_path, elsewhere))
    keep_checkpoint(info, 3, flow, pending={"copy[0]": pairs}, published=False, last=True)
    copy = tmp_path / "second" / "copy"
    shutil.copytree(info.path, copy)
    if moved:
        shutil.rmtree(info.path)
    with pytest.raises(AlreadyCompleted, match="they are published now"):
        ps.run(flow, resume=copy)
    assert os.listdir(copy / "output") == ["part.jsonl"]
    assert os.listdir(elsewhere) == ["part.jsonl"]
    assert moved or os.listdir(info.output_path) == ["_part.e3"]


def test_what_a_copy_withdraws_stays_in_the_original(tmp_path: Path) -> None:
    info = kept_run(tmp_path / "first")
    keep_checkpoint(info, 1)
    (info.output_path / "_part.e3").write_text("later\n")
    pair = (str(info.output_path / "_part.e3"), str(info.output_path / "part.jsonl"))
    keep_checkpoint(info, 2, pending={"out[0]": (pair,)})
    copy = tmp_path / "copy"
    shutil.copytree(info.path, copy)
    damage(load(copy), 2)
    found = taken(load(copy))
    assert found.manifest is not None
    assert found.manifest.number == 1
    found.clear()
    assert os.listdir(copy / "output") == []
    assert (info.output_path / "part.jsonl").read_text() == "later\n"


def refused_again(info: RunInfo) -> AlreadyCompleted:
    with pytest.raises(AlreadyCompleted) as end:
        ps.run(words(), resume=info.path)
    return end.value


def test_where_no_checkpoint_is_whole_it_does_not_begin_anew(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    for number in (1, 2):
        keep_checkpoint(info, number)
        damage(info, number)
    reported = refused(FileProblem, info)
    assert reported.startswith(
        f"run {info.run} has no checkpoint that is whole, and has published from some: checkpoint 2"
    )
    assert reported.endswith("; restore a copy, or start a new run in its place")


def test_a_format_that_is_not_known_is_refused_though_an_older_checkpoint_is_there(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1)
    keep_checkpoint(info, 2, format=99)
    reported = refused(UnknownFormat, info)
    assert "format 99 is not known to this version of Penstock" in reported
    assert reported.endswith("resume with the version that wrote it")


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1)
    Path(place(info), "journal.json").write_text('{"epoch": ')
    assert "journal.json: damaged, " in refused(FileProblem, info)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"seed": 3}, "execution.seed: a resumed run keeps 0, got 3; leave it out, or start a new run"),
        (
            {"enabled": False},
            "telemetry.enabled: a resumed run keeps True, got False; leave it out, or start a new run",
        ),
        ({"emulate": "trio"}, "execution.emulate: a resumed run keeps its default, got 'trio'; leave it out, or start"),
        ({"emulate": ps.cluster("hetero-small")}, "emulate: a resumed run keeps its cluster, leave it out; or start a"),
    ],
)
def test_what_a_run_keeps_cannot_be_changed(tmp_path: Path, setting: dict[str, Any], problem: str) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1)
    assert refused(InvalidInput, info, **setting).startswith(problem)


def test_a_value_that_a_run_has_already_may_be_given_again(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 3, last=True)
    assert "there is nothing to resume" in refused(AlreadyCompleted, info, seed=0)


# What a folder that was tampered with says


def tampered(info: RunInfo, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and give it the checksum that it needs to be believed."""
    path = Path(checkpoints.folder_of(place(info), number), "manifest.json")
    raw = msgspec.json.decode(path.read_bytes().rsplit(b"\n", 2)[0])
    change(raw)
    text = msgspec.json.encode(raw) + b"\n"
    path.write_bytes(text + f"{crc32(text):08x}\n".encode())


def pending(temporary: object, final: object) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        raw["tasks"][-1]["pending"] = [[str(temporary), str(final)]]

    return change


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("way", ["absolute", "upwards", "link", "linked name", "folder"])
def test_files_outside_are_neither_moved_nor_removed(tmp_path: Path, way: str, number: int) -> None:
    info = kept_run(tmp_path / "runs")
    keep_checkpoint(info, 1, published=False)
    keep_checkpoint(info, 2, published=False)
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in ("a", "b"):
        (precious / name).write_text(name)
    (info.output_path / "link").symlink_to(precious)
    (info.output_path / "name").symlink_to(precious / "a")
    named = {
        "absolute": (precious / "a", precious / "c"),
        "upwards": ("output/../../../precious/a", "output/../../../precious/c"),
        "link": ("output/link/a", "output/link/c"),
        "linked name": ("output/name", "output/part"),
        "folder": ("output/part", "output"),
    }[way]
    tampered(info, number, pending(*named))
    damage(info, 2)  # so that it would be withdrawn
    reported = refused(Outside, info)
    assert f"checkpoints/{number:06}/manifest.json: " in reported
    assert str(named[0] if way != "folder" else named[1]).rpartition("/")[2] in reported
    assert sorted(path.name for path in precious.iterdir()) == ["a", "b"]
    assert info.output_path.is_dir()


def test_files_in_a_folder_that_a_sink_declares_are_withdrawn(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    flow = copied_to(elsewhere)
    info = kept_run(tmp_path / "runs", flow)
    keep_checkpoint(info, 1, flow, published=False)
    keep_checkpoint(info, 2, flow, published=False)
    (elsewhere / "part-2").write_text("")
    tampered(info, 2, pending(elsewhere / "_2", elsewhere / "part-2"))
    damage(info, 2)
    taken(info, flow).clear()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("change", [{"file": "../../x"}, {"file": "/etc/passwd"}, {"file": ".."}, {"size": -1}])
def test_states_are_read_from_the_checkpoints_folder_only(tmp_path: Path, change: dict[str, object]) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 1)
    tampered(info, 1, lambda raw: raw["tasks"][0].update(change))
    assert "manifest.json: not a manifest, " in refused(FileProblem, info)


@pytest.mark.parametrize("name", ["{elsewhere}", "../../elsewhere", "linked"])
def test_telemetry_outside_the_folder_has_to_be_named_again(tmp_path: Path, name: str) -> None:
    info = kept_run(tmp_path / "runs")
    keep_checkpoint(info, 1)
    elsewhere = tmp_path / "elsewhere"
    (info.path / "linked").symlink_to(elsewhere)
    write_info(msgspec.structs.replace(info, telemetry=name.format(elsewhere=elsewhere)))
    assert "keeps its telemetry outside its folder" in refused(InvalidInput, info)
    assert "a resumed run keeps its folder" in refused(InvalidInput, info, folder=str(tmp_path))
    assert not elsewhere.exists()
    place = str(info.path.absolute() / name.format(elsewhere=elsewhere))
    refuse_folders(load(info.path), CONFIG, config(folder=place))


def test_machines_shared_by_a_folder_have_to_be_named_again(tmp_path: Path) -> None:
    info = kept_run(tmp_path / "runs", share=str(tmp_path / "shared"))
    keep_checkpoint(info, 1)
    assert "confirm it by setting it again" in refused(InvalidInput, info)
    assert not (tmp_path / "shared").exists()


# Where its tasks go


DUO = ps.Cluster(name="embedded", machines=(ps.Machine(name="local", slots=2),))


def placed(info: RunInfo, cluster: ps.Cluster, journal: dict[str, str]) -> ps.Plan | None:
    keep_journal(info, 2, journal)
    flow = words()
    return plan_of(taken(info), flow, cluster, config(), completion(flow.application, cluster))


def test_tasks_go_where_they_were(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    manifest = keep_checkpoint(info, 1)
    plan = placed(info, DUO, {**manifest.placement, "count[1]": "local/0"})
    assert plan is not None
    assert plan.tasks["count"][1] == "local/0"
    assert plan.tasks["lines"] == (manifest.placement["lines[0]"],)
    assert (plan.policy, plan.cluster) == ("t-storm", "embedded")


def test_only_tasks_whose_slot_is_gone_go_elsewhere(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    manifest = keep_checkpoint(info, 1)
    plan = placed(info, DUO, {**manifest.placement, "count[1]": "other/0"})
    assert plan is not None
    assert plan.tasks["count"][1] in DUO.slot_names
    assert plan.tasks["count"][0] == manifest.placement["count[0]"]


def test_where_none_of_the_slots_is_there_the_policy_is_asked_again(tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    manifest = keep_checkpoint(info, 1)
    assert placed(info, DUO, dict.fromkeys(manifest.placement, "gone-1/0")) is None


def test_on_a_routed_network_routes_are_found_anew(tmp_path: Path) -> None:
    machines = tuple(ps.Machine(name=name, slots=1) for name in "abc")
    links = tuple(ps.Link(source=here, target=there, bandwidth_mbps=10) for here, there in ("ab", "bc"))
    line = ps.Cluster(name="line", machines=machines, links=links)
    info = kept_run(tmp_path)
    manifest = keep_checkpoint(info, 1)
    plan = placed(info, line, {**dict.fromkeys(manifest.placement, "a/0"), "count[0]": "c/0"})
    assert plan is not None
    assert {(route.source, route.target, len(route.links)) for route in plan.routes} == {("a", "c", 2), ("c", "a", 2)}


def test_the_emulated_machines_are_those_in_the_folder(tmp_path: Path) -> None:
    cluster = ps.cluster("hetero-small")
    info = msgspec.structs.replace(kept_run(tmp_path), emulated=cluster.name)
    ps.save(cluster, info.cluster_path)
    assert emulated_cluster(info) == cluster
    assert emulated_cluster(kept_run(tmp_path)) is None
