"""The controller's shell with real sockets, in threads of this process: logs, connections, and how workers end."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import cast

import pytest
from msgspec.json import encode as encode_json
from pyspark.sql import SparkSession

from penstock.api.contracts import Operator, TaskContext
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Machine
from penstock.runtime import run as run_module
from penstock.runtime.config import Recovery, RunConfig
from penstock.runtime.control_socket import ControlServer
from penstock.runtime.controller import process
from penstock.runtime.controller import process as driver_module
from penstock.runtime.controller.process import Driver, listen_for_workers
from penstock.runtime.controller.run_spec import RunSpec, Site, run_folders
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.handle import LogLine
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, encode, transport, worker_messages
from penstock.runtime.protocol.transport import Connection, ConnectionLost, connect, hello
from penstock.runtime.run import Run, _FromOutside
from penstock.runtime.spark.executors import Executor
from penstock.runtime.spark.jobs import Job, SlotJobs
from penstock.runtime.storage import run_folder as folder
from penstock.runtime.storage.telemetry_writer import Recorder
from penstock.runtime.worker import log_capture
from penstock.runtime.worker.process import Shell, WorkerSettings
from penstock.runtime.worker.process import run_worker as shell_main
from penstock.runtime.worker.state_machine import Worker
from penstock.testing import Captured
from tests.runtime.controllers import ONLY_LAST
from tests.runtime.flows import Given

SECRET = b"s" * 32
PATIENCE = 20.0  # s, for what should take none
NO_SPARK = cast(SparkSession, None)


class Talking(Operator[int, int]):
    """Prints many lines when it opens, and at its end one without a line end."""

    def open(self, context: TaskContext) -> None:
        for number in range(15):
            print(f"line {number}")

    def process(self, value: int) -> list[int]:
        return [value]

    def close(self) -> None:
        print("the last words", end="")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write checkpoints to a temporary folder."""
    monkeypatch.chdir(tmp_path)


def layout() -> Layout:
    flow = Dataflow("small")
    numbers = flow.source("numbers", Given(range(5)), emits=int)
    flow.sink("out", Captured([]), flow.operator("talking", Talking, numbers, emits=int))
    return Layout(flow)


def endless() -> Layout:
    flow = Dataflow("endless")
    numbers = flow.source("numbers", Generated(lambda number: number, rate=100), emits=int)
    flow.sink("out", Captured([]), flow.map("same", lambda number: number, numbers, emits=int))
    return Layout(flow)


SLOW = Recovery(start_s=1e9)


def driver(of: Layout | None = None, recovery: Recovery | None = None, **folders: str) -> Driver:
    config = RunConfig(checkpointing=ONLY_LAST, recovery=recovery or Recovery())
    made = RunSpec("r", (Site("w0", ("w0/0",)),), ("w0/0",) * 3, config, run_folders(**folders))
    return Driver(Controller(of or layout(), made, 0.0), SECRET, listen_for_workers("127.0.0.1"))


class Unending(SlotJobs):
    """Jobs that do not end."""

    def __init__(self, *jobs: Job) -> None:
        super().__init__(NO_SPARK, "r")
        self.jobs += jobs

    def stop(self, within_s: float = 10.0) -> bool:
        return not self.jobs


class Nowhere(Job):
    """A job whose executor is unknown."""

    def found_on(self) -> str | None:
        return None


@contextmanager
def started(tmp_path: Path, *jobs: Job) -> Iterator[Run]:
    """Yield a run that waits for a worker that never registers."""
    cluster = Cluster(name="one", machines=(Machine(name="w0", cores=1, slots=1),))
    info = folder.create("small", tmp_path)
    run = Run(layout(), info, driver(recovery=SLOW), Unending(*jobs), cluster, ExitStack())
    run.start()
    try:
        yield run
    finally:
        run.stop()


def test_wait_returns_if_the_run_folder_was_removed_and_the_log_has_a_warning(tmp_path: Path) -> None:
    heard: list[str] = []
    with started(tmp_path) as run:
        run.on_log(lambda line: heard.append(line.text))
        run._server = ControlServer(_FromOutside(run))
        shutil.rmtree(run.folder)
        stopping = Thread(target=run.stop, daemon=True)
        stopping.start()
        assert run.wait(PATIENCE)
        stopping.join(PATIENCE)
    assert any(text.startswith("the end of the run could not be stored") for text in heard)


