import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.model.files import load_plan
from penstock.model.tuples import TuplePolicies
from penstock.policies import registry
from tests.conftest import Ran

Penstock = Callable[..., Ran]

WIDE = """
import sys
from penstock.cli.output import console, table
rows = table("policy", "b", "c")
rows.add_row(*(3 * [sys.argv[1]]))
console.print(rows)
"""


def test_prints_a_row_a_policy_and_marks_the_best(penstock: Penstock) -> None:
    ran = penstock("plan", "word-count", "tata-3", "--policy", "round-robin", "--policy", "r-storm")
    assert ran.code == 0
    assert "round-robin" in ran.out
    assert ran.out.count("★") == 2  # the row and the legend
    assert "throughput" in ran.out


@pytest.mark.slow
def test_all_stands_for_every_policy_that_is_not_named_beside_it(penstock: Penstock) -> None:
    ran = penstock(
        "plan", "throughput-test", "tata-3", "--policy", "all", "--policy", "optimal:seconds=1",
        "--policy", "local-search:steps=200,seconds=none", "--json",
    )  # fmt: skip
    answer = json.loads(ran.out)
    policies = [decision["policy"] for decision in answer["decisions"]]
    assert len(policies) == len(registry.names(registry.PolicyKind.PLACEMENT))
    assert "optimal:seconds=1" in policies
    assert "optimal" not in policies
    assert answer["best"] in policies


def test_compares_one_policy_with_several_parameters(penstock: Penstock) -> None:
    specs = ["heft", "heft:batch=2", "heft:batch=6"]
    ran = penstock(
        "plan", "throughput-test", "tata-3", "--json", *(part for spec in specs for part in ("--policy", spec))
    )
    assert [decision["policy"] for decision in json.loads(ran.out)["decisions"]] == specs


def test_json_holds_what_the_table_holds(penstock: Penstock) -> None:
    ran = penstock("plan", "word-count", "li-10", "--policy", "flink-spread", "--json", "--explain")
    answer = json.loads(ran.out)
    (decision,) = answer["decisions"]
    assert decision["throughput_tps"] > 0
    busiest = max(decision["utilisation"]["machines"].values())
    assert busiest == pytest.approx(0.25)  # one slot is full, of a machine with four cores
    assert len(decision["tasks"]["split"]) == 8
    assert answer["advice"]["reliefs"]


def test_a_refusal_names_its_constraint_in_json_and_does_not_blame_memory(penstock: Penstock) -> None:
    ran = penstock(
        "plan", "word-count", "tata-3", "--policy", "flink", "--json"
    )  # eight tasks of a component, six slots
    assert ran.code == 1
    refusal = json.loads(ran.out)["decisions"][0]
    assert (refusal["constraint"], refusal["proven"], refusal["found_by"]) == ("slots", False, "round-robin")
    told = penstock("plan", "word-count", "tata-3", "--policy", "flink").out
    assert "lower its parallelism; round-robin finds one\n" in told
    row = next(line for line in told.splitlines() if line.startswith("flink"))
    assert "no" not in row.split()


@pytest.mark.slow
def test_placements_that_do_not_carry_the_offered_load_are_named_and_not_the_best(
    penstock: Penstock, tmp_path: Path
) -> None:
    app = tmp_path / "app.toml"
    app.write_text(
        'name = "app"\nrate_tps = { in = 15 }\n'
        '[[components]]\nname = "in"\nkind = "source"\ncpu = 0.05\n'
        '[[components]]\nname = "out"\nkind = "sink"\ncpu = 0.05\n'
        '[[streams]]\nsource = "in"\ntarget = "out"\n'
    )
    two = tmp_path / "two.toml"
    two.write_text('name = "two"\nmachines = [{ name = "a" }, { name = "b" }]\n')
    policies = ("--policy", "cloud-only", "--policy", "round-robin", "--policy", "local-search:steps=100,seconds=none")
    ran = penstock("plan", app, two, *policies, "--objective", "traffic")
    assert "cannot sustain the offered 15.0/s: cloud-only" in ran.out
    answer = json.loads(penstock("plan", app, two, *policies, "--objective", "traffic", "--json").out)
    assert answer["best"] == "round-robin"
    assert next(d for d in answer["decisions"] if d["policy"].startswith("local"))["throughput_tps"] >= 15


