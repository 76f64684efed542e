import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from penstock.model.cluster import Cluster, Machine
from penstock.model.files import save
from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.model.topology import Application
from penstock.model.tuples import TuplePolicies
from penstock.workloads.applications import APPLICATIONS, application
from penstock.workloads.clusters import CLUSTERS, cluster
from tests import ROOT
from tests.conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture
def plan() -> Plan:
    app, machines = application("word-count"), cluster("li-10")
    slots = tuple(task % machines.slot_count for task in range(app.task_count))
    return to_plan(
        app, machines, Placement(slots), policy="by-hand", objective="throughput", expected={"rate_tps": 12.5}
    )


def test_draws_a_built_in_application(penstock: Run) -> None:
    ran = penstock("show", "log-processing")
    assert ran.code == 0
    for component in application("log-processing").components:
        assert f"│ {component.name} ×{component.parallelism} " in ran.out
    assert "33 tasks" in ran.out


def test_draws_a_built_in_cluster_with_parameters(penstock: Run) -> None:
    ran = penstock("show", "hetero:machines=3,seed=5")
    assert ran.code == 0
    assert all(f"│ m{number} " in ran.out for number in range(3))
    assert "3 machines on 3 hosts" in ran.out


def test_names_labels_of_machines_and_components_that_stay_apart(penstock: Run, tmp_path: Path) -> None:
    machines = tuple(Machine(name=f"m{n}", labels=("big", "camera")[: 2 if n < 2 else 1]) for n in range(5))
    save(Cluster(name="site", machines=machines), tmp_path / "site.toml")
    app = msgspec.structs.replace(application("word-count"), name="apart")
    parts = tuple(
        msgspec.structs.replace(one, anti_affinity=("count",)) if one.name == "split" else one for one in app.components
    )
    save(msgspec.structs.replace(app, components=parts), tmp_path / "apart.toml")
    assert "big: 5 machines · camera: m0, m1" in " ".join(penstock("show", tmp_path / "site.toml").out.split())
    assert "split apart from count" in " ".join(penstock("show", tmp_path / "apart.toml").out.split())


