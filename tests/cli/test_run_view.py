from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from penstock.cli.run_view import clock, milliseconds, place, status_line, summary, view
from penstock.model.status import CheckpointStatus, MachineStatus, SavingStatus, Status, task_list
from penstock.model.tuples import TuplePolicies
from penstock.runtime.storage.run_folder import create
from tests.fake_run import FakeHandle
from tests.kept_run import keep_checkpoint, kept_run


@pytest.fixture
def status(tmp_path: Path) -> Status:
    return FakeHandle(create("fake", tmp_path)).status()


def drawn(status: Status, width: int = 80, height: int | None = None, note: str = "") -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(view(status, width, height, note))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def row(lines: list[str], name: str) -> list[str]:
    return next(line for line in lines if line.startswith(name)).split()


def many(status: Status, machines: int) -> Status:
    made = [MachineStatus(name=f"n{k}", host="h", tasks=0, cpu=k / machines) for k in range(machines)]
    return msgspec.structs.replace(status, machines=made)


def test_every_component_has_its_rate_queue_and_times(status: Status) -> None:
    lines = drawn(status)
    assert row(lines, "split") == ["split", "4", "1,233", "56", "0.789", "1.50", "9.25", "23%"]
    assert row(lines, "in ") == ["in", "1", "1,234", "0", "-", "-", "-", "-"]


def test_a_wide_terminal_shows_more_and_a_narrow_one_fits(status: Status) -> None:
    narrow, wide = drawn(status, 80), drawn(status, 120)
    assert row(wide, "split")[2] == "2"  # machines
    assert row(wide, "in ") == ["in", "1", "1", "1,234", "0", "7", "-", "-", "-", "-"]
    assert max(map(len, narrow)) <= 80
    assert len(wide) < len(narrow)


def test_shows_the_application_the_place_and_that_it_is_emulated(status: Status) -> None:
    lines = drawn(status)
    assert lines[0] == "fake running 1:05 min under round-robin"
    assert lines[1] == "emulated on trio (3 machines), Spark on local[4]"
    assert place(msgspec.structs.replace(status, emulated=None)) == "on local[4] (3 slots)"


def test_tuple_policies_in_force_have_a_line_of_their_own(status: Status) -> None:
    tuples = TuplePolicies(routing="potus", streams={"in->split": "shuffle"}, slot_ms=5.0)
    lines = drawn(msgspec.structs.replace(status, tuples=tuples))
    assert lines[2] == "routing potus, routing of in->split shuffle, slot 5 ms"
    assert len(lines) == len(drawn(status)) + 1


def test_end_to_end_has_its_times_and_counts(status: Status) -> None:
    text = " ".join(drawn(status))
    assert "p50 4.20 ms  p99 12.3 ms  mean 5.10  worst 31.0  512 sampled" in text
    assert "80,210 in  280,865 out  32 in flight" in text
    assert "nothing sampled has finished yet" in " ".join(drawn(msgspec.structs.replace(status, latency=None)))


def test_machines_have_a_bar_and_their_tasks(status: Status) -> None:
    lines = drawn(status)
    assert row(lines, "m0") == ["m0", "3", "██████░░░░", "62%", "0.400", "in[0]", "split[0,2]"]
    assert row(lines, "m1") == ["m1", "3", "██████████", "97%", "0.400", "split[1,3]", "out[0]"]


def spread_out(status: Status) -> tuple[Status, set[str]]:
    """Return it with tasks whose numbers make no ranges, and what is to be read of those on one machine."""
    tasks = {f"{name}[{number}]": f"m{number % 2}/0" for name in ("split", "a-longer-name") for number in range(80)}
    return msgspec.structs.replace(status, placement=tasks), {str(number) for number in range(0, 80, 2)}


@pytest.mark.parametrize("width", [80, 100, 160])
def test_all_tasks_of_a_machine_can_be_read_however_many_there_are(status: Status, width: int) -> None:
    many_tasks, even = spread_out(status)
    lines = drawn(many_tasks, width)
    start = next(place for place, line in enumerate(lines) if line.startswith("m0"))
    end = next(place for place, line in enumerate(lines) if line.startswith("m1"))
    listed = " ".join(line[lines[start].index("split[") :] for line in lines[start:end])
    for name in ("split", "a-longer-name"):
        numbers = listed.partition(f"{name}[")[2].partition("]")[0]
        assert {number.strip() for number in numbers.split(",")} == even
    assert max(map(len, lines)) <= width
    assert "…" not in listed


def test_tasks_are_shortened_only_where_a_terminal_is_too_low_for_all(status: Status) -> None:
    many_tasks, _ = spread_out(status)
    low = drawn(many_tasks, height=24)
    assert len(low) <= 24
    assert row(low, "m0")[:5] == ["m0", "3", "██████░░░░", "62%", "0.400"]
    assert [line for line in low if line.endswith("…") and line.startswith(("m0", "m1"))]
    assert drawn(many_tasks, height=60) == drawn(many_tasks)


