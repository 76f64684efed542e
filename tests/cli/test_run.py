import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli.run_view import find_resume_point
from penstock.model.files import load_cluster, save
from penstock.planning.planner import Planner
from penstock.runtime.config import RunConfig
from penstock.runtime.storage.run_folder import RunLock, create, latest, load
from tests import ROOT, fake_run
from tests.conftest import Ran
from tests.kept_run import keep_checkpoint, kept_run
from tests.settings import config

Penstock = Callable[..., Ran]
FLOW = "tests.fake_run:flow"
TRIO = 'name = "trio"\nmachines = [{ name = "m0" }, { name = "m1" }, { name = "m2" }]\n'


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fake_run.Served]]:
    """Have `penstock run` start fake runs; give those that it started."""
    monkeypatch.setattr("penstock.cli.run.start", fake_run.start)
    monkeypatch.setattr(fake_run, "STARTED", [])
    monkeypatch.setattr(fake_run, "SETTINGS", [])
    monkeypatch.setenv("FAKE_ENDS", "5")
    yield fake_run.STARTED
    for each in fake_run.STARTED:
        each.__exit__()


@pytest.fixture
def trio(tmp_path: Path) -> Path:
    (tmp_path / "trio.toml").write_text(TRIO)
    return tmp_path / "trio.toml"


def test_says_how_it_went_and_what_to_type_next(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path
) -> None:
    ran = penstock("run", FLOW, "--runs", tmp_path)
    assert ran.code == 0
    (run,) = started
    assert "80,210 in (1,234/s), 280,865 out (4,321/s)" in ran.out
    assert f"telemetry {run.info.telemetry_path}" in ran.out
    assert f"penstock report {run.info.folder}" in ran.out
    assert "starting nothing at all" in ran.err
    assert "emulated on trio" in ran.out


def test_json_is_all_that_is_printed(penstock: Penstock, started: list[fake_run.Served], tmp_path: Path) -> None:
    ran = penstock("run", FLOW, "--runs", tmp_path, "--json")
    answer = json.loads(ran.out)
    assert ran.err == ""
    assert answer["run"] == started[0].info.run
    assert answer["status"]["written"] == 280_865
    assert answer["stopped_at_once"] is False