def test_draws_within_the_terminals_width(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (60, 100, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        for name in ("word-count-two-sources", "fat-tree"):
            lines = penstock("show", name).out.splitlines()
            assert max(map(len, lines)) <= width


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_draws_files_of_every_kind(penstock: Run, tmp_path: Path, plan: Plan, ending: str) -> None:
    things = {"application": application("word-count"), "cluster": cluster("star-8"), "plan": plan}
    for name, thing in things.items():
        save(thing, tmp_path / f"{name}.{ending}")
        ran = penstock("show", tmp_path / f"{name}.{ending}")
        assert ran.code == 0, ran.err
    assert "by by-hand" in ran.out
    assert "expected: rate 12.5 tuples/s" in ran.out
    assert all(f"{component}[" in ran.out for component in plan.tasks)


def test_a_plan_names_its_tuple_policies_and_those_that_nobody_knows_are_refused(
    penstock: Run, tmp_path: Path, plan: Plan
) -> None:
    save(msgspec.structs.replace(plan, tuples=TuplePolicies(routing="potus:v=2")), tmp_path / "plan.toml")
    assert penstock("show", tmp_path / "plan.toml").out.splitlines()[2] == "routing potus:v=2"
    save(msgspec.structs.replace(plan, tuples=TuplePolicies(sending="nobody")), tmp_path / "plan.toml")
    line = refused(penstock("show", tmp_path / "plan.toml"))
    assert line.startswith(f"error: {tmp_path}/plan.toml: tuples.sending: no sending policy is named 'nobody'")


def test_without_a_thing_lists_what_is_built_in(penstock: Run) -> None:
    ran = penstock("show")
    listed = json.loads(penstock("show", "--json").out)
    assert ran.code == 0
    assert list(listed["applications"]) == list(APPLICATIONS)
    assert list(listed["clusters"]) == list(CLUSTERS)
    assert all(name in ran.out for name in (*APPLICATIONS, *CLUSTERS))


def test_json_is_the_thing_itself_and_what_follows_from_it(penstock: Run, tmp_path: Path, plan: Plan) -> None:
    save(plan, tmp_path / "plan.toml")
    printed = json.loads(penstock("show", "word-count", "--json").out)
    assert msgspec.convert(printed["application"], Application) == application("word-count")
    assert printed["facts"]["tasks"] == 30
    printed = json.loads(penstock("show", "fat-tree", "--json").out)
    assert msgspec.convert(printed["cluster"], Cluster) == cluster("fat-tree")
    assert printed["facts"]["switches"] == 24
    printed = json.loads(penstock("show", tmp_path / "plan.toml", "--json").out)
    assert msgspec.convert(printed["plan"], Plan) == plan
    assert printed["facts"] == {"tasks": 30, "slots": 30, "machines": 3, "routes": 0}


def test_svg_goes_into_the_file_and_only_there(penstock: Run, tmp_path: Path) -> None:
    ran = penstock("show", "word-count", "--svg", tmp_path / "drawing.svg")
    assert ran.code == 0
    assert ran.out == f"drew {tmp_path / 'drawing.svg'}\n"
    assert ElementTree.parse(tmp_path / "drawing.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert [path.name for path in tmp_path.iterdir()] == ["drawing.svg"]


def test_a_plan_shows_its_load_when_its_application_and_cluster_are_named(
    penstock: Run, tmp_path: Path, plan: Plan
) -> None:
    renamed = msgspec.structs.replace(cluster("li-10"), name="ours")
    ours = to_plan(application("word-count"), renamed, Placement(tuple(range(30))), policy="by-hand", objective="delay")
    for name, thing in (("plan", ours), ("cluster", renamed), ("other", cluster("star-8"))):
        save(thing, tmp_path / f"{name}.toml")
    alone = penstock("show", tmp_path / "plan.toml")
    assert "bottleneck" not in alone.out
    both = ("--application", "word-count", "--cluster", tmp_path / "cluster.toml")
    ran = penstock("show", tmp_path / "plan.toml", *both)
    assert ran.code == 0, ran.err
    assert "bottleneck: " in ran.out
    assert "idle: m3 … m9 · 70 free slots" in ran.out
    assert penstock("show", tmp_path / "plan.toml", *both, "--svg", tmp_path / "plan.svg").code == 0
    assert 'class="free"' in (tmp_path / "plan.svg").read_text()
    wrong = ("--application", "word-count", "--cluster", tmp_path / "other.toml")
    assert "the plan is for 'ours'" in refused(penstock("show", tmp_path / "plan.toml", *wrong))
    assert "add --cluster" in refused(penstock("show", tmp_path / "plan.toml", *both[:2]))
    assert "remove --application" in refused(penstock("show", "li-10", *both))


def test_svg_and_json_together_print_only_json(penstock: Run, tmp_path: Path) -> None:
    ran = penstock("show", "li-10", "--json", "--svg", tmp_path / "drawing.svg")
    assert json.loads(ran.out)["facts"]["machines"] == 10
    assert (tmp_path / "drawing.svg").exists()


def refused(ran: Ran) -> str:
    """Return the one line of a refusal."""
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    return ran.err


def test_an_unknown_name_is_answered_with_what_looks_like_it(penstock: Run) -> None:
    for name, close in (("word-cuont", "word-count"), ("hetero-smal", "hetero-small")):
        assert f"is named '{name}'; did you mean {close}" in refused(penstock("show", name))


def test_an_unknown_parameter_is_refused(penstock: Run) -> None:
    assert "wheels" in refused(penstock("show", "hetero:wheels=4"))


def test_files_that_cannot_be_understood_are_refused_in_one_line(penstock: Run, tmp_path: Path) -> None:
    for name, text, problem in (
        ("broken.toml", "machines = [", "not valid TOML"),
        ("broken.json", "{", "not valid JSON"),
        ("other.toml", "x = 1", "expected components, machines or tasks"),
        ("wrong.toml", "name = 'c'\n[[machines]]\nname = 'm'\ncores = 0", "machines[0].cores"),
        ("notes.txt", "hello", "ends in .toml or .json"),
    ):
        (tmp_path / name).write_text(text)
        line = refused(penstock("show", tmp_path / name))
        assert str(tmp_path / name) in line
        assert problem in line
    assert "no such file" in refused(penstock("show", tmp_path / "absent.toml"))


def test_an_svg_that_cannot_be_written_is_refused_and_leaves_nothing(penstock: Run, tmp_path: Path) -> None:
    assert "cannot be written" in refused(penstock("show", "word-count", "--svg", tmp_path / "absent" / "x.svg"))
    (tmp_path / "folder.svg").mkdir()
    assert "cannot be written" in refused(penstock("show", "word-count", "--svg", tmp_path / "folder.svg"))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


def test_shows_a_dataflow_of_ones_own(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.delitem(sys.modules, "word_count", raising=False)
    ran = penstock("show", "word_count:flow")
    assert ran.code == 0, ran.err
    assert "split" in ran.out


def test_ones_own_dataflow_comes_with_what_it_promises(penstock: Run) -> None:
    ran = penstock("show", "tests.fake_run:flow")
    assert ran.code == 0, ran.err
    assert "guarantee: exactly once, but for source 'in' (FakeSource): at most once after a failure" in ran.out
    assert "guarantee" not in penstock("show", "word-count").out
    assert "guarantee" not in json.loads(penstock("show", "tests.fake_run:flow", "--json").out)
