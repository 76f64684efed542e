"""Fixtures that many tests share."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# Kernels compile on their first call, which is no reason to fail an example. Examples are the same every time, so that
# no change is refused by chance, for what was wrong before it; `--hypothesis-profile=search` looks for others.
GENERAL: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("penstock", derandomize=True, **GENERAL)
settings.register_profile("search", max_examples=1000, **GENERAL)
settings.load_profile("penstock")


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
