import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.control.planner import Planner
from penstock.model.files import load_cluster, save
from penstock.runtime.folder import latest, load
from tests import fake_run
from tests.conftest import Ran

Penstock = Callable[..., Ran]
ROOT = Path(__file__).resolve().parents[2]
FLOW = "tests.fake_run:flow"
TRIO = 'name = "trio"\nmachines = [{ name = "m0" }, { name = "m1" }, { name = "m2" }]\n'


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fake_run.Served]]:
    """Have `penstock run` start fake runs; give those that it started."""
    monkeypatch.setitem(sys.modules, "penstock.control.live", fake_run.stand_in())
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


def test_what_was_asked_reaches_the_run(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, trio: Path
) -> None:
    ran = penstock(
        "run", FLOW, "--runs", tmp_path, "--emulate", trio, "--policy", "r-storm", "--telemetry", tmp_path / "t",
        "--sample", 50, "--in-flight", 100, "--seed", 7, "--master", "local[3]", "--rate", 4,
        "--objective", "delay", "--listen", "127.0.0.1:4040",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    (settings,) = fake_run.SETTINGS
    assert settings.pop("progress") is not None
    assert settings == {
        "master": "local[3]", "emulate": load_cluster(trio), "policy": "r-storm", "plan": None, "sample_tps": 50.0,
        "in_flight": 100, "seed": 7, "objective": "delay", "listen": "127.0.0.1:4040",
    }  # fmt: skip
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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--duration", "0"], "duration: expected a number > 0, got 0; choose another --duration"),
        (["--duration", "nan"], "duration: expected a number > 0, got nan"),
        (["--rate", "-3"], "rate: expected a number > 0, got -3"),
        (["--sample", "some"], "sample: expected a number ≥ 0, all or none, got 'some'; choose another --sample"),
        (["--in-flight", "0"], "in_flight: expected a number > 0, got 0; choose another --in-flight"),
        (["--policy", "fish"], "policy: no policy is named 'fish'; there are"),
        (["--policy", "heft:fins=2"], "policy.heft: no parameter is named 'fins'"),
        (["--emulate", "fish"], "cluster: nothing here is named 'fish'; there are"),
        (["--emulate", "none.toml"], "none.toml: cannot be read"),
        (["--plan", "none.toml"], "none.toml: cannot be read"),
        (
            ["--master", "spark:/head"],
            "master: expected local[n], spark://host:port, yarn or k8s://…, got 'spark:/head'",
        ),
        (["--input", "/no/such/file"], "/no/such/file: cannot be read, there is no such file or folder"),
        (["--telemetry", "{file}/t"], "{file}/t: cannot be made, {file} is not a folder; choose another --telemetry"),
        (["--runs", "{file}"], "{file}: cannot be made, {file} is not a folder; choose another --runs"),
        (["--arrivals", "fish:rate=2"], "arrivals: nothing here is named 'fish'"),
        (["--arrivals", "poisson"], "arrivals.poisson.rate: missing; add rate=VALUE"),
        (["--arrivals", "poisson:rate=2"], f"arrivals: {FLOW} takes no --arrivals"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(
    penstock: Penstock, started: list[fake_run.Served], tmp_path: Path, options: list[str], problem: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    ran = penstock("run", FLOW, "--runs", tmp_path / "runs", *(option.format(file=file) for option in options))
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    assert ran.err.startswith("error: " + problem.format(file=file))
    assert started == []
    assert not (tmp_path / "runs").exists()


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


def test_ctrl_c_once_drains_and_ends_well(tmp_path: Path) -> None:
    run = Running(tmp_path)
    run.until("running:")
    run.interrupt()
    ran = run.end()
    assert ran.code == 0
    assert "draining; Ctrl-C again stops at once\n" in ran.err
    assert "penstock report" in ran.out
    assert load(latest(tmp_path).path).ended is not None


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


def test_when_the_time_is_up_it_drains_and_one_ctrl_c_stops(tmp_path: Path) -> None:
    run = Running(tmp_path, "--duration", "0.2", FAKE_DRAIN="never")
    run.until("the time is up, draining; Ctrl-C stops at once")
    run.interrupt()
    assert run.end().code == 130


def test_a_polite_kill_drains_too(tmp_path: Path) -> None:
    run = Running(tmp_path)
    run.until("running:")
    run.interrupt(signal.SIGTERM)
    assert run.end().code == 0
