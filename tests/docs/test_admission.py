"""The page on admission shows what the commands print."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.conftest import Ran

PAGE = (ROOT / "docs" / "guides" / "admission.md").read_text()


@pytest.mark.slow
def test_its_session_is_what_the_commands_print(
    penstock: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")  # the width of the page
    for name, text in zip(("edge", "faces"), re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL), strict=True):
        Path(f"{name}.toml").write_text(text)
    shown = re.findall(r"```\n\$ penstock ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) >= 8
    for command, output in shown:
        printed = penstock(*command.split()).out
        assert "".join(f"{line.rstrip()}\n" for line in printed.splitlines()) == output, command


def test_its_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(code, "admission.md", "exec"), {})
    assert "is short of its rate" in capsys.readouterr().out