def test_a_run_stores_its_outcome_and_reason(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        assert folder.outcome(folder.load(run.folder)) == ("", "")
        run.stop()
        found = folder.load(run.folder)
        assert folder.outcome(found) == ("stopped", "it was stopped at once")
        status = folder.last_status(found)
        assert status is not None
        assert (status.run, status.phase) == ("r", "stopped")
    with started(tmp_path) as run:
        run._fail("count[0]: ValueError: too much\non tuple 'x'")
        assert run.wait(PATIENCE)
        found = folder.load(run.folder)
        assert folder.outcome(found) == ("failed", "count[0]: ValueError: too much on tuple 'x'")
        again = folder.record_resume(found, found.config, "")
        assert (again.outcome, again.reason, folder.last_status(again)) == ("", "", None)


def test_a_listener_may_end_the_run(tmp_path: Path) -> None:
    waited: list[bool] = []
    with started(tmp_path) as run:

        def stops(line: LogLine) -> None:
            run.stop()
            waited.append(run.wait(0))

        run.on_log(stops)
        run._driver.warn("enough")
        assert run.wait(PATIENCE)
        assert run.status().phase == "stopped"
    assert waited[0] is False, "the end waits for the listener, so that it must not wait for the end"


def test_jobs_that_do_not_end_are_named_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_finish_jobs", staticmethod(lambda jobs: None))
    with started(tmp_path, Job(NO_SPARK, "w0", "g", None)) as run:
        pass
    assert "Spark has not ended the jobs of workers w0 in 15 s" in run.info.log_path.read_text()


def test_warns_of_a_worker_whose_executor_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "VERIFY_S", 0.0)
    monkeypatch.setattr(Run, "_finish_jobs", staticmethod(lambda jobs: None))
    with started(tmp_path, Nowhere(NO_SPARK, "w0", "g", Executor("host", "7", 1))) as run:
        run._verify()
    assert "could not verify that worker w0 runs on executor 7 as planned" in run.info.log_path.read_text()


def test_a_slow_listener_blocks_nothing_and_learns_how_many_lines_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LINES", 3)
    one, heard, other = driver(), list[str](), list[str]()
    began, go_on = Event(), Event()

    def slow(line: LogLine) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        heard.append(line.text)

    one.on_log(slow)
    one.start()
    one.warn("0")
    assert began.wait(PATIENCE)
    for number in range(1, 6):
        one.warn(str(number))
    one.ask(one.controller.stop)
    assert one.ended.wait(PATIENCE)
    go_on.set()
    one.end_log(PATIENCE)
    one.on_log(lambda line: other.append(line.text))
    one.warn("too late")
    assert heard[:4] == ["0", "1", "2", "3"]
    assert heard[4].startswith("2 lines of log were dropped")
    assert (heard[5:], other) == ([], [])


def test_the_end_is_reported_if_the_last_records_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Recorder):
        def close(self, within_s: float = 10.0) -> None:
            super().close(within_s)
            raise ValueError("broken")

    monkeypatch.setattr(driver_module, "Recorder", Broken)
    one = driver(telemetry=str(tmp_path))
    one.start()
    one.ask(one.controller.stop)
    assert one.ended.wait(PATIENCE)
    assert "ValueError: broken" in one.controller.traceback


def test_drops_a_connection_without_a_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_S", 0.05)
    one, heard = driver(recovery=SLOW), list[str]()
    one.on_log(lambda line: heard.append(line.text))
    one.start()
    with socket.create_connection(one.address, PATIENCE) as caller:
        assert caller.recv(1) == b""
    one.ask(one.controller.stop)
    assert one.ended.wait(PATIENCE)
    one.end_log()
    assert "connections dropped that could not authenticate: 1" in heard


BAD_TEXT = bytes.fromhex("970a03a1ff0000c40100c2")  # a hello whose run's name is not UTF-8
HOSTILE = (BAD_TEXT, b"\x91" * 4000, b"\xff", b"")


def attack(address: tuple[str, int]) -> None:
    """Send unauthenticated frames, each on its own connection, until the other end closes it."""
    for content in HOSTILE:
        with socket.create_connection(address, PATIENCE) as caller:
            caller.sendall(transport.HEADER.pack(len(content), 0) + content)
            with suppress(ConnectionResetError):
                assert caller.recv(1) == b""


def test_no_frame_of_an_unauthenticated_connection_ends_the_run() -> None:
    with registered() as (one, worker):
        attack(one.address)
        assert one.ask(lambda _: one.controller.members[0].alive)
        assert one.controller.error == ""
        with closing(worker.beat(1)) as heart:
            assert answers(heart) == [controller_messages.RenewLease(12.5)]


def test_no_frame_of_an_unauthenticated_connection_ends_an_epoch() -> None:
    one = driver(endless(), SLOW)
    one.start()
    host, port = one.address
    settings = WorkerSettings("r", "w0", host, port, SECRET.hex(), "")
    shell = Shell(endless().flow, settings, connect(host, port, SECRET, hello("r", -1, 0)))
    worker = Thread(target=shell.serve, daemon=True)
    worker.start()
    wait_for(one, lambda: one.controller.phase == "running")
    attack(shell._listener.getsockname()[:2])
    assert worker.is_alive()
    one.ask(one.controller.stop)
    assert one.ended.wait(PATIENCE)
    worker.join(PATIENCE)
    assert (one.controller.error, one.controller.epoch) == ("", 1)


