"""How `penstock` ends."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import Ran


def test_ctrl_c_while_spark_works_leaves_no_traceback_of_its_gateway(penstock: Callable[..., Ran]) -> None:
    assert penstock("--version").code == 0
    root = logging.getLogger()
    assert not root.filter(logging.makeLogRecord({"msg": "KeyboardInterrupt while sending command."}))
    assert root.filter(logging.makeLogRecord({"msg": "Error while sending or receiving."}))


@pytest.mark.slow
def test_help_that_is_piped_names_every_option_whole() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "TERMINAL_WIDTH")}
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "run", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "--checkpoint-every" in ran.stdout
    assert "…" not in ran.stdout.replace("FILE, …", "")
