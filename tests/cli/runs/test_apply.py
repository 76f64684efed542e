import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.model.files import save
from penstock.model.plan import Plan
from penstock.model.tuples import TuplePolicies
from tests.conftest import Ran
from tests.fake_run import PLACEMENT, Served

Penstock = Callable[..., Ran]

PLAN = Plan(
    application="fake",
    cluster="trio",
    application_digest="a1",
    cluster_digest="c1",
    policy="p",
    objective="throughput",
    tasks={
        "in": ("m0/0",),
        "split": tuple(PLACEMENT[f"split[{number}]"] for number in range(4)),
        "out": ("m1/0",),
    },
)
BETTER = msgspec.structs.replace(PLAN, tasks={**PLAN.tasks, "in": ("m2/0",), "out": ("m2/1",)})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        save(PLAN, served.info.plan_path)
        yield served


@pytest.fixture
def better(tmp_path: Path) -> Path:
    save(BETTER, tmp_path / "better.toml")
    return tmp_path / "better.toml"


def test_moves_what_differs_and_prints_it(penstock: Penstock, run: Served, better: Path) -> None:
    ran = penstock("runs", "apply", better, "--run", run.info.path)
    assert ran.code == 0
    assert f"2 of 6 tasks moved by {better}" in ran.out
    rows = [line.split() for line in ran.out.splitlines()[2:]]
    assert rows == [["in[0]", "m0/0", "m2/0", "1.2", "ms"], ["out[0]", "m1/0", "m2/1", "1.2", "ms"]]
    assert run.handle.placement["out[0]"] == "m2/1"


def test_a_dry_run_only_prints_changes(penstock: Penstock, run: Served, better: Path) -> None:
    ran = penstock("runs", "apply", better, "--run", run.info.path, "--dry-run")
    assert "2 of 6 tasks would move" in ran.out
    assert run.handle.applied == []
    assert run.handle.placement == PLACEMENT


def test_an_equal_plan_changes_nothing(penstock: Penstock, run: Served) -> None:
    ran = penstock("runs", "apply", run.info.plan_path, "--run", run.info.path)
    assert ran.out.startswith("nothing to change: all 6 tasks are already where ")
    assert run.handle.applied == []


