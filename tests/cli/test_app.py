"""How `penstock` ends."""

import logging
from collections.abc import Callable

from tests.conftest import Ran


def test_ctrl_c_while_spark_works_leaves_no_traceback_of_its_gateway(penstock: Callable[..., Ran]) -> None:
    assert penstock("--version").code == 0
    root = logging.getLogger()
    assert not root.filter(logging.makeLogRecord({"msg": "KeyboardInterrupt while sending command."}))
    assert root.filter(logging.makeLogRecord({"msg": "Error while sending or receiving."}))
