"""The code on the page on the autopilot runs."""

import re

import pytest

from tests import ROOT

PAGE = (ROOT / "docs" / "guides" / "autopilot.md").read_text()


def test_its_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "autopilot.md", "exec"), {})
    assert capsys.readouterr().out.split()[0] in ("kept", "held", "rolled")