def test_folds_long_names_and_notes_of_machines(status: Status) -> None:
    name, why = "a-machine-with-a-name-of-34-letters", "in quarantine until 14:25:01, lost 3 times in 60 s"
    odd = MachineStatus(name=name, host="h", tasks=0, cpu=0.5, alive=False, note=why)
    lines = drawn(msgspec.structs.replace(status, machines=[odd]), width=80)
    start = next(place for place, line in enumerate(lines) if line.startswith(name[:20]))
    assert lines[start + 1].startswith(name[20:])
    assert " ".join(line[54:].strip() for line in lines[start : start + 3]) == why


def test_what_there_is_to_say_is_below(status: Status) -> None:
    saving = SavingStatus(number=7, age_s=12.3, awaited=["count[1]"], others=["out[0]", "out[1]", "out[2]"])
    line = "checkpoint 7 …, 12 s so far: waits for count[1]; not saved either: out[0-2]"
    assert drawn(msgspec.structs.replace(status, operation="checkpoint", saving=saving))[-1] == line
    busy = msgspec.structs.replace(status, operation="moving split[2] to m2/0")
    assert drawn(busy, note="draining; Ctrl-C again stops at once")[-3:] == [
        "warning: 2 cores are few for 3 machines",
        "moving split[2] to m2/0 …",
        "draining; Ctrl-C again stops at once",
    ]


def test_shows_an_idle_machine_that_does_not_answer(status: Status) -> None:
    crowd = many(status, 40)
    crowd.machines[0] = msgspec.structs.replace(crowd.machines[0], alive=False)
    lines = drawn(crowd, height=30)
    assert "does not answer" in next(line for line in lines if line.startswith("n0"))


@pytest.mark.parametrize("height", [24, 30, 50])
def test_many_machines_do_not_make_it_higher_than_the_terminal(status: Status, height: int) -> None:
    lines = drawn(many(status, 40), height=height)
    assert len(lines) <= height
    assert any("less busy ones not shown" in line for line in lines)
    assert any(line.startswith("n39") for line in lines)


def test_names_that_look_like_markup_are_shown_as_they_are(status: Status) -> None:
    odd = msgspec.structs.replace(status, warnings=["[red]odd[/red]"], policy="[bold]p")
    text = "\n".join(drawn(odd))
    assert "[red]odd[/red]" in text
    assert "under [bold]p" in text


def test_a_plain_line_holds_the_essentials(status: Status) -> None:
    line = status_line(status)
    assert line == ("1:05 min running: 1,234/s in, 4,321/s out, p50 4.20 ms, p99 12.3 ms, 58 queued, cpu ≤ 97% (m1)")
    assert "failed: n1" in status_line(
        msgspec.structs.replace(status, machines=[MachineStatus(name="n1", host="h", tasks=1, cpu=0.0, alive=False)])
    )


def test_the_summary_gives_means_over_the_run_and_the_next_command(status: Status, tmp_path: Path) -> None:
    info = create("fake", tmp_path)
    lines = dict(summary(status, info))
    assert lines["tuples"] == "80,210 in (1,234/s), 280,865 out (4,321/s)"
    assert lines["telemetry"] == str(info.telemetry_path)
    assert "output" not in lines
    assert "policies" not in lines
    ruled = msgspec.structs.replace(status, tuples=TuplePolicies(routing="potus", sending="random"))
    assert dict(summary(ruled, info))["policies"] == "routing potus, sending random, slot 1 ms"
    assert lines["next"] == f"penstock report {info.folder}"
    (info.output_path / "part.jsonl").write_text("")
    (info.output_path / "_part.e1").write_text("")  # nobody is to see it yet
    assert dict(summary(status, info))["output"] == f"{info.output_path}, 1 file published"


