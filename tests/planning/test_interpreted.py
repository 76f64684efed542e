"""A first plan, with kernels interpreted, is the plan that compiled kernels give: equal to the last digit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = "0 1 2 3 4 5"


def decisions(interpreted_s: float, cache: Path | None) -> list[str]:
    """Return what policies decide and predict, by a process of its own, as here kernels may be compiled already."""
    command = [sys.executable, "-m", "tests.planning.decisions", *SEEDS.split()]
    environment = {**os.environ, "PENSTOCK_INTERPRETED_S": str(interpreted_s)}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_decisions_are_equal_interpreted_and_compiled(tmp_path: Path) -> None:
    interpreted, compiled = decisions(1000, tmp_path), decisions(0, None)
    assert interpreted == compiled
    assert len({line.split()[1] for line in compiled}) > 10  # policies
