import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from numba.core import caching

from penstock.model.kernel import interpreted, kernel, preparing


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
