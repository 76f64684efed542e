"""Fixtures that many tests share, the order of tests, and a guard: only tests with the mark `spark` start Java."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# Kernels compile on their first call, which is no reason to fail an example. Examples are the same every time, so that
# no change fails by chance because of an earlier error; `--hypothesis-profile=search` looks for others.
GENERAL: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("penstock", derandomize=True, **GENERAL)
settings.register_profile("search", max_examples=1000, **GENERAL)
settings.load_profile("penstock")

MEMORY_PER_WORKER = 3 << 30  # bytes: the tests' own process, Java and the Python processes of its tasks
NICE = 5
IN_MEMORY, ENOUGH = Path("/dev/shm"), 4 << 30  # bytes
JAVA_HOME = os.environ.get("JAVA_HOME")
NO_JAVA = Path(__file__).with_name("no_java")
os.environ.pop("COLUMNS", None)  # the processes of xdist have it, and it sets the width of tables
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ENOUGH:  # flushing to a disk takes as long as computing
    os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)
os.environ["PENSTOCK_TESTS_JAVA"] = str(Path(JAVA_HOME, "bin", "java")) if JAVA_HOME else shutil.which("java") or ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes `-n auto` starts: one per core, fewer if the memory does not suffice for them.

    One more if tests start Java, because these mostly wait.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)) + _with_java(config), memory // MEMORY_PER_WORKER))


def pytest_configure(config: pytest.Config) -> None:
    """Give priority to the first process: it begins with the tests that start Java, some of which emulate machines."""
    if _with_java(config) and os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        os.nice(NICE)


def _with_java(config: pytest.Config) -> bool:
    return "not spark" not in config.option.markexpr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that start Java first: they mostly wait, while the processes with the other tests compute."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_collection_finish() -> None:
    """Take all that was imported and collected out of garbage collection: it stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hide Java from tests without the mark `spark`, before their fixtures are set up."""
    if not item.get_closest_marker("spark"):
        os.environ["JAVA_HOME"] = str(NO_JAVA)
    elif JAVA_HOME:
        os.environ["JAVA_HOME"] = JAVA_HOME
    else:
        os.environ.pop("JAVA_HOME", None)


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have real runs wait longer for their processes, which a busy machine may hold up."""
    if request.node.get_closest_marker("spark"):
        from tests.patience import PATIENT, wait_as

        wait_as(PATIENT, monkeypatch)


class Ran(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line in this process, as the installed command would."""
    from penstock.cli import main

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["penstock", *(str(argument) for argument in arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run
