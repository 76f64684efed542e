from io import StringIO
from pathlib import Path
from threading import Event, Timer

import msgspec

from penstock.cli.follower import Follower, LineDisplay, TableDisplay
from penstock.cli.output import Terminal
from penstock.model.errors import PenstockError
from penstock.model.status import Status
from penstock.runtime.storage.run_folder import RunInfo, create
from tests.fake_run import FakeHandle


def terminal(*, real: bool) -> Terminal:
    return Terminal(file=StringIO(), force_terminal=real, width=100, height=40, highlight=False, color_system=None)


def text(console: Terminal) -> str:
    found = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(found, str)
    return found


def test_a_terminal_gets_the_table_and_log_lines_above_it(tmp_path: Path) -> None:
    handle, console = FakeHandle(create("fake", tmp_path)), terminal(real=True)
    follower = Follower(handle, TableDisplay(console))
    handle.say("an odd tuple")
    ending = Timer(0.3, handle.stop)
    ending.start()
    assert follower.follow().phase == "stopped"
    ending.join()
    drawn = text(console)
    assert drawn.index("split[2]: an odd tuple") < drawn.index("end to end")
    assert "██████░░░░" in drawn
    assert "fake stopped" in drawn
    assert not follower.stopped


def test_a_flood_of_lines_is_truncated_with_a_reference_to_the_log(tmp_path: Path) -> None:
    handle, console = FakeHandle(create("fake", tmp_path)), terminal(real=False)
    follower = Follower(handle, LineDisplay(console))
    for number in range(1000):
        handle.say(f"line {number}")
    handle.stop()
    follower.follow()
    lines = text(console).splitlines()
    assert lines[19] == "split[2]: line 19"
    assert lines[20] == f"… 980 more lines in {handle.folder / 'run.log'}"


def test_an_error_while_draining_is_reported_and_the_run_continues(tmp_path: Path) -> None:
    class Stuck(FakeHandle):
        def drain(self, timeout: float | None = None) -> None:
            Timer(0.3, self.stop).start()
            raise PenstockError("drain: split[2] holds 7 tuples")

    console = terminal(real=False)
    Follower(Stuck(create("fake", tmp_path)), LineDisplay(console), duration=0.01).follow()
    assert "error: drain: split[2] holds 7 tuples\n" in text(console)


def test_the_end_keeps_the_rates_of_the_time_before_it(tmp_path: Path) -> None:
    class Emptied(FakeHandle):
        def status(self) -> Status:
            status = super().status()
            if status.phase == "running":
                Timer(0.0, self.stop).start()  # once it was seen
                return status
            return msgspec.structs.replace(status, components=[], latency=None, written=999_999)

    handle, console = Emptied(create("fake", tmp_path)), terminal(real=False)
    status = Follower(handle, LineDisplay(console)).follow()
    assert [component.name for component in status.components] == ["in", "split", "out"]
    assert status.latency is not None
    assert (status.written, status.phase) == (999_999, "stopped")


class Lingering(FakeHandle):
    """One whose workers say their last after it has stopped, in which more was skipped."""

    def __init__(self, info: RunInfo) -> None:
        super().__init__(info)
        self.over = Event()

    def status(self) -> Status:
        status = super().status()
        skipped, written = (300, 14_700) if self.over.is_set() else (35, 14_000)
        queue = 0 if self.phase == "stopped" else 20
        split = msgspec.structs.replace(status.components[1], skipped=skipped, queue=queue)
        return msgspec.structs.replace(status, components=[status.components[0], split], written=written)

    def drain(self, timeout: float | None = None) -> None:
        self.phase = "stopped"
        Timer(0.5, self._leave).start()

    def _leave(self) -> None:
        self.over.set()
        self.stop()


def test_the_end_is_one_line_of_totals_and_counts_go_on_until_it(tmp_path: Path) -> None:
    handle, console = Lingering(create("fake", tmp_path)), terminal(real=False)
    status = Follower(handle, LineDisplay(console, seconds=0.05), duration=0.3).follow()
    split = status.components[1]
    assert (split.skipped, split.queue, split.rate_tps) == (300, 0, 1233.0)
    ends = [line for line in text(console).splitlines() if "stopped" in line]
    assert ends == ["1:05 min stopped: 80,210 in, 14,700 out"]
