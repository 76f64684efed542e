import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.cli.output import console
from penstock.model.files import load_plan, save
from penstock.model.tuples import TuplePolicies
from tests.conftest import Ran

Penstock = Callable[..., Ran]

SHORT = ("--slots", "300")
KEYED = """
name = "keyed"
rate_tps = { in = 100 }
[[components]]
name = "in"
kind = "source"
[[components]]
name = "count"
kind = "sink"
cpu = 0.001
parallelism = 2
[[streams]]
source = "in"
target = "count"
grouping = "fields"
keys = ["word"]
"""


@pytest.mark.slow
def test_a_row_a_routing_and_the_best_is_marked(penstock: Penstock) -> None:
    ran = penstock("sim", "slotted", "word-count", "li-10", "--routing", "shuffle", "--routing", "least-loaded", *SHORT)
    assert ran.code == 0, ran.err
    assert "placed by t-heron" in ran.out
    assert "Poisson at 80 % of what it can carry" in ran.out
    assert ran.out.count("★") == 2  # the row and the legend
    for column in ("response", "p99", "cost", "× least", "backlog", "left"):
        assert column in ran.out
    assert "shuffle" in ran.out
    assert "least-loaded" in ran.out


def test_without_a_routing_all_that_apply_are_compared(penstock: Penstock) -> None:
    answer = json.loads(penstock("sim", "slotted", "word-count", "li-10", *SHORT, "--json").out)
    found = [row["routing"] for row in answer["routings"]]
    assert {"shuffle", "round-robin", "load-aware-shuffle", "least-loaded", "potus", "potus-plus"} <= set(found)
    assert "fields" not in found
    assert answer["best"] in found


def test_all_stands_for_those_not_named_beside_it(penstock: Penstock) -> None:
    ran = penstock(
        "sim", "slotted", "word-count", "li-10", "--routing", "all", "--routing", "potus:v=7", *SHORT, "--json"
    )  # fmt: skip
    found = [row["routing"] for row in json.loads(ran.out)["routings"]]
    assert "potus:v=7" in found
    assert "potus" not in found
    assert "shuffle" in found


def test_json_holds_settings_load_and_every_measure(penstock: Penstock) -> None:
    ran = penstock(
        "sim", "slotted", "continuous-queries-large", "li-10", "--routing", "shuffle", "--slots", "200",
        "--slot-ms", "5", "--warm-up", "20", "--seed", "3", "--seed", "4", "--policy", "t-heron:capacity=20", "--json",
    )  # fmt: skip
    answer = json.loads(ran.out)
    assert (answer["slots"], answer["slot_ms"], answer["warm_up"]) == (200, 5.0, 20)
    assert answer["seeds"] == [3, 4]
    assert answer["placement"] == "t-heron:capacity=20"
    assert answer["load"]["offered_tps"] == pytest.approx(6650, rel=0.05)
    assert answer["warning"] is None
    (row,) = answer["routings"]
    assert row["response_ms"] == pytest.approx(5 * row["response_slots"])
    assert row["cost_ratio"] == pytest.approx(row["cost"] / answer["load"]["least_cost"])
    assert row["tuples"] == pytest.approx(6650 * 0.9, rel=0.05)
    assert row["response_deviation_ms"] > 0
    assert {"response_p99_ms", "queueing_ms", "fairness", "longest", "backlog", "unfinished"} <= row.keys()


def test_equal_seeds_give_equal_answers(penstock: Penstock) -> None:
    ask = ("sim", "slotted", "word-count", "li-10", "--routing", "potus", *SHORT, "--json", "--seed")
    assert penstock(*ask, 5).out == penstock(*ask, 5).out
    assert penstock(*ask, 5).out != penstock(*ask, 6).out


def test_reports_overload_with_its_component_and_the_maximum_rate(penstock: Penstock) -> None:
    ran = penstock(
        "sim", "slotted", "word-count", "li-10", "--routing", "shuffle", "--arrivals", "poisson:rate=20000", *SHORT
    )  # fmt: skip
    assert ran.code == 0
    warning = next(line for line in ran.out.splitlines() if line.startswith("overload: "))
    assert "component 'database' is used up at 6,17" in warning
    assert "whatever the routing" in warning


