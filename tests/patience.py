"""How long real runs wait for a sign of life: longer in tests than usually, since these share their machine.

A process that a busy machine holds up for seconds is no failure that a test has asked for.
"""

from collections.abc import Callable
from functools import partial

import pytest

from penstock.runtime import launch as launching
from penstock.runtime.controller.settings import Terms

PATIENT = partial(Terms, lease_s=15.0, silent_s=20.0)
IMPATIENT = partial(Terms, lease_s=2.0, silent_s=2.5)  # so that a worker that was stopped is given up soon


def wait_as(terms: Callable[..., Terms], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the runs that are started from now on wait so long."""
    monkeypatch.setattr(launching, "Terms", terms)
