import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import msgspec
import pytest

from penstock.model.errors import PenstockError
from penstock.model.plan import Plan
from penstock.runtime import control_socket as socket_module
from penstock.runtime.config import RunConfig
from penstock.runtime.control_socket import (
    LONGEST_PATH,
    ApplyPlan,
    ControlServer,
    DrainRun,
    GetLog,
    GetStatus,
    MoveTask,
    NotAnswering,
    StopRun,
    Unanswered,
    ask,
)
from penstock.runtime.storage.run_folder import NoRun, create, load, write_info
from tests.fake_run import PLACEMENT, FakeHandle, Served


def plan(**tasks: tuple[str, ...]) -> Plan:
    return Plan(
        application="fake", cluster="trio", application_digest="", cluster_digest="", policy="p",
        objective="throughput",
        tasks={"in": ("m0/0",), "split": ("m0/0", "m1/0", "m0/1", "m1/1"), "out": ("m1/0",), **tasks},
    )  # fmt: skip


def test_returns_the_status_of_the_handle(tmp_path: Path) -> None:
    with Served(tmp_path) as run:
        assert ask(load(run.info.path), GetStatus()) == run.handle.status()


def test_a_move_is_made_and_answered(tmp_path: Path) -> None:
    with Served(tmp_path) as run:
        (outcome,) = ask(run.info, MoveTask("split[0]", "m2/1"))
        assert (outcome.task, outcome.before, outcome.after) == ("split[0]", "m0/0", "m2/1")
        assert run.handle.placement["split[0]"] == "m2/1"


def test_a_plan_arrives_as_it_was_and_only_changes_are_made(tmp_path: Path) -> None:
    wanted = plan(out=("m2/0",))
    with Served(tmp_path) as run:
        outcomes = ask(run.info, ApplyPlan(wanted))
        assert run.handle.applied == [wanted]
        assert [outcome.task for outcome in outcomes] == ["out[0]"]


def test_an_error_is_raised_in_the_client_in_one_line(tmp_path: Path) -> None:
    with Served(tmp_path) as run, pytest.raises(PenstockError, match="slot: none is named 'm9/0'; there are six"):
        ask(run.info, MoveTask("split[0]", "m9/0"))


def test_reports_a_defect_and_logs_its_traceback(tmp_path: Path) -> None:
    with Served(tmp_path) as run:
        with pytest.raises(PenstockError, match=r"a defect of Penstock, KeyError: 'odd\[0\]'; see .*run\.log"):
            ask(run.info, MoveTask("odd[0]", "m0/0"))
        assert "Traceback" in run.info.log_path.read_text()
        assert ask(run.info, GetStatus()).phase == "running"


def test_rejects_a_request_of_another_version_and_answers_the_next(tmp_path: Path) -> None:
    with Served(tmp_path) as run, socket.socket(socket.AF_UNIX) as client:
        client.connect(run.info.socket)
        with client.makefile("rwb") as stream:
            bad = (b'{"type": "fly"}\n', b"not json\n", b'{"type": "\xff"}\n', b"[" * 50_000 + b"\n")
            for line in (*bad, b'{"type": "status"}\n'):
                stream.write(line)
            stream.flush()
            answers = [msgspec.json.decode(stream.readline()) for _ in range(5)]
    for answer in answers[:4]:
        assert "request: not understood" in answer["error"]
    assert answers[4]["value"]["application"] == "fake"


def test_a_line_that_is_too_long_closes_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_module, "LONGEST_LINE", 1000)
    with Served(tmp_path) as run, socket.socket(socket.AF_UNIX) as client:
        client.connect(run.info.socket)
        with client.makefile("rwb") as stream:
            stream.write(b"x" * 1000)
            stream.flush()
            assert "longer than 1000 bytes" in msgspec.json.decode(stream.readline())["error"]
            assert stream.readline() == b""
        assert ask(run.info, GetStatus()).phase == "running"


def test_closes_the_connection_that_is_idle_longest_but_none_that_waits_for_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "CONNECTIONS", 3)
    with Served(tmp_path) as run, ThreadPoolExecutor() as pool, ExitStack() as stack:
        run.handle.may_move.clear()
        moved = pool.submit(ask, run.info, MoveTask("split[0]", "m2/0"))
        assert run.handle.moving.wait(10)
        idle = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(20)]
        for client in idle:
            client.settimeout(10)
            client.connect(run.info.socket)
        assert ask(run.info, GetStatus()).phase == "running"
        assert [client.recv(1) for client in idle[:18]] == [b""] * 18
        assert len(run.server._connections) <= 3
        run.handle.may_move.set()
        assert moved.result(10)[0].after == "m2/0"


def test_two_clients_are_answered_at_once(tmp_path: Path) -> None:
    with Served(tmp_path) as run, ThreadPoolExecutor() as pool:
        run.handle.may_move.clear()
        moved = pool.submit(ask, run.info, MoveTask("split[0]", "m2/0"))
        assert run.handle.moving.wait(10)
        assert ask(run.info, GetStatus()).placement == PLACEMENT  # while the other still waits
        run.handle.may_move.set()
        assert moved.result(10)[0].after == "m2/0"