def test_reports_an_even_split_that_overloads_a_slow_machine(penstock: Penstock) -> None:
    ran = penstock(
        "sim", "slotted", "word-count", "hetero-small", "--routing", "shuffle", "--routing", "potus-plus",
        "--arrivals", "poisson:rate=2300", "--slots", "600",
    )  # fmt: skip
    assert "an even split uses up component 'database' at 1,91" in ran.out
    assert "only routings that use the load can keep up" in ran.out
    assert "potus-plus ★" in ran.out


def test_a_plan_places_the_tasks(penstock: Penstock, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    penstock("plan", "word-count", "li-10", "--policy", "flink-spread", "--save", plan)
    assert load_plan(plan).policy == "flink-spread"
    common = ("word-count", "li-10", "--routing", "shuffle", *SHORT, "--json")
    by_plan = json.loads(penstock("sim", "slotted", *common, "--plan", plan).out)
    by_policy = json.loads(penstock("sim", "slotted", *common, "--policy", "flink-spread").out)
    assert by_plan["routings"] == by_policy["routings"]
    assert by_plan["placement"] == str(plan)


def test_a_card_and_a_sending_rule_show_the_queues(penstock: Penstock) -> None:
    ran = penstock(
        "sim", "slotted", "word-count", "li-10", "--routing", "shuffle", "--link", "60", "--sending",
        "longest-backlog-first", *SHORT,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    for column in ("queue", "waits", "Jain"):
        assert column in ran.out


def test_a_wide_terminal_shows_every_column(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 130)
    ran = penstock("sim", "slotted", "word-count", "li-10", "--routing", "shuffle", *SHORT)
    for column in ("response", "p99", "slots", "cost", "× least", "backlog", "queue", "waits", "Jain", "left"):
        assert column in ran.out


def test_reports_look_ahead_and_checks(penstock: Penstock) -> None:
    ran = penstock(
        "sim", "slotted", "word-count", "li-10", "--routing", "potus", "--forecaster", "ewma", "--check", *SHORT
    )  # fmt: skip
    assert "sources look 1 slot ahead (ewma)" in ran.out
    assert "checked: in every slot every tuple was in exactly one place" in ran.out
    assert (
        "3 slots ahead (perfect)"
        in penstock("sim", "slotted", "word-count", "li-10", "--routing", "potus", "--look-ahead", "3", *SHORT).out
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_a_picture_is_drawn(penstock: Penstock, tmp_path: Path, ending: str) -> None:
    picture = tmp_path / f"simulation{ending}"
    ran = penstock(
        "sim",
        "slotted",
        "word-count",
        "li-10",
        "--routing",
        "shuffle",
        "--routing",
        "local-first",
        *SHORT,
        "--plot",
        picture,
    )
    assert f"drew {picture}" in ran.out.replace("\n", "")
    assert picture.stat().st_size > 5000


def test_tuples_that_are_served_before_they_come_can_be_drawn(penstock: Penstock, tmp_path: Path) -> None:
    picture = tmp_path / "simulation.png"
    ran = penstock(
        "sim", "slotted", "word-count", "li-10", "--routing", "potus", "--look-ahead", "9", *SHORT, "--plot", picture
    )
    assert ran.code == 0, ran.err
    assert picture.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--routing", "potsu"], "routing: no routing policy is named 'potsu'; did you mean potus?"),
        (["--routing", "potus:w=3"], "no parameter is named 'w'"),
        (["--slots", "100", "--warm-up", "100"], "--warm-up: expected 0 to 99 of the 100 slots, got 100; add slots"),
        (["--arrivals", "replay:path=/nowhere.csv"], "/nowhere.csv: cannot be read"),
        (["--arrivals", "poisson:rate=9,slot=2"], "arrivals.slot: expected none, got 2; use --slot-ms"),
        (["--arrivals", "poison:rate=9"], "unknown name 'poison'"),
        (["--sending", "fifo"], "sending: fifo has nothing to decide"),
        (["--sending", "lifo", "--link", "9"], "sending: no sending policy is named 'lifo'"),
        (["--forecaster", "magic"], "no forecast policy is named 'magic'"),
        (["--policy", "flink", "--plan", "plan.toml"], "expected a plan or a policy"),
        (["--plan", "/nowhere.toml"], "/nowhere.toml: cannot be read"),
        (["--policy", "nobody"], "no policy is named 'nobody'"),
        (["--slot-ms", "0"], "--slot-ms: expected a number of milliseconds > 0, got 0; choose another"),
        (["--link", "0"], "--link: expected a number ≥ 1, got '0' (see penstock sim slotted --help)"),
        (["--slots", "many"], "--slots: expected a whole number, got 'many'"),
        (["--arrivals", "nowhere.csv"], "arrivals: no file and no process is named 'nowhere.csv'; there are"),
        (
            ["--forecaster", "kalman", "--look-ahead", "0"],
            "--look-ahead: expected 1 slot or more with --forecaster kalman, got 0",
        ),
        (["--plot", "picture.gif"], "expected a name that ends in .png, .svg, .pdf"),
    ],
)
def test_reports_invalid_input_in_one_line(penstock: Penstock, options: list[str], message: str) -> None:
    ran = penstock("sim", "slotted", "word-count", "li-10", *options)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


@pytest.fixture
def plan(penstock: Penstock, tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    assert penstock("plan", "word-count", "li-10", "--policy", "t-heron", "--save", path).code == 0
    return path


def ruled(plan: Path, **policies: object) -> None:
    """Give a plan's file tuple policies."""
    save(replace(load_plan(plan), tuples=TuplePolicies(**policies)), plan)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_plans_tuple_policies_are_what_is_simulated(penstock: Penstock, plan: Path) -> None:
    ruled(plan, routing="potus:v=7", sending="random", slot_ms=5.0)
    ran = penstock("sim", "slotted", "word-count", "li-10", "--plan", plan, "--link", 200, *SHORT, "--json")
    answer = json.loads(ran.out)
    assert [row["routing"] for row in answer["routings"]] == ["potus:v=7"]
    assert (answer["sending"], answer["slot_ms"], answer["placement"]) == ("random", 5.0, str(plan))
    own = ("--routing", "shuffle", "--sending", "fifo", "--slot-ms", 10)
    other = json.loads(
        penstock("sim", "slotted", "word-count", "li-10", "--plan", plan, "--link", 200, *own, *SHORT, "--json").out
    )
    assert [row["routing"] for row in other["routings"]] == ["shuffle"]
    assert (other["sending"], other["slot_ms"]) == ("fifo", 10.0)
    both = json.loads(
        penstock("sim", "slotted", "word-count", "li-10", "--plan", plan, "--routing", "all", *SHORT, "--json").out
    )
    assert {"potus:v=7", "shuffle"} <= {row["routing"] for row in both["routings"]}
    assert "the plan's sending, random, has nothing to decide without --link TUPLES" in both["notes"]


@pytest.mark.parametrize(
    ("policies", "problem"),
    [
        ({"routing": "nearest"}, "tuples.routing: no routing policy is named 'nearest'; there are"),
        ({"sending": "potus"}, "tuples.sending: no sending policy is named 'potus'"),
        ({"streams": {"source->split": "x"}}, "tuples.streams.source->split: no routing policy is named 'x'"),
        ({"streams": {"a->b": "potus"}}, "routing: no stream is named 'a->b'"),
        ({"streams": {"source->split": "potus"}}, "tuples.streams: expected one routing for all streams"),
    ],
)
def test_policies_in_a_plan_that_cannot_be_name_file_and_field(
    penstock: Penstock, plan: Path, policies: dict[str, object], problem: str
) -> None:
    ruled(plan, **policies)
    ran = penstock("sim", "slotted", "word-count", "li-10", "--plan", plan, *SHORT)
    assert ran.err.startswith(f"error: {plan}: {problem}")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_says_under_which_circumstances(penstock: Penstock) -> None:
    given = ("--link", 300, "--sending", "random", "--look-ahead", 2, "--forecaster", "kalman")
    asked = ("--routing", "shuffle", "--arrivals", "poisson:rate=5000")
    ran = penstock("sim", "slotted", "word-count", "li-10", *given, *asked, *SHORT)
    line = ran.out.splitlines()[1]
    assert "at most 300 tuples per slot leave a machine, sent by random" in line
    assert "sources look 2 slots ahead (kalman)" in line
    assert "poisson:rate=5000: " in line
    assert "streams that keep their grouping, whatever the routing: split->count (fields)" in ran.out
    answer = json.loads(penstock("sim", "slotted", "word-count", "li-10", *given, *asked, *SHORT, "--json").out)
    assert (answer["link"], answer["sending"]) == (300, "random")
    assert (answer["look_ahead"], answer["forecaster"]) == (2, "kalman")
    assert (answer["arrivals"], answer["asked_tps"]) == ("poisson:rate=5000", 5000.0)


def test_reports_a_rate_that_differs_from_the_requested_one(penstock: Penstock, tmp_path: Path) -> None:
    trace = tmp_path / "rising.csv"
    trace.write_text("\n".join(map(str, range(100, 1100))))
    asked = f"{trace}:rate=500"
    answer = json.loads(
        penstock(
            "sim", "slotted", "word-count", "li-10", "--routing", "shuffle", "--arrivals", asked, *SHORT, "--json"
        ).out
    )
    assert answer["load"]["offered_tps"] < 120  # the beginning of the trace
    assert "500.0/s were requested: the rate is a mean over a longer time; add --slots" in answer["notes"][0]


def test_phantoms_count_where_more_comes_than_can_be_carried(penstock: Penstock) -> None:
    real = ("--routing", "shuffle", "--arrivals", "poisson:rate=4000")
    calm = json.loads(penstock("sim", "slotted", "word-count", "li-10", *real, *SHORT, "--json").out)
    assert calm["warning"] is None
    haunted = ("--look-ahead", "1", "--forecaster", "false-positive:x=20")  # a slot and source
    answer = json.loads(penstock("sim", "slotted", "word-count", "li-10", *real, *haunted, *SHORT, "--json").out)
    assert answer["load"]["phantom_tps"] == pytest.approx(6 * 20 * 100, rel=0.05)  # to each of six sources, a slot
    assert re.search(r"of the [34],\d+/s offered and 1\d,\d+/s of phantoms, whatever the routing", answer["warning"])


def test_ctrl_c_ends_in_one_line(penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted_flow.py").write_text("def flow():\n    raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    ran = penstock("sim", "slotted", "interrupted_flow:flow", "li-10")
    assert (ran.code, ran.out, ran.err) == (130, "", "stopped\n")


def test_a_missing_placement_is_an_error(penstock: Penstock) -> None:
    ran = penstock("sim", "slotted", "word-count", "tata-3", "--policy", "flink")
    assert ran.code == 2
    assert "policy: flink finds no placement: the 8 tasks of component 'split' need a slot each" in ran.err


def test_an_application_whose_keys_decide_everything_has_no_routing_to_compare(
    penstock: Penstock, tmp_path: Path
) -> None:
    app = tmp_path / "keyed.toml"
    app.write_text(KEYED)
    ran = penstock("sim", "slotted", app, "li-10", "--routing", "potus", *SHORT)
    assert ran.code == 2
    assert "routing: potus has nothing to decide: every stream of 'keyed' uses keys or goes to all tasks" in ran.err
    both = penstock("sim", "slotted", app, "li-10", *SHORT)
    assert both.code == 0, both.err
    assert "Poisson at its own rate" in both.out
    assert "fields" in both.out


def test_help_teaches_by_examples(penstock: Penstock) -> None:
    shown = penstock("sim", "slotted", "--help").out
    assert "penstock sim slotted word-count li-10" in shown
    for option in ("--routing", "--sending", "--arrivals", "--slots", "--slot-ms", "--warm-up", "--policy", "--plan",
                   "--forecaster", "--look-ahead", "--link", "--seed", "--check", "--plot", "--json"):  # fmt: skip
        assert option in shown
