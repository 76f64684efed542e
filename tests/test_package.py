"""The public API: what each package exports, that imports are cheap, and that documents use nothing else."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests import ROOT

PUBLIC = (
    "penstock",
    "penstock.admission",
    "penstock.autopilot",
    "penstock.pipeline",
    "penstock.planning",
    "penstock.policies",
    "penstock.simulation",
    "penstock.testing",
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("package", PUBLIC)
def test_every_exported_name_exists_and_has_a_docstring(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert not inspect.ismodule(getattr(module, name)), name
        if callable(getattr(module, name)):
            assert inspect.getdoc(getattr(module, name)), name
    assert not hasattr(module, "nonsense")


@pytest.mark.parametrize("package", [package for package in PUBLIC if package != "penstock.testing"])
def test_a_package_lists_what_it_imports_lazily(package: str) -> None:
    module = import_module(package)
    assert module.__dir__() == sorted(module.__all__)


def test_the_names_of_a_lazy_package_are_those_that_type_checkers_see() -> None:
    for package in PUBLIC:
        tree = ast.parse(Path(str(import_module(package).__file__)).read_text())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert set(import_module(package).__all__) <= imported, package


def test_importing_the_package_imports_nothing_heavy() -> None:
    packages = ", ".join(package for package in PUBLIC if package != "penstock.testing")
    heavy = "('numpy', 'numba', 'pyspark', 'msgspec')"
    script = f"import sys, {packages}; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def public(path: str) -> bool:
    """Whether a dotted path names a public package, one of its names, or a member of such a name."""
    package = max((p for p in PUBLIC if f"{path}.".startswith(f"{p}.")), key=len, default="")
    name = path.removeprefix(package).lstrip(".").partition(".")[0]
    return bool(package) and (not name or name in import_module(package).__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_use_only_public_names(page: Path) -> None:
    text = page.read_text()
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock"):
                for alias in node.names:
                    assert public(f"{node.module}.{alias.name}"), f"{page.name}: {node.module}.{alias.name}"
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names if alias.name.startswith("penstock")]
                assert set(named) <= set(PUBLIC), f"{page.name}: {named}"
    for path in re.findall(r"`(penstock\.\w[\w.]*\w)", text):
        assert public(path), f"{page.name}: {path}"


def test_examples_use_only_public_names() -> None:
    for example in sorted((ROOT / "examples").glob("*.py")):
        for node in ast.walk(ast.parse(example.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock"):
                assert all(public(f"{node.module}.{alias.name}") for alias in node.names), example.name


def test_the_folders_of_the_tests_are_those_of_the_package() -> None:
    tests = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    package = {path.parent.relative_to(ROOT / "src/penstock") for path in (ROOT / "src/penstock").rglob("*.py")}
    assert tests <= {*package, Path("docs")}