def test_json_holds_changes_and_outcomes(penstock: Penstock, run: Served, better: Path) -> None:
    answer = json.loads(penstock("runs", "apply", better, "--run", run.info.path, "--json").out)
    assert answer["changes"][0] == {"task": "in[0]", "before": "m0/0", "after": "m2/0"}
    assert [outcome["after"] for outcome in answer["outcomes"]] == ["m2/0", "m2/1"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"application": "other"}, "application: {file} is a plan for 'other', {run} runs 'fake'; plan again"),
        ({"cluster": "other"}, "cluster: {file} is a plan for 'other', {run} is on 'trio'; plan again"),
        (
            {"application_digest": "b2"},
            "application_digest: 'fake' is not what it was when {file} was made; plan again",
        ),
        ({"cluster_digest": "b2"}, "cluster_digest: 'trio' is not what it was when {file} was made; plan again"),
        (
            {"application_digest": "b2", "tasks": {**PLAN.tasks, "in": ("m0/0",) * 2}},
            "tasks.in: {file} has 2 tasks, {run} 1, and a run keeps their number; plan again",
        ),
        ({"tasks": {**PLAN.tasks, "in": ("m0/0",) * 2}}, "{file}: tasks: 'in[1]' is in the plan only; plan again"),
        ({"tasks": {"in": ("m0/0",)}}, "{file}: tasks: 'out[0]' is in the run only; plan again"),
        ({"tasks": {**PLAN.tasks, "in": ("m9/0",)}}, "slot: none is named 'm9/0'; there are six"),
    ],
)
def test_a_plan_that_does_not_fit_is_one_line(
    penstock: Penstock, run: Served, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    file = tmp_path / "odd.toml"
    save(msgspec.structs.replace(PLAN, **change), file)
    ran = penstock("runs", "apply", file, "--run", run.info.path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("error: " + problem.format(file=file, run=run.info.run))


def test_a_file_that_is_no_plan_is_one_line(penstock: Penstock, run: Served, tmp_path: Path) -> None:
    for name, text in (("none.toml", None), ("cluster.toml", 'name = "c"\nmachines = [{ name = "a" }]\n')):
        if text is not None:
            (tmp_path / name).write_text(text)
        ran = penstock("runs", "apply", tmp_path / name, "--run", run.info.path)
        assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_switches_tuple_policies_alone_and_prints_them(penstock: Penstock, run: Served) -> None:
    run.handle.tuples = TuplePolicies(routing="potus", sending="random")
    wanted = ("--routing", "in->split=least-loaded", "--sending", "none")
    dry = penstock("runs", "apply", "--run", run.info.path, *wanted, "--dry-run")
    assert dry.out.startswith("tuple policies would be switched\n")
    assert run.handle.tuples == TuplePolicies(routing="potus", sending="random")
    ran = penstock("runs", "apply", "--run", run.info.path, *wanted)
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()[2:]]
    assert rows == [["sending", "random", "none"], ["routing", "of", "in->split", "none", "least-loaded"]]
    assert run.handle.tuples == TuplePolicies(routing="potus", streams={"in->split": "least-loaded"})
    assert run.handle.applied == []
    again = penstock("runs", "apply", "--run", run.info.path, "--routing", "potus")
    assert again.out == "nothing to change: these tuple policies are in force\n"


def test_a_plan_switches_the_policies_that_it_has_beside_moving_tasks(
    penstock: Penstock, run: Served, tmp_path: Path, better: Path
) -> None:
    run.handle.tuples = TuplePolicies(sending="random")
    penstock("runs", "apply", better, "--run", run.info.path)
    assert run.handle.tuples == TuplePolicies(sending="random")  # of which that plan says nothing
    ruled = tmp_path / "ruled.toml"
    save(msgspec.structs.replace(PLAN, tuples=TuplePolicies(routing="potus", slot_ms=2.0)), ruled)
    ran = penstock("runs", "apply", ruled, "--run", run.info.path, "--sending", "fifo")
    assert "2 of 6 tasks moved" in ran.out
    assert "tuple policies switched" in ran.out
    assert run.handle.tuples == TuplePolicies(routing="potus", sending="fifo", slot_ms=2.0)
    answer = json.loads(penstock("runs", "apply", ruled, "--run", run.info.path, "--json").out)
    assert answer["policies"]["after"] == {"routing": "potus", "sending": "fifo", "slot_ms": 2.0}
    off = penstock("runs", "apply", "--run", run.info.path, "--routing", "none", "--sending", "none")
    rows = [line.split() for line in off.out.splitlines()[2:]]
    assert rows == [["routing", "potus", "none"], ["sending", "fifo", "none"]]  # and no slot, which nothing has now


def test_a_plan_with_a_policy_that_nobody_knows_is_one_line_with_file_and_field(
    penstock: Penstock, run: Served, tmp_path: Path
) -> None:
    ruled = tmp_path / "ruled.toml"
    for policies, field in (
        (TuplePolicies(routing="nearest"), "tuples.routing: no routing policy is named 'nearest'"),
        (TuplePolicies(sending="potus"), "tuples.sending: no sending policy is named 'potus'"),
        (TuplePolicies(streams={"in->split": "x"}), "tuples.streams.in->split: no routing policy is named 'x'"),
    ):
        save(msgspec.structs.replace(PLAN, tuples=policies), ruled)
        ran = penstock("runs", "apply", ruled, "--run", run.info.path)
        assert ran.err.startswith(f"error: {ruled}: {field}")
        assert (ran.code, ran.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "plan: expected a plan file, --routing, --sending or --slot-ms, got none; name one"),
        (("--routing", "nearest"), "routing: no routing policy is named 'nearest'; there are fields, least-loaded"),
        (("--sending", "potus"), "sending: no sending policy is named 'potus'; 'potus' is a routing policy; there are"),
        (("--slot-ms", -1), "--slot-ms: expected a number > 0, got -1"),
        (("--slot-ms", 5), "--slot-ms: no policy in force uses slots, got 5; set a routing or"),
    ],
)
def test_policies_that_cannot_be_are_one_line(
    penstock: Penstock, run: Served, options: tuple[object, ...], problem: str
) -> None:
    ran = penstock("runs", "apply", "--run", run.info.path, *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"error: {problem}")
    assert run.handle.tuples == TuplePolicies()