def test_refuses_to_write_over_what_it_plans_for(penstock: Penstock, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('name = "one"\nmachines = [{ name = "a" }]\n')
    ran = penstock("plan", "throughput-test", cluster, "--policy", "random", "--save", cluster)
    assert ran.code == 2
    assert "is what you plan for" in ran.err
    assert "machines" in cluster.read_text()


def test_reports_swapped_files(penstock: Penstock, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('name = "one"\nmachines = [{ name = "a" }]\n')
    ran = penstock("plan", cluster, "li-10")
    assert ran.code == 2
    assert "expected an application, this is a cluster" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [("pln",), ("plan", "word-count"), ("plan", "a", "b", "--polcy", "x"), ("plan", "a", "b", "--seed", "x")],
)
def test_reports_an_invalid_option_in_one_line(penstock: Penstock, arguments: tuple[str, ...]) -> None:
    ran = penstock(*arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--help" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["round-robin", "predictive-search"])
def test_a_narrow_terminal_keeps_the_names_of_the_policies(policy: str) -> None:
    environment = {**os.environ, "COLUMNS": "60"}
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "plan", "word-count", "li-10",
               "--policy", policy]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert f"{policy} ★" in ran.stdout


def test_piped_tables_are_as_wide_as_they_need_to_be() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    name = "local-search:seconds=0.001,evaluations=3" + 40 * "0"
    command = [sys.executable, "-c", WIDE, name]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert name * 3 in ran.stdout.replace("  ", "")
    assert "…" not in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        (("plan", "word-cuont", "li-10"), "application", "application: unknown name 'word-cuont'; did you"),
        (("plan", "word-count", "li-10", "--polcy", "x"), None, "No such option: --polcy"),
        (("run", "word-count", "--sample", "often"), "sample", "--sample: expected a number, all or none"),
        (("status", "none"), "run", "run: no run is named 'none'"),
    ],
)
def test_errors_are_json_too_where_the_answer_would_be(
    penstock: Penstock, arguments: tuple[str, ...], field: str | None, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    ran = penstock(*arguments, "--json")
    error = json.loads(ran.out)["error"]
    assert (ran.code, ran.err, error["field"], error["exit_code"]) == (2, "", field, 2)
    assert error["message"].startswith(message)
    assert penstock(*arguments).err.startswith(f"error: {message}")


def test_explain_names_the_bottleneck_and_a_relief(penstock: Penstock) -> None:
    ran = penstock("plan", "word-count", "hetero-small", "--policy", "round-robin", "--explain")
    assert ran.code == 0
    assert "limits the throughput to" in ran.out
    assert "relief:" in ran.out


@pytest.mark.slow
def test_says_how_far_the_refined_placement_may_be_from_the_best_and_how_to_look_further(penstock: Penstock) -> None:
    refined = "sparcle-refined:seconds=none,evaluations=50"  # too few to find the best
    command = ("plan", "log-processing", "hetero-small", "--policy", "sparcle", "--policy", refined)
    ran = penstock(*command)
    assert f"{refined}: rate at most " in ran.out
    assert "bound=true may show that it is less, in up to 30 s" in ran.out
    answer = {one["policy"]: one for one in json.loads(penstock(*command, "--json").out)["decisions"]}
    assert answer["sparcle"]["gap"] is None
    assert 0 < answer[refined]["gap"] < 0.5
    proven = penstock("plan", "face-detection", "field-and-cloud", "--policy", "sparcle-refined").out
    assert "sparcle-refined: rate at most 0.00% from the best\n" in proven


def test_shows_the_energy_of_a_tuple_with_an_assumed_power(penstock: Penstock) -> None:
    command = ("plan", "face-detection", "field-and-cloud", "--policy", "sparcle", "--explain")
    assert "energy" not in penstock(*command).out
    ran = penstock(*command, "--energy", "lte:cpu_watts=5")
    assert "J/tuple" in ran.out
    assert "assumed 5 W of a busy machine, 0.43839 J for a megabit sent, 0.05197 J received" in ran.out
    assert "energy per source tuple: " in ran.out

    def energy(radio: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(penstock(*command, "--energy", radio, "--json").out)["decisions"][0][
            "energy"
        ]
        parts = found["processing_j"] + found["sending_j"] + found["receiving_j"]
        assert found["joules_a_tuple"] == pytest.approx(parts)
        assert sum(found["machines"].values()) == pytest.approx(parts)
        return found

    one, other = energy("wi-fi"), energy("wi-fi:cpu_watts=4")
    assert one["assumed"]["cpu_watts"] == 2.0
    assert other["processing_j"] == pytest.approx(2 * one["processing_j"])
    assert other["sending_j"] == pytest.approx(one["sending_j"])
    assert "energy" not in json.loads(penstock(*command, "--json").out)["decisions"][0]


def test_saves_the_best_plan_and_draws_the_comparison(penstock: Penstock, tmp_path: Path) -> None:
    plan, picture = tmp_path / "plan.toml", tmp_path / "plan.png"
    ran = penstock("plan", "word-count", "li-10", "--policy", "r-storm", "--save", plan, "--plot", picture)
    assert ran.code == 0
    assert load_plan(plan).application == "word-count"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_saved_plan_has_the_requested_tuple_policies(penstock: Penstock, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    wanted = ("--routing", "potus", "--routing", "source->split=least-loaded", "--sending", "random", "--slot-ms", 2)
    ran = penstock("plan", "word-count", "li-10", "--policy", "r-storm", "--save", plan, *wanted)
    assert ran.code == 0, ran.err
    streams = {"source->split": "least-loaded"}
    assert load_plan(plan).tuples == TuplePolicies(routing="potus", streams=streams, sending="random", slot_ms=2.0)
    named = "routing potus, routing of source->split least-loaded, sending random, slot 2 ms"
    assert f"saved {plan} with {named}\n" in ran.out
    assert "routing potus does not apply to: split->count (fields)\n" in ran.out
    off = penstock("plan", "word-count", "li-10", "--policy", "r-storm", "--save", plan, "--sending", "none", "--json")
    assert json.loads(off.out)["tuples"] == {"sending": "none"}
    assert load_plan(plan).tuples == TuplePolicies(sending="none")  # which takes one away where the plan is applied


def test_diff_lists_changed_tuple_policies(penstock: Penstock, tmp_path: Path) -> None:
    before, after = tmp_path / "before.toml", tmp_path / "after.toml"
    made = ("plan", "word-count", "li-10", "--policy", "r-storm", "--save")
    penstock(*made, before, "--routing", "potus")
    penstock(*made, after, "--routing", "least-loaded", "--sending", "random")
    rows = [line.split() for line in penstock("plans", "diff", before, after).out.splitlines()]
    assert ["routing", "potus", "least-loaded"] in rows
    assert ["sending", "-", "random"] in rows
    policies = json.loads(penstock("plans", "diff", before, after, "--json").out)["policies"]
    assert policies == {"before": {"routing": "potus"}, "after": {"routing": "least-loaded", "sending": "random"}}
    assert "tuple policies" not in penstock("plans", "diff", before, before).out


def test_an_error_found_with_the_cluster_names_the_file(penstock: Penstock, tmp_path: Path) -> None:
    app = tmp_path / "app.toml"
    parts = (
        '[[components]]\nname = "in"\nkind = "source"\npinned = "m77"\n[[components]]\nname = "out"\nkind = "sink"\n'
    )
    app.write_text(f'name = "mine"\n{parts}[[streams]]\nsource = "in"\ntarget = "out"\n')
    for command in (("plan", app, "li-10"), ("sim", "slotted", app, "li-10"), ("run", app, "--emulate", "li-10")):
        ran = penstock(*command)
        assert ran.err.startswith(f"error: {app}: components[0].pinned: cluster 'li-10' has no 'm77'")
        assert (ran.code, ran.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--routing", "nearest", "--save", "plan.toml"), "routing: no routing policy is named 'nearest'; there are"),
        (
            ("--routing", "split->count=potus", "--save", "plan.toml"),
            "routing: stream split->count is grouped by fields",
        ),
        (("--sending", "random"), "sending: it is kept in a saved plan, got 'random' without one; add --save FILE"),
        (
            ("--slot-ms", "0", "--save", "plan.toml"),
            "--slot-ms: expected a number > 0, got 0; choose another, or omit it",
        ),
        (("--slot-ms", "5", "--save", "plan.toml"), "--slot-ms: no policy in force uses slots, got 5"),
        (
            ("--routing", "partial-key", "--save", "plan.toml"),
            "routing: no stream can have 'partial-key'; there are count->database by shuffle",
        ),
    ],
)
def test_tuple_policies_that_cannot_be_are_refused_before_anything_is_planned(
    penstock: Penstock, options: tuple[str, ...], problem: str
) -> None:
    ran = penstock("plan", "word-count", "li-10", "--policy", "r-storm", *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"error: {problem}")


def test_diff_lists_moved_tasks(penstock: Penstock, tmp_path: Path) -> None:
    before, after = tmp_path / "before.toml", tmp_path / "after.json"
    penstock("plan", "word-count", "li-10", "--policy", "round-robin", "--save", before)
    penstock("plan", "word-count", "li-10", "--policy", "t-storm", "--save", after)
    ran = penstock("plans", "diff", before, after)
    assert ran.code == 0
    assert "tasks move" in ran.out
    moved = json.loads(penstock("plans", "diff", before, after, "--json").out)["moves"]
    assert 0 < len(moved) <= 30
    assert json.loads(penstock("plans", "diff", before, before, "--json").out)["moves"] == []


def test_no_placement_ends_with_code_one_and_the_reason(penstock: Penstock, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('name = "small"\n[[machines]]\nname = "m"\nmemory_mb = 10\n')
    ran = penstock("plan", "word-count", small, "--policy", "round-robin", "--save", tmp_path / "plan.toml")
    assert ran.code == 1
    assert "no placement: task" in ran.out
    assert "finds one" not in ran.out
    refusal = json.loads(penstock("plan", "word-count", small, "--policy", "round-robin", "--json").out)["decisions"][0]
    assert (refusal["proven"], refusal["found_by"]) == (True, None)
    assert not (tmp_path / "plan.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "nothing", "li-10"), "application: unknown name 'nothing'"),
        (("plan", "word-count", "nowhere"), "cluster: unknown name 'nowhere'"),
        (
            ("plan", "word-count", "li-10", "--policy", "magic"),
            "policy: no policy is named 'magic'; there are cloud-only",
        ),
        (("plan", "word-count", "li-10", "--policy", "local-search:speed=9"), "no parameter is named 'speed'"),
        (("plan", "word-count", "li-10", "--policy", "local-search:seconds=soon"), "expected a number"),
        (("plan", "word-count", "li-10", "--objective", "joy"), "objective: no objective is named 'joy'"),
        (("plan", "word-count", "li-10", "--policy", "flink", "--save", "plan.yaml"), "ends in .toml, .json"),
        (("plan", "word-count", "li-10", "--policy", "flink", "--plot", "plan.xyz"), "ends in .png"),
        (("plan", "word-count", "li-10", "--policy", "flink", "--plot", "no/such/p.png"), "cannot be written"),
        (("plans", "diff", "none.toml", "none.toml"), "none.toml: cannot be read, no such file"),
        (
            (
                "lab",
                "sweep",
            ),
            "expected an application or --tata",
        ),
        (("lab", "sweep", "word-count", "--policy", "magic"), "no policy is named 'magic'"),
        (("lab", "sweep", "word-count", "--output", "/dev/null/x"), "cannot be made"),
        (("policies", "show", "magic"), "no policy is named 'magic'"),
    ],
)
def test_invalid_input_ends_in_one_line_and_code_two(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = penstock(*arguments)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


def test_policies_lists_every_policy_and_one_with_its_parameters(penstock: Penstock) -> None:
    listed = json.loads(penstock("policies", "list", "--json").out)
    assert len(listed) >= 15
    assert {"name", "kind", "origin", "summary"} <= set(listed[0])
    one = penstock("policies", "show", "local-search")
    assert "seconds=" in one.out
    assert "round-robin" in penstock("policies", "list").out


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "fine"), [("hetero-small", True), ("nowhere", False)])
def test_doctor_compiles_by_planning(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, cluster: str, fine: bool
) -> None:
    others = [name for name in registry.names(registry.PolicyKind.PLACEMENT) if name != "round-robin"]
    monkeypatch.setattr("penstock.cli.doctor.WITHOUT_LOOPS", others)
    monkeypatch.setattr("penstock.cli.doctor.COMPILED_FOR", [("word-count", cluster)])
    monkeypatch.setattr("penstock.pipeline.class_archive.record_classes", lambda: Path(__file__) if fine else None)
    findings = {one["what"]: one for one in json.loads(penstock("doctor", "--compile", "--json").out)["findings"]}
    assert findings["loops"]["fine"] is findings["classes"]["fine"] is fine
    assert fine or findings["loops"]["remedy"] == "run penstock plan word-count nowhere to see why"
    assert fine or findings["classes"]["remedy"].startswith("run penstock run word-count")


def test_doctor_reports_what_is_installed_and_what_is_missing(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert penstock("doctor").code == 0
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    ran = penstock("doctor", "--json")
    assert ran.code == 1
    java = next(finding for finding in json.loads(ran.out)["findings"] if finding["what"] == "java")
    assert not java["fine"]
    assert "JDK 17" in java["remedy"]


def test_help_answers_without_importing_what_is_slow() -> None:
    script = """
import sys
from penstock.cli import main
sys.argv = ["penstock", "--help"]
try:
    main()
except SystemExit:
    print([name for name in ("numba", "pyspark", "matplotlib", "scipy", "pandas") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip().endswith("[]")


def test_a_network_in_repetitas_format_is_a_cluster(penstock: Penstock, tmp_path: Path) -> None:
    network = tmp_path / "pair.graph"
    network.write_text(
        "NODES 2\nlabel x y\nhere 0 0\nthere 1 1\n\n"
        "EDGES 2\nlabel src dest weight bw delay\ne0 0 1 1 1000 500\ne1 1 0 1 1000 500\n"
    )
    ran = penstock("plan", "throughput-test", network, "--policy", "random", "--json")
    assert json.loads(ran.out)["decisions"][0]["placed"]
    assert "here" in penstock("show", network).out
    network.write_text("NODES 2\n")
    refused = penstock("show", network)
    assert refused.code == 2
    assert refused.err.count("\n") == 1


def test_draws_the_best_placement_on_its_cluster(penstock: Penstock, tmp_path: Path) -> None:
    drawing = tmp_path / "best.svg"
    ran = penstock("plan", "word-count", "star-8", "--policy", "round-robin", "--svg", drawing)
    assert ran.code == 0, ran.err
    assert f"drew {drawing}" in ran.out
    drawn = drawing.read_text()
    assert "word-count on star-8" in drawn
    assert "bottleneck: " in drawn
    assert drawn.count('class="task"') == 30
    assert drawn.count('class="link"') == 8
    assert "ends in .svg" in penstock("plan", "word-count", "star-8", "--svg", tmp_path / "best.png").err
