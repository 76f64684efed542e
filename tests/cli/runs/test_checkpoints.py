import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import penstock as ps
from penstock.model.status import SavingStatus
from penstock.runtime.protocol.worker_messages import StatePart
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.key_groups import FULL, Entry, StateCodec, pack_record
from penstock.runtime.storage.run_folder import RunInfo
from tests.conftest import Ran
from tests.fake_run import Served
from tests.kept_run import DISK, damage, keep_checkpoint, kept_run, place

Penstock = Callable[..., Ran]


@pytest.fixture
def info(tmp_path: Path) -> RunInfo:
    """A run with two checkpoints."""
    made = kept_run(tmp_path / "runs")
    keep_checkpoint(made, 11)
    ready = (str(made.output_path / "_part.e3"), str(made.output_path / "part-out-0.jsonl"))
    keep_checkpoint(made, 12, pending={"out[0]": (ready,)}, published=False)
    return made


def row(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(name)).split()


def test_lists_the_latest_first_with_age_size_and_whether_it_is_whole(penstock: Penstock, info: RunInfo) -> None:
    ran = penstock("runs", "checkpoints", "--runs", info.path.parent)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == ["checkpoint", "12", "11"]
    assert row(ran.out, "12")[-5:] == ["7", "3", "not", "yet", "whole"]
    assert row(ran.out, "11")[-4:] == ["7", "3", "yes", "whole"]
    assert "45 ms" in lines[1]


def test_reports_a_damaged_checkpoint_in_one_line(penstock: Penstock, info: RunInfo) -> None:
    state, manifest = damage(info, 12), damage(info, 11, "manifest.json")
    ran = penstock("runs", "checkpoints", info.path)
    assert ran.code == 0
    assert "Traceback" not in ran.err
    assert f"12 is damaged: {state}: damaged, the checksum" in ran.out
    assert f"11 is damaged: {manifest}: damaged, its checksum does not match" in ran.out
    found = json.loads(penstock("runs", "checkpoints", info.path, "--json").out)["checkpoints"]
    assert [(each["number"], each["whole"]) for each in found] == [(12, False), (11, False)]
    ran = penstock("runs", "checkpoints", info.path, 11)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "its checksum does not match" in ran.err


def test_one_that_is_missing_a_file_or_cut_short_is_damaged(penstock: Penstock, info: RunInfo) -> None:
    Path(checkpoints.folder_of(place(info), 12), "w0.e3").unlink()
    whole = Path(checkpoints.folder_of(place(info), 11), "w0.e3")
    whole.write_bytes(whole.read_bytes()[:-3])
    out = penstock("runs", "checkpoints", info.path).out
    assert "w0.e3: is missing" in out
    assert "w0.e3: truncated, " in out


def test_lists_a_checkpoint_in_progress_and_an_aborted_one(penstock: Penstock, tmp_path: Path) -> None:
    with Served(tmp_path / "runs") as run:
        info = run.info
        Path(checkpoints.folder_of(place(info), 13)).mkdir(parents=True)
        run.handle.saving = SavingStatus(number=14, age_s=12.3, awaited=["split[1]"], others=["out[0]"])
        out = penstock("runs", "checkpoints", info.path).out
        assert "13 was aborted; the warnings of penstock status and run.log say why\n" in out
        assert "14 is in progress, 12 s so far: it waits for split[1]; not saved either: out[0]\n" in out
        found = json.loads(penstock("runs", "checkpoints", info.path, "--json").out)
        assert (found["incomplete"], found["in_progress"]["awaited"]) == ([13, 14], ["split[1]"])


def test_lists_a_checkpoint_that_a_run_did_not_complete(penstock: Penstock, info: RunInfo) -> None:
    Path(checkpoints.folder_of(place(info), 13)).mkdir()
    assert "13 was not completed\n" in penstock("runs", "checkpoints", info.path).out
    assert json.loads(penstock("runs", "checkpoints", info.path, "--json").out)["incomplete"] == [13]


def test_looks_into_one_positions_states_slots_files(penstock: Penstock, info: RunInfo) -> None:
    ran = penstock("runs", "checkpoints", info.path, 12)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"checkpoint 12 of {info.run}: whole, not published, ")
    assert row(ran.out, "lines[0]")[-1] == "40"
    assert 'lines[0] is at {"count":40}' in ran.out.splitlines()
    assert row(ran.out, "count[1]")[:2] == ["count[1]", "local/0"]
    assert "1 file to be published" in ran.out
    assert f"_part.e3 becomes {info.output_path / 'part-out-0.jsonl'}" in ran.out
    Path(checkpoints.folder_of(place(info), 12), "published").write_bytes(b"")
    ran = penstock("runs", "checkpoints", info.path, 12)
    assert "1 file published" in ran.out
    assert f"published {info.output_path / 'part-out-0.jsonl'}" in ran.out
    found = json.loads(penstock("runs", "checkpoints", info.path, 12, "--json").out)
    assert found["placement"]["lines[0]"] == "local/0"
    assert found["states"][0]["position"] == '{"count":40}'


