import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.cli.runs.move import target_slot
from penstock.model.errors import UnknownMachine, UnknownName
from penstock.model.status import MachineStatus, SavingStatus, Status
from tests.conftest import Ran
from tests.fake_run import Served

Penstock = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        yield served


def test_moves_to_the_slot_that_is_named(penstock: Penstock, run: Served) -> None:
    ran = penstock("runs", "move", "split[2]", "m2/1", "--run", run.info.path)
    assert ran.code == 0
    assert ran.out == "moved split[2] from m0/1 to m2/1; its tuples were held up for 1.2 ms\n"
    assert run.handle.placement["split[2]"] == "m2/1"


def test_a_move_behind_a_checkpoint_says_what_it_waits_for(
    penstock: Penstock, run: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.runs.waiting.WATCH_S", 0.01)
    run.handle.saving = SavingStatus(number=7, age_s=12.3, awaited=["split[1]"], others=[])
    run.handle.may_move.clear()
    answer, asked = run.handle.status, []

    def status() -> Status:
        asked.append(run.handle.moving.is_set())
        if asked.count(True) == 3:
            run.handle.may_move.set()
        return answer()

    monkeypatch.setattr(run.handle, "status", status)
    ran = penstock("runs", "move", "split[2]", "m2/1", "--run", run.info.path)
    assert ran.err == "waiting for checkpoint 7, 12 s so far: it waits for split[1]\n"
    assert ran.out.startswith("moved split[2] from m0/1 to m2/1")


def test_moves_to_the_slot_with_the_fewest_tasks_of_a_machine(penstock: Penstock, run: Served) -> None:
    answer = json.loads(penstock("runs", "move", "in[0]", "m1", "--run", run.info.path, "--json").out)
    assert [outcome["after"] for outcome in answer] == ["m1/1"]  # m1/0 has split[1] and out[0]


def test_a_task_that_is_there_already_stays(penstock: Penstock, run: Served) -> None:
    for where in ("m0", "m0/1"):
        ran = penstock("runs", "move", "split[2]", where, "--run", run.info.path)
        assert (ran.code, ran.out) == (0, "split[2] is on m0/1 already\n")


@pytest.mark.parametrize(
    ("task", "where", "problem"),
    [
        ("split[9]", "m0", "task: no task is named 'split[9]'; did you mean split["),
        ("split", "m0", "task: no task is named 'split'"),
        ("split[0]", "m9", "machine: none is named 'm9'; there are m0, m1, m2"),
        ("split[0]", "m0/7", "machine: none is named 'm0/7'"),
    ],
)
def test_invalid_input_is_one_line(penstock: Penstock, run: Served, task: str, where: str, problem: str) -> None:
    ran = penstock("runs", "move", task, where, "--run", run.info.path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"error: {problem}")


def test_slots_of_a_real_machine_are_found_by_its_name(run: Served) -> None:
    status = run.handle.status()
    real = [MachineStatus(name=f"node7/{number}", host="node7", tasks=0, cpu=0.0) for number in range(3)]
    placed = {"a[0]": "node7/0", "a[1]": "node7/1", "b[0]": "node8/0"}
    status = msgspec.structs.replace(status, machines=real, placement=placed)
    assert target_slot(status, "b[0]", "node7") == "node7/2"
    assert target_slot(status, "a[0]", "node7/1") == "node7/1"
    assert target_slot(status, "a[0]", "node8") == "node8/0"
    with pytest.raises(UnknownMachine):
        target_slot(status, "a[0]", "node9")
    with pytest.raises(UnknownName):
        target_slot(status, "c[0]", "node7")