def test_every_client_gets_its_own_answer(tmp_path: Path) -> None:
    with Served(tmp_path) as run, ThreadPoolExecutor(8) as pool:
        slots = [f"m{number % 3}/{number % 2}" for number in range(60)]
        outcomes = list(pool.map(lambda slot: ask(run.info, MoveTask("split[0]", slot)), slots))
        assert [outcome.after for (outcome,) in outcomes] == slots


def test_the_end_of_the_log_can_be_followed(tmp_path: Path) -> None:
    with Served(tmp_path) as run:
        run.handle.say("one")
        run.handle.say("two")
        tail = ask(run.info, GetLog())
        assert [line.text for line in tail.lines] == ["one", "two"]
        run.handle.say("three")
        assert [line.text for line in ask(run.info, GetLog(after=tail.number)).lines] == ["three"]
        assert ask(run.info, GetLog(after=99)).lines == []


def test_draining_is_answered_though_the_run_ends_by_it(tmp_path: Path) -> None:
    with Served(tmp_path) as run, ThreadPoolExecutor() as pool:
        answered = pool.submit(ask, run.info, DrainRun())
        assert run.handle.wait(10)
        run.server.close()
        answered.result(10)
    assert load(run.info.path).ended is not None


def test_stopping_ends_one_that_does_not_drain(tmp_path: Path) -> None:
    with Served(tmp_path, drains=False) as run, ThreadPoolExecutor() as pool:
        drained = pool.submit(ask, run.info, DrainRun())
        ask(run.info, StopRun())
        drained.result(10)
        assert run.handle.wait(0)


def test_only_its_user_may_enter_and_nothing_stays_behind(tmp_path: Path) -> None:
    with Served(tmp_path) as run:
        place = Path(run.info.socket).parent
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert len(run.info.socket) <= LONGEST_PATH
    assert not place.exists()
    assert load(run.info.path).socket == ""


def test_a_temporary_folder_with_a_long_name_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ("long" * 20)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with Served(tmp_path) as run:
        assert not run.info.socket.startswith(str(place))
        assert list(place.iterdir()) == []


def test_reports_a_killed_driver(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from tests.fake_run import Served;"
        "run = Served(Path(os.environ['RUNS'])); print(os.getpid(), run.info.path, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run(
        [sys.executable, "-c", code],
        env={"RUNS": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    pid, _, folder = died.stdout.strip().partition(" ")
    info = load(Path(folder))
    assert info.ended is None
    with pytest.raises(NoRun, match=rf"is not running: its driver \(pid {pid}\) has died; resume it with .* {folder}"):
        ask(info, GetStatus())
    Path(info.socket).unlink()
    Path(info.socket).parent.rmdir()


def test_one_that_has_no_socket_yet_is_still_starting(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="is still starting"):
        ask(create("a", tmp_path), GetStatus())


def test_a_driver_that_does_not_answer_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with Served(tmp_path) as run:
        run.handle.may_move.clear()
        with pytest.raises(NotAnswering, match=r"no answer within 0\.05 s from its driver"):
            ask(run.info, MoveTask("split[0]", "m2/0"), timeout=0.05)
        run.handle.may_move.set()


def test_reports_a_suspended_driver_with_a_remedy(tmp_path: Path) -> None:
    info = create("a", tmp_path, config=RunConfig())
    reported: list[str] = []
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/s")
        listener.listen()  # and never takes a connection, as a stopped process does not
        write_info(msgspec.structs.replace(info, socket=f"{place}/s", pid=4321))
        with pytest.raises(NotAnswering, match=r"its driver \(pid 4321\) does not answer.* kill -CONT 4321;") as raised:
            ask(load(info.path), DrainRun(), timeout=None, heard=lambda: reported.append("heard"), hello_s=0.05)
    assert str(raised.value).endswith(f"penstock runs resume {info.path}")
    assert reported == []


def test_a_driver_that_answers_is_waited_for_as_long_as_it_takes(tmp_path: Path) -> None:
    heard = Event()
    with Served(tmp_path) as run, ThreadPoolExecutor() as pool:
        run.handle.may_move.clear()
        asked = pool.submit(ask, run.info, MoveTask("split[0]", "m2/0"), None, heard.set)
        assert heard.wait(10)
        assert run.handle.moving.wait(10)
        run.handle.may_move.set()
        assert asked.result(10)[0].after == "m2/0"


def test_distinguishes_a_closed_connection_from_an_answer(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    short = tempfile.TemporaryDirectory()
    with short as place, socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor() as pool:
        listener.bind(f"{place}/s")
        listener.listen()
        write_info(msgspec.structs.replace(info, socket=f"{place}/s"))
        asked = pool.submit(ask, load(info.path), GetStatus())
        listener.accept()[0].close()
        with pytest.raises(Unanswered, match="is not running"):
            asked.result(10)


def test_it_may_be_closed_twice_and_by_its_own_thread(tmp_path: Path) -> None:
    class Closing(FakeHandle):
        def stop(self) -> None:
            super().stop()
            server.close()

    server = ControlServer(Closing(create("a", tmp_path)))
    ask(server.info, StopRun())
    server.close()
    assert load(server.info.path).ended is not None