def test_options_reach_the_run(penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, trio: Path) -> None:
    ran = penstock(
        "run", FLOW, "--runs", tmp_path, "--emulate", trio, "--policy", "r-storm", "--telemetry", tmp_path / "t",
        "--sample", 50, "--in-flight", 100, "--seed", 7, "--master", "local[3]", "--rate", 4,
        "--objective", "delay", "--listen", "127.0.0.1:4040", "--checkpoint-every", 0.5, "--guarantee", "any",
        "--routing", "potus", "--routing", "in->split=least-loaded", "--sending", "random", "--slot-ms", 2,
        "--protect-frames", "--umask", "027", "--restarts", 3, "--restart-window", 60,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    (arguments,) = fake_run.SETTINGS
    assert arguments.pop("callbacks") is not None
    assert RunConfig().changed(arguments.pop("config")) == config(
        app=FLOW, rate_tps=4.0, directory=os.getcwd(), master="local[3]", emulate=str(trio), seed=7,
        listen="127.0.0.1:4040", umask=0o027, protect_frames=True, policy="r-storm", objective="delay", interval_s=0.5,
        max_restarts=3, restart_window_s=60.0, in_flight=100, folder=str(tmp_path / "t"), sample_tps=50.0,
        routing="potus", streams={"in->split": "least-loaded"}, sending="random", slot_ms=2.0,
    )  # fmt: skip
    assert arguments == {"plan": None, "policy": "r-storm", "resume": None}
    assert started[0].info.telemetry_path == tmp_path / "t"


def test_a_plan_takes_the_place_of_a_policy(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, trio: Path
) -> None:
    planner = Planner(fake_run.flow().application, load_cluster(trio))
    plan = planner.plan(planner.decide("round-robin"))
    save(plan, tmp_path / "plan.toml")
    command = ("run", FLOW, "--runs", tmp_path, "--emulate", trio, "--plan", tmp_path / "plan.toml")
    assert penstock(*command).code == 0
    assert fake_run.SETTINGS[0]["plan"] == plan
    assert penstock(*command, "--slot-ms", 2).code == 0  # the plan may have policies that it is for
    ran = penstock("run", FLOW, "--runs", tmp_path, "--emulate", trio, "--slot-ms", 2)
    assert ran.err.startswith("error: --slot-ms: no policy in force uses slots, got 2; set a")
    ran = penstock(*command, "--rate", 9)  # costs differ: it is not what was planned for
    assert ran.code == 2
    assert "'fake' has changed since the plan was made; plan again" in ran.err
    ran = penstock(*command, "--policy", "heft")
    assert (
        ran.err
        == f"error: policy: expected --policy or --plan, got 'heft' and {tmp_path / 'plan.toml'}; leave one out\n"
    )
    ran = penstock("run", "word-count", *command[2:])
    assert f"{tmp_path / 'plan.toml'} is a plan for 'fake', not for 'word-count'; plan again" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--duration", "0"], "duration: expected a number > 0, got 0; choose another --duration"),
        (["--duration", "nan"], "duration: expected a number > 0, got nan"),
        (["--rate", "-3"], "--rate: expected a number > 0, got -3"),
        (["--sample", "some"], "--sample: expected a number, all or none, got 'some'; default: 20 tuples/s"),
        (["--in-flight", "0"], "--in-flight: expected a whole number ≥ 1, got 0; leave it out for the default"),
        (["--policy", "fish"], "policy: no policy is named 'fish'; there are"),
        (["--policy", "heft:fins=2"], "policy.heft: no parameter is named 'fins'"),
        (["--emulate", "fish"], "cluster: unknown name 'fish'; did you mean jellyfish?"),
        (["--emulate", "none.toml"], "none.toml: cannot be read"),
        (["--plan", "none.toml"], "none.toml: cannot be read"),
        (
            ["--master", "spark:/head"],
            "master: expected local[n], spark://host:port, yarn or k8s://…, got 'spark:/head'",
        ),
        (["--input", "/no/such/file"], "/no/such/file: cannot be read, there is no such file or folder"),
        (["--telemetry", "{file}/t"], "{file}/t: cannot be made, {file} is not a folder; choose another --telemetry"),
        (["--runs", "{file}"], "{file}: cannot be made, {file} is not a folder; choose another --runs"),
        (["--arrivals", "fish:rate=2"], "arrivals: unknown name 'fish'"),
        (["--arrivals", "poisson"], "arrivals.poisson.rate: missing; add rate=VALUE"),
        (["--arrivals", "poisson:rate=2"], f"arrivals: {FLOW} takes no --arrivals"),
        (["--checkpoint-every", "often"], "--checkpoint-every: expected a number or none, got 'often'; default: 5 s"),
    ],
)
def test_invalid_input_is_one_line_and_starts_nothing(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, options: list[str], problem: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    ran = penstock("run", FLOW, "--runs", tmp_path / "runs", *(option.format(file=file) for option in options))
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert ran.err.startswith("error: " + problem.format(file=file))
    assert started == []
    assert not (tmp_path / "runs").exists()


def safe() -> ps.Dataflow:
    """Return a dataflow that is exactly once throughout."""
    flow = ps.Dataflow("safe")
    flow.sink("out", ps.JsonLines("output"), flow.source("in", ps.Generated(str, rate=1)))
    return flow


class Tag(ps.Operator[str, str]):
    """May have state: nothing excludes it."""


def unsure() -> ps.Dataflow:
    """Return a dataflow that is exactly once if an operator has no state."""
    flow = ps.Dataflow("unsure")
    flow.sink("out", ps.JsonLines("output"), flow.operator("tag", Tag(), flow.source("in", ps.Generated(str, rate=1))))
    return flow


@pytest.mark.parametrize(("text", "seconds"), [("2.5", 2.5), ("none", 0.0), ("0", 0.0)])
def test_sets_the_interval_of_checkpoints(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, text: str, seconds: float
) -> None:
    assert penstock("run", FLOW, "--runs", tmp_path, "--checkpoint-every", text).code == 0
    assert RunConfig().changed(fake_run.SETTINGS[0]["config"]).checkpointing.interval_s == seconds


def test_prints_the_guarantee_at_the_start(penstock: Penstock, started: list[fake_run.Served], tmp_path: Path) -> None:
    printed = penstock("run", FLOW, "--runs", tmp_path).err
    assert "guarantee: exactly once, but for source 'in' (FakeSource): at most once after a failure" in printed
    assert "sink 'out' (FakeSink): at least once after a failure" in printed
    assert "guarantee: exactly once\n" in penstock("run", "tests.cli.test_run:safe", "--runs", tmp_path).err
    printed = penstock("run", "tests.cli.test_run:unsure", "--runs", tmp_path).err
    assert "guarantee: exactly once; if operators without a snapshot have no state: 'tag' (Tag)\n" in printed


def test_neither_an_application_nor_a_run_to_resume_is_one_line(
    penstock: Penstock, started: list[fake_run.Served]
) -> None:
    ran = penstock("run", "--duration", 3)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("error: app: expected an application, got none; name one, word-count")


def test_an_unknown_application_is_one_line(penstock: Penstock, started: list[fake_run.Served]) -> None:
    ran = penstock("run", "word-cuont")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "nothing that can be run is named 'word-cuont'" in ran.err


def test_a_failure_is_one_line_and_exit_code_1(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    ran = penstock("run", FLOW, "--runs", tmp_path)
    assert ran.code == 1
    log = started[0].info.log_path
    assert ran.err.splitlines()[-1] == f"error: split[2]: ValueError: no number; tuple 'x'; more in {log}"


class Running:
    """`penstock run` of a fake run in a process of its own."""

    def __init__(self, runs: Path, *options: str, **environment: str) -> None:
        command = [sys.executable, "-m", "tests.fake_run", "run", FLOW, "--runs", str(runs), *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )  # fmt: skip
        self.said: list[str] = []

    def until(self, text: str) -> None:
        """Read what it says until a text comes."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was not said: {self.said}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def end(self) -> Ran:
        out, err = self.process.communicate(timeout=30)
        return Ran(self.process.returncode, out, "".join(self.said) + err)


@pytest.mark.slow
def test_ctrl_c_once_drains_and_ends_well(tmp_path: Path) -> None:
    run = Running(tmp_path)
    run.until("running:")
    run.interrupt()
    ran = run.end()
    assert ran.code == 0
    assert "draining; Ctrl-C again stops at once\n" in ran.err
    assert "penstock report" in ran.out
    assert load(latest(tmp_path).path).ended is not None


@pytest.mark.slow
def test_ctrl_c_twice_stops_at_once(tmp_path: Path) -> None:
    run = Running(tmp_path, FAKE_DRAIN="never")
    run.until("running:")
    run.interrupt()
    run.until("draining; Ctrl-C again stops at once")
    run.interrupt()
    ran = run.end()
    assert ran.code == 130
    assert "stopping at once\n" in ran.err
    assert "penstock report" in ran.out


@pytest.mark.slow
def test_when_the_time_is_up_it_drains_and_one_ctrl_c_stops(tmp_path: Path) -> None:
    run = Running(tmp_path, "--duration", "0.2", FAKE_DRAIN="never")
    run.until("the time is up, draining; Ctrl-C stops at once")
    run.interrupt()
    assert run.end().code == 130


@pytest.mark.slow
def test_a_polite_kill_drains_too(tmp_path: Path) -> None:
    run = Running(tmp_path)
    run.until("running:")
    run.interrupt(signal.SIGTERM)
    assert run.end().code == 0


# Going on with a run


def stopped(runs: Path, **settings: Any) -> Path:
    """Make the folder of a run that can be resumed."""
    settings = {"app": FLOW, "rate_tps": 4.0, "directory": os.getcwd(), "seed": 7, **settings}
    return create("fake", runs, config=config(**settings)).path


def started_by_a_program(runs: Path) -> Path:
    """Make the folder of a run that can be resumed, whose application has no name on the command line."""
    return create("fake", runs, config=config(seed=7)).path


def test_a_resumed_run_keeps_settings_that_are_not_named(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path
) -> None:
    folder = stopped(tmp_path / "runs")
    ran = penstock("runs", "resume", folder.name, "--runs", tmp_path / "runs", "--policy", "heft")
    assert ran.code == 0, ran.err
    (arguments,) = fake_run.SETTINGS
    assert (arguments["resume"], arguments["policy"]) == (folder, "heft")
    application = arguments["config"].pop("application")
    assert (application["app"], application["rate_tps"]) == (FLOW, 4.0)
    changes = {section: values for section, values in arguments["config"].items() if section != "tuple_policies"}
    assert changes == {"planning": {"policy": "heft"}}  # all else as it was
    assert arguments["config"]["tuple_policies"] == {}
    stopped(tmp_path / "others")
    penstock("runs", "resume", "latest", "--runs", tmp_path / "others", "--rate", 9)
    assert fake_run.SETTINGS[1]["config"]["application"]["rate_tps"] == 9.0


def test_the_module_of_a_resumed_run_is_found_from_elsewhere(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "far_app.py").write_text("from tests.fake_run import flow\n")
    folder = stopped(tmp_path / "runs", app="far_app:flow", directory=str(home))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    ran = penstock("runs", "resume", folder)
    assert ran.code == 0, ran.err


def test_another_application_may_be_named_for_a_run_that_a_program_started(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path
) -> None:
    folder = started_by_a_program(tmp_path)
    ran = penstock("runs", "resume", folder)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    again = f"penstock runs resume {folder.name} module:object"
    assert f"run {folder.name} was started by a program; name its application too: {again}" in ran.err
    assert penstock("runs", "resume", folder, FLOW).code == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [("emulate", "hetero-small"), ("seed", "3"), ("input", __file__)],
)
def test_what_a_run_keeps_is_not_for_options_to_change(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, option: str, value: object
) -> None:
    ran = penstock("runs", "resume", stopped(tmp_path), f"--{option}", value)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"error: --{option}: a resumed run keeps ")
    assert ran.err.endswith("; leave it out, or start a new run\n")
    assert started == []


def test_a_run_that_is_not_there_or_runs_or_is_at_its_end_is_one_line(penstock: Penstock, tmp_path: Path) -> None:
    ran = penstock("runs", "resume", "other", "--runs", tmp_path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "no run is named 'other'" in ran.err
    info = kept_run(tmp_path)
    lock = RunLock(info)
    ran = penstock("runs", "resume", info.path)
    lock.release()
    assert (ran.code, f"error: run {info.run} is being run by process {os.getpid()}" in ran.err) == (2, True)
    keep_checkpoint(info, 4, last=True)
    ran = penstock("runs", "resume", info.path)
    assert (ran.code, ran.err.splitlines()[-1]) == (
        2,
        f"error: run {info.run} has completed, there is nothing to resume; its output is in {info.output_path}",
    )


def test_finishing_what_only_had_to_be_published_ends_well(penstock: Penstock, tmp_path: Path) -> None:
    info = kept_run(tmp_path)
    (info.output_path / "_part.e3").write_text("all\n")
    ready = ((str(info.output_path / "_part.e3"), str(info.output_path / "part.jsonl")),)
    keep_checkpoint(info, 4, pending={"out[0]": ready}, published=False, last=True)
    ran = penstock("runs", "resume", info.path)
    assert ran.code == 0, ran.err
    assert "had completed except for publishing its last files; they are published now" in ran.out
    assert (info.output_path / "part.jsonl").read_text() == "all\n"


def test_a_run_that_was_stopped_shows_where_it_resumes(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path
) -> None:
    ran = penstock("run", FLOW, "--runs", tmp_path)
    assert "starts again, as no checkpoint is complete" in " ".join(ran.out.split())  # the fake run writes none
    info = kept_run(tmp_path / "kept")
    assert find_resume_point(info) == "starts again, as no checkpoint is complete"
    keep_checkpoint(info, 4)
    assert find_resume_point(info) == "resumes from checkpoint 4"
    keep_checkpoint(info, 5, last=True)
    assert find_resume_point(info) == ""


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("cuont=3", "parallelism.cuont: 'word-count' has no component 'cuont'; did you mean count?"),
        ("count=0", "execution.parallelism.count: expected a whole number ≥ 1, got 0"),
        ("count", "--parallelism: expected COMPONENT=NUMBER, got 'count'"),
        ("count=x", "--parallelism: expected COMPONENT=NUMBER, got 'count=x'"),
        ("count=5000", "parallelism.count: keys can be distributed to at most 4096 tasks, 'count' has 5000;"),
    ],
)
def test_a_number_of_tasks_is_checked_before_anything_starts(
    penstock: Penstock, tmp_path: Path, given: str, problem: str
) -> None:
    ran = penstock("run", "word-count", "--parallelism", given, "--runs", tmp_path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"error: {problem}")
    assert not list(tmp_path.iterdir())
