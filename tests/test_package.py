import subprocess
import sys

import penstock


def test_every_public_name_is_there_and_nothing_else_is() -> None:
    assert set(penstock.__all__) == set(penstock._WHERE)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert not hasattr(penstock, "nonsense")


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, penstock; print([m for m in ('numpy', 'numba', 'pyspark', 'msgspec') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
