"""What the page on the autopilot shows runs, and its commands have the options that it names."""

import re
from collections.abc import Callable

import pytest

from tests import ROOT
from tests.conftest import Ran

PAGE = (ROOT / "docs" / "autopilot.md").read_text()


@pytest.mark.slow
def test_its_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "autopilot.md", "exec"), {})
    assert capsys.readouterr().out.split()[0] in ("kept", "held", "rolled")


def test_its_commands_have_the_options_that_they_are_shown_with(penstock: Callable[..., Ran]) -> None:
    for command, text in re.findall(r"^penstock (\w+)([^\n`]*)", PAGE, re.MULTILINE):
        shown = set(re.findall(r"(?<!\w)--[a-z][a-z-]+", text))
        assert shown <= set(re.findall(r"--[a-z][a-z-]+", penstock(command, "--help").out)), command
