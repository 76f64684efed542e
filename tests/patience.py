"""How long real runs wait for a sign of life: longer in tests than by default, because tests share their machine.

A process that a busy machine delays for seconds is not a failure that a test requested.
"""

from typing import Any

import msgspec
import pytest

from penstock.runtime import launch as launching
from penstock.runtime.config import Recovery
from penstock.runtime.controller.run_spec import RunSpec

PATIENT = Recovery(lease_s=15.0, silence_s=20.0)
IMPATIENT = Recovery(lease_s=2.0, silence_s=2.5)  # so that a stopped worker counts as failed soon


def wait_as(patience: Recovery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set how long runs that start from now on wait for signs of life."""

    def patient(**values: Any) -> RunSpec:
        config = values.pop("config")
        lease_s, silence_s = patience.lease_s, patience.silence_s
        recovery = msgspec.structs.replace(config.recovery, lease_s=lease_s, silence_s=silence_s)
        return RunSpec(config=msgspec.structs.replace(config, recovery=recovery), **values)

    monkeypatch.setattr(launching, "RunSpec", patient)