def test_a_worker_registers_beside_too_many_unauthenticated_connections() -> None:
    one = driver(recovery=SLOW)
    one.start()
    with ExitStack() as stack:
        crowd = [
            stack.enter_context(socket.create_connection(one.address, PATIENCE))
            for _ in range(3 * transport.MAX_PENDING)
        ]
        worker = Faked(one)
        stack.callback(worker.control.close)
        wait_for(one, lambda: one.controller.members[0].alive)
        assert crowd[0].recv(1) == b"", "the oldest was dropped"
        one.ask(one.controller.stop)
    assert one.ended.wait(PATIENCE)


def test_a_run_with_protected_frames_rejects_workers_without() -> None:
    made = RunSpec("r", (Site("w0", ("w0/0",)),), ("w0/0",) * 3, RunConfig(checkpointing=ONLY_LAST, recovery=SLOW))
    one = Driver(Controller(layout(), made, 0.0), SECRET, listen_for_workers("127.0.0.1"), protects=True)
    one.start()
    with closing(connect(*one.address, SECRET, hello("r", -1, 0))) as plain:
        plain.flush()
        Faked.hear(plain, lambda: False, until_closed=True)
    settings = WorkerSettings("r", "w0", *one.address, SECRET.hex(), "", protects=True)
    shell_main(layout().flow, encode_json(settings).decode())
    assert one.ended.wait(PATIENCE)
    one.end_log()
    assert (one.controller.error, one.controller.phase) == ("", "stopped")


def test_an_exception_while_reading_a_connection_closes_only_that_one() -> None:
    with registered() as (one, worker):
        heard: list[str] = []
        one.on_log(lambda line: heard.append(line.text))
        with closing(connect(*one.address, SECRET, hello("r", 10**6, 1, heartbeat=True))) as heart:
            Faked.hear(heart, lambda: False, until_closed=True)  # a worker that there is not
        unknown = worker_messages.TaskReport(10**6, 1, 1, 0.0, 0.0, 0, 0)  # a task that there is not
        worker.say(
            worker.control,
            worker_messages.ActivityReport(one.controller.epoch, 0.0, 0.25, (unknown,), (), (), 0.0, 0.0),
        )
        wait_for(one, lambda: not one.controller.members[0].alive)
        assert one.controller.error == ""
        wait_for(one, lambda: any("Traceback" in text for text in heard))


def test_a_worker_sends_its_last_lines_and_the_number_of_dropped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_capture, "LINES", 10)
    one, heard = driver(recovery=SLOW), list[str]()
    one.on_log(lambda line: heard.append(line.text))
    one.start()
    host, port = one.address
    settings = WorkerSettings("r", "w0", host, port, SECRET.hex(), "")
    shell = Shell(layout().flow, settings, connect(host, port, SECRET, hello("r", -1, 0)))
    worker = Thread(target=shell.serve, daemon=True)
    worker.start()
    assert one.ended.wait(PATIENCE)
    worker.join(PATIENCE)
    assert not worker.is_alive()
    one.end_log()
    assert one.controller.error == ""
    assert [text for text in heard if text.startswith("line ")] == [f"line {number}" for number in range(10)]
    assert any(text.startswith("5 lines of log were dropped") for text in heard)
    assert "the last words" in heard


def test_a_worker_writes_with_the_umask_and_restores_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for number, (umask, expected) in enumerate(((0o077, 0o600), (0o027, 0o640))):
            flow = Dataflow("kept")
            numbers = flow.source("numbers", Given(range(5)), emits=int)
            flow.sink("out", JsonLines(tmp_path / f"out-{number}"), flow.map("same", int, numbers, emits=int))
            one = driver(Layout(flow), SLOW, run=str(tmp_path / f"run-{number}"))
            one.start()
            settings = WorkerSettings("r", "w0", *one.address, SECRET.hex(), "", umask=umask)
            shell_main(flow, encode_json(settings).decode())
            assert one.ended.wait(PATIENCE)
            assert one.controller.error == ""
            written = list((tmp_path / f"out-{number}").iterdir())
            states = list((tmp_path / f"run-{number}" / "checkpoints").rglob("w0.*"))
            assert written
            assert {path.stat().st_mode & 0o777 for path in [*written, *states]} == {expected}
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


class Breaking(Shell):
    """A shell that raises as soon as its worker runs."""

    def _carry(self, worker: Worker) -> None:
        super()._carry(worker)
        if worker.phase == "running":
            raise RuntimeError("a defect")