def test_shows_the_state_of_a_task_by_key(penstock: Penstock, info: RunInfo) -> None:
    ran = penstock("runs", "checkpoints", info.path, "--task", "count[0]")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("count[0] in checkpoint 12: ")
    assert "2 keys" in ran.out.splitlines()[0]
    assert row(ran.out, "the") == ["the", "1", "7"]
    ran = penstock("runs", "checkpoints", info.path, "--task", "count[0]", "--most", 1)
    assert "1 more; show them with --most 2" in ran.out
    assert "no state" in penstock("runs", "checkpoints", info.path, 11, "--task", "split[0]").out


def test_shows_a_state_per_key_with_its_earlier_parts(penstock: Penstock, tmp_path: Path) -> None:
    flow = ps.Dataflow("counting")
    given = flow.source("given", ps.Generated(str), emits=str)
    flow.sink("out", ps.Discard(), flow.stateful_map("count", lambda n, word: (n, word), given.fields(), initial=0))
    made, codec = kept_run(tmp_path, flow), StateCodec("count")

    def records(*given: tuple[int, list[Entry], list[str]]) -> msgspec.Raw:
        packed = [pack_record(7, flags, codec.encode(entries, [*removed])) for flags, entries, removed in given]
        return msgspec.Raw(b"".join(piece for pieces in packed for piece in pieces))

    entries: list[Entry] = [("the", 7, None, None), ("a", 3, None, None), ("of", 1, None, None)]
    first = keep_checkpoint(made, 1, flow, {"count[0]": records((FULL, entries, []))})
    saved = next(task for task in first.tasks if task.task == "count[0]")
    part = StatePart(1, saved.file, saved.offset, saved.size, saved.checksum)
    second = keep_checkpoint(made, 2, flow, {"count[0]": records((0, [("the", 9, None, None)], ["of"]))})
    tasks = tuple(replace(task, earlier=(part,)) if task.task == "count[0]" else task for task in second.tasks)
    checkpoints.write_manifest(DISK, place(made), replace(second, tasks=tasks))
    ran = penstock("runs", "checkpoints", made.path, "--task", "count[0]")
    assert ran.code == 0, ran.err
    assert "2 keys" in ran.out.splitlines()[0]
    assert (row(ran.out, "the"), row(ran.out, "a ")) == (["the", "1", "9"], ["a", "1", "3"])
    assert "in 1 earlier file" in penstock("runs", "checkpoints", made.path, 2).out


def test_shows_states_that_are_no_tables_of_texts(penstock: Penstock, tmp_path: Path) -> None:
    made = kept_run(tmp_path)
    odd = {("a", 1): [1, 2, 3], "big": {"x" * 100: 1}, 7: b"raw", "[bold]": None}
    keep_checkpoint(made, 1, states={"count[0]": odd, "count[1]": [5, 6], "split[0]": 12, "lines[0]": {}})
    ran = penstock("runs", "checkpoints", made.path, "--task", "count[0]")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[2].startswith("big ")  # the largest first
    assert "…" in lines[2]
    assert row(ran.out, "('a', 1)") == ["('a',", "1)", "4", "[1,", "2,", "3]"]
    assert row(ran.out, "[bold]") == ["[bold]", "1", "None"]
    found = json.loads(penstock("runs", "checkpoints", made.path, "--task", "count[0]", "--json").out)
    assert found["items"] == 4
    assert {json.dumps(item["key"]) for item in found["first"]} == {'["a", 1]', '"big"', "7", '"[bold]"'}
    assert row(penstock("runs", "checkpoints", made.path, "--task", "count[1]").out, "1") == ["1", "1", "6"]
    assert penstock("runs", "checkpoints", made.path, "--task", "split[0]").out.splitlines()[-1] == "state: 12"


def test_a_long_position_is_shown_whole_on_one_line(penstock: Penstock, tmp_path: Path) -> None:
    made = kept_run(tmp_path)
    long = {"file": "/data/" + "deep/" * 40 + "lines.txt", "offset": 123456}
    keep_checkpoint(made, 1, states={"lines[0]": long})
    assert (
        f"lines[0] is at {msgspec.json.encode(long).decode()}"
        in penstock("runs", "checkpoints", made.path, 1).out.splitlines()
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["13"], "checkpoint: run {run} has none with number 13; there are 11, 12"),
        (["--task", "fish[0]"], "task: checkpoint 12 has no 'fish[0]'; did you mean "),
    ],
)
def test_invalid_input_is_one_line(penstock: Penstock, info: RunInfo, arguments: list[str], problem: str) -> None:
    ran = penstock("runs", "checkpoints", info.path, *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("error: " + problem.format(run=info.run))


def test_a_damaged_state_is_one_line(penstock: Penstock, info: RunInfo) -> None:
    path = Path(checkpoints.folder_of(place(info), 12), "w0.e3")
    path.write_bytes(bytes(len(path.read_bytes())))
    ran = penstock("runs", "checkpoints", info.path, "--task", "count[0]")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "damaged, the checksum" in ran.err


def test_reports_a_run_without_checkpoints(penstock: Penstock, tmp_path: Path) -> None:
    made = kept_run(tmp_path)
    ran = penstock("runs", "checkpoints", made.path)
    assert (ran.code, ran.out) == (0, f"run {made.run} has no complete checkpoint\n")
    ran = penstock("runs", "checkpoints", made.path, 1)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