def test_the_summary_shows_the_next_commands_and_the_recoveries(status: Status, tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    keep_checkpoint(info, 12)
    hurt = msgspec.structs.replace(status, recoveries=2, last_recovery="worker m1 was lost; 1.2 s")
    lines = summary(hurt, info)
    assert ("next", f"penstock runs resume {info.folder} resumes from checkpoint 12") in lines
    careful = msgspec.structs.replace(status.components[1], skipped=3)
    skipping = msgspec.structs.replace(status, components=[careful])
    assert ("skipped", "3 tuples by split, kept as dead letters") in summary(skipping, info)
    assert ("recovered", "2 times, the last: worker m1 was lost; 1.2 s") in lines


def test_the_last_checkpoint_and_recoveries_have_their_lines(status: Status) -> None:
    last = CheckpointStatus(number=12, age_s=3.21, seconds=0.045, bytes=1_300_000)
    hurt = msgspec.structs.replace(status, checkpoint=last, epoch=3, recoveries=2, last_recovery="m1 was lost, 1.2 s")
    lines = drawn(hurt)
    assert "checkpoint  12, 3.2 s ago  1.3 MB in 45 ms  epoch 3" in lines
    assert "recoveries  2, the last: m1 was lost, 1.2 s" in lines
    assert not any(line.startswith(("checkpoint", "recoveries")) for line in drawn(status))
    old = msgspec.structs.replace(last, age_s=75.0)
    assert any("12, 1:15 min ago" in line for line in drawn(msgspec.structs.replace(hurt, checkpoint=old)))
    assert "2 recoveries" in status_line(hurt)


def test_tuples_that_were_skipped_or_tried_again_have_a_column_where_there_are_some(status: Status) -> None:
    assert "skipped" not in " ".join(drawn(status))
    careful = msgspec.structs.replace(status.components[1], skipped=1234, retried=5)
    odd = msgspec.structs.replace(status, components=[status.components[0], careful, status.components[2]])
    lines = drawn(odd, width=120)
    assert row(lines, "split")[-2:] == ["1,234", "5"]
    assert row(lines, "out")[-2:] == ["-", "-"]


def crowded(status: Status) -> Status:
    """Return it with figures that are as wide as they come, and all that can be said of them."""
    split = msgspec.structs.replace(
        status.components[1], name="a-component-of-a-long-name", tasks=128, rate_tps=1_234_567.0, queue=9_876_543,
        processing_ms=12_345.6, p50_ms=123_456.7, p99_ms=234_567.8, skipped=1_234_567, retried=7_654_321,
    )  # fmt: skip
    return msgspec.structs.replace(status, components=[status.components[0], split, status.components[2]])


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_no_number_is_cut_however_many_there_are(status: Status, width: int) -> None:
    lines = drawn(crowded(status), width=width)
    assert max(map(len, lines)) <= width
    for figure in ("1,234,567", "9,876,543", "234,567", "1,234,567", "7,654,321"):
        assert any(figure in line for line in lines)


def test_a_narrow_terminal_has_what_was_skipped_below_the_table(status: Status) -> None:
    lines = drawn(crowded(status), width=80)
    assert "skipped     1,234,567 by a-component-of-a-long-name" in lines
    assert "retried     7,654,321 by a-component-of-a-long-name" in lines
    careful = msgspec.structs.replace(status.components[1], skipped=3, retried=4)
    assert len(drawn(many(msgspec.structs.replace(status, components=[careful]), 40), width=80, height=30)) <= 30


def test_one_that_is_over_shows_no_rates_or_queues(status: Status) -> None:
    over = msgspec.structs.replace(status, phase="stopped")
    assert row(drawn(over), "split") == ["split", "4", "0.789", "1.50", "9.25"]
    assert "in flight" not in " ".join(drawn(over))
    assert status_line(over) == "1:05 min stopped: 80,210 in, 280,865 out"


def test_counts_say_what_they_are_of_after_a_recovery_or_a_resume(status: Status, tmp_path: Path) -> None:
    info = create("fake", tmp_path)
    hurt = msgspec.structs.replace(status, recoveries=1)
    assert dict(summary(hurt, info))["tuples"].endswith("/s), with those that came again after 1 recovery")
    assert "            counted with those that came again after 1 recovery" in drawn(hurt)
    careful = msgspec.structs.replace(hurt, components=[msgspec.structs.replace(status.components[1], skipped=3)])
    assert dict(summary(careful, info))["skipped"].endswith("with those that came again; dead letters have each once")
    resumed = msgspec.structs.replace(status, resumed=12)
    assert dict(summary(resumed, info))["tuples"].endswith("/s), since checkpoint 12, from which it was resumed")
    assert "            counted since checkpoint 12, from which it was resumed" in drawn(resumed)


def test_shows_a_recovery(status: Status) -> None:
    assert drawn(msgspec.structs.replace(status, phase="recovering"))[0].startswith("fake recovering 1:05 min")


def test_shows_why_a_machine_is_in_quarantine(status: Status) -> None:
    crowd = many(status, 40)
    why = "in quarantine until 14:25:01, lost 3 times in 60 s"
    crowd.machines[0] = msgspec.structs.replace(crowd.machines[0], alive=False, note=why)
    assert why in next(line for line in drawn(crowd, width=120, height=30) if line.startswith("n0"))


def test_a_run_among_the_others_is_called_by_its_name(
    status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    info = create("fake")
    assert dict(summary(status, info))["next"] == f"penstock report {info.run}"


def test_tasks_are_listed_shortly() -> None:
    assert task_list(["split[0]", "split[2]", "split[1]", "split[5]", "count[1]"]) == "split[0-2,5] count[1]"
    assert task_list([]) == ""


def test_times_are_written_for_people() -> None:
    assert [clock(seconds) for seconds in (0.9, 59, 60, 3599, 3600, 7385)] == [
        "0 s", "59 s", "1:00 min", "59:59 min", "1:00:00 h", "2:03:05 h",
    ]  # fmt: skip
    assert [milliseconds(value) for value in (None, 0.0041, 1.5, 31.04, 1234.5)] == [
        "-", "0.004", "1.50", "31.0", "1,234",
    ]  # fmt: skip
