import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numba.core import caching

from penstock.model.kernel import SMALL, interpreted, interpreting, kernel, preparing
from penstock.model.taskgraph import Floats


def double(value: float) -> float:
    return 2 * value


def test_the_time_to_prepare_kernels_is_measured_separately() -> None:
    compiled = kernel(double)
    with preparing() as first:
        assert compiled(1.5) == interpreted(compiled)(1.5) == 3.0
    with preparing() as second:
        compiled(2.5)
    assert first.seconds > 0
    assert second.seconds == 0


def half(value: float) -> float:
    return value / 2


def half_of_the_sum(values: Floats) -> float:
    return called(values.sum())


called = kernel(half)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was compiled before is in the cache."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))


@pytest.mark.slow
@pytest.mark.usefixtures("empty_cache")
def test_a_kernel_is_interpreted_until_that_takes_as_long_as_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: Any = kernel(half_of_the_sum)
    values = np.array([1.0, 2.0])
    with interpreting():
        assert compiled(values) == 1.5
        assert not compiled.signatures
        with interpreting(False):
            assert compiled(np.array([1, 2])) == 1.5
        assert len(compiled.signatures) == 1
        monkeypatch.setattr("penstock.model.kernel.INTERPRETED_S", 0.0)
        assert compiled(values) == 1.5
    assert len(compiled.signatures) == 2


@pytest.mark.usefixtures("empty_cache")
def test_a_large_input_is_not_interpreted() -> None:
    compiled: Any = kernel(half_of_the_sum)
    with interpreting():
        assert compiled(np.ones(SMALL + 1)) == (SMALL + 1) / 2
    assert compiled.signatures


GRADUAL = """
import sys
from penstock.model.kernel import interpreting, kernel

@kernel
def double(value: float) -> float:
    return 2 * value

if sys.argv[1] == "compile":
    double(1.5)
else:
    with interpreting():
        double(1.5)
print(len(double.signatures))
"""


@pytest.mark.slow
def test_a_kernel_in_the_cache_is_not_interpreted(tmp_path: Path) -> None:
    script = tmp_path / "gradual.py"
    script.write_text(GRADUAL)

    def signatures(how: str) -> int:
        command = [sys.executable, str(script), how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert signatures("interpret") == 0
    assert signatures("compile") == 1
    assert signatures("interpret") == 1


DISABLED = """
import numpy as np
from penstock.model.kernel import interpreted, kernel

@kernel
def ratios(values: np.ndarray, divisor: float) -> tuple[float, float]:
    return half(values[0] / divisor), values.sum()

@kernel
def half(value: float) -> float:
    return value / 2

for called in (ratios, interpreted(ratios)):
    with np.errstate(all="ignore"):
        print(*called(np.array([1.0, 2.0]), 0.0))
print(type(ratios(np.ones(1), 0.0)[1]) is float)
"""


def test_kernels_are_interpreted_without_a_compiler(tmp_path: Path) -> None:
    script = tmp_path / "disabled.py"
    script.write_text(DISABLED)
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["inf", "3.0", "inf", "3.0", "True"]


TWO = """
import logging
logging.basicConfig(level=logging.INFO)
from penstock.model.kernel import kernel

@kernel
def double(value: float) -> float:
    return 2 * value

@kernel
def triple(value: float) -> float:
    return 3 * value

double(1.5), triple(1.5)
"""


@pytest.mark.slow
def test_compilation_is_logged_once_and_not_afterwards(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO, encoding="utf-8")
    first, second = (
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stderr for _ in range(2)
    )
    assert first.count("compiling inner loops for this machine") == 1
    assert "compiling" not in second


def test_a_cache_of_another_version_is_ignored(tmp_path: Path) -> None:
    index = cast(Any, caching.IndexDataCacheFile)(str(tmp_path), "function", (1.0, 1))
    index.save("key", "data")
    assert index.load("key") == "data"
    path = tmp_path / "function.nbi"
    version = pickle.dumps(index._version, -1)
    assert path.read_bytes().startswith(version)
    path.write_bytes(version + b"cpenstock.model.kernel\nRenamed\n.")
    assert index.load("key") is None
    index.save("key", "new")
    assert index.load("key") == "new"