def test_a_worker_closes_everything_if_its_shell_fails() -> None:
    one = driver(recovery=SLOW)
    one.start()
    host, port = one.address
    settings = WorkerSettings("r", "w0", host, port, SECRET.hex(), "")
    shell = Breaking(layout().flow, settings, connect(host, port, SECRET, hello("r", -1, 0)))
    with pytest.raises(RuntimeError, match="a defect"):
        shell.serve()
    one.ask(one.controller.stop)
    assert one.ended.wait(PATIENCE)
    one.end_log()
    assert shell.worker is not None
    assert (shell.worker.phase, shell.worker.tasks) == ("stopped", {})


class Faked:
    """A worker that sends what a test makes it send."""

    def __init__(self, one: Driver) -> None:
        self.where = one.address
        self.control = connect(*self.where, SECRET, hello("r", -1, 0))
        self.say(self.control, worker_messages.Register("w0", "127.0.0.1", 1, 2))

    def beat(self, incarnation: int) -> Connection:
        """Begin to beat."""
        heart = connect(*self.where, SECRET, hello("r", 0, incarnation, heartbeat=True))
        self.say(heart, worker_messages.Heartbeat(12.5, 1, 0.0, 0.0))
        return heart

    @staticmethod
    def say(connection: Connection, message: worker_messages.WorkerMessage) -> None:
        connection.write([encode(message)])
        Faked.hear(connection, lambda: connection.opened and not connection.wants_to_write)

    @staticmethod
    def hear(
        connection: Connection, true: Callable[[], object], until_closed: bool = False
    ) -> list[controller_messages.Command]:
        """Read until a condition holds, or the other end has closed the connection."""
        deadline, heard = monotonic() + PATIENCE, list[controller_messages.Command]()
        connection.socket.setblocking(False)
        while not true():
            assert monotonic() < deadline
            try:
                heard += [controller_messages.decode_command(frame) for frame in connection.read()]
                connection.flush()
            except ConnectionLost:
                assert until_closed
                return heard
            sleep(0.002)
        return heard


def answers(connection: Connection) -> list[controller_messages.Command]:
    """Return the next commands."""
    deadline, frames = monotonic() + PATIENCE, list[bytes]()
    while not frames:
        assert monotonic() < deadline
        frames = connection.read()
    return [controller_messages.decode_command(frame) for frame in frames]


def wait_for(one: Driver, true: Callable[[], object]) -> None:
    deadline = monotonic() + PATIENCE
    while not one.ask(lambda _: true()):
        assert monotonic() < deadline
        sleep(0.002)


@contextmanager
def registered() -> Iterator[tuple[Driver, Faked]]:
    one = driver(recovery=SLOW)
    one.start()
    worker = Faked(one)
    try:
        wait_for(one, lambda: one.controller.members[0].alive)
        yield one, worker
    finally:
        worker.control.close()
        one.ask(one.controller.stop)
        assert one.ended.wait(PATIENCE)


def test_answers_a_heartbeat_with_its_time_unless_its_worker_was_replaced() -> None:
    with registered() as (one, worker), closing(worker.beat(1)) as heart, closing(worker.beat(7)) as stranger:
        wait_for(one, lambda: len(one._heartbeats) == 2)
        assert answers(heart) == [controller_messages.RenewLease(12.5)]
        one.ask(lambda _: None)
        assert stranger.read() == []


def test_a_process_has_ended_when_both_of_its_connections_have() -> None:
    with registered() as (one, worker):
        heart = worker.beat(1)
        answers(heart)  # what is not read when a process ends makes its end look like that of a connection
        member = one.controller.members[0]
        worker.control.close()
        wait_for(one, lambda: not member.alive)
        assert member.fence > 0
        heart.close()
        wait_for(one, lambda: member.fence < 0)


def test_a_dropped_worker_is_disconnected_and_fenced_when_its_lease_expires() -> None:
    with registered() as (one, worker), closing(worker.beat(1)) as heart:
        wait_for(one, lambda: one._heartbeats)
        one.ask(lambda now: one.controller.drop(0, "it is silent", now))
        for connection in (worker.control, heart):
            Faked.hear(connection, lambda: False, until_closed=True)
        member = one.controller.members[0]
        assert one.dropped == {0: 1}
        assert not member.alive
        assert member.fence > 0


def test_the_checkpoint_folder_does_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = (Site("w0", ("w0/0",)),)
    beside, named = RunSpec("r", sites, ("w0/0",)).folders, run_folders(str(tmp_path / "run"))
    monkeypatch.chdir("/")
    assert beside.checkpoints == str(tmp_path / "checkpoints")
    assert named.checkpoints == str(tmp_path / "run" / "checkpoints")
    assert run_folders(checkpoints="/kept").checkpoints == "/kept"
