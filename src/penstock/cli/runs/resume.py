"""`penstock runs resume`: continue a run from its last checkpoint."""

from typing import Any

from penstock.cli.config_options import with_options_of
from penstock.cli.run import start_or_resume
from penstock.runtime.storage.run_folder import LATEST

EXAMPLE = "penstock runs resume word-count-20250131-142501"


@with_options_of(start_or_resume)
def resume(**arguments: Any) -> None:
    """Resume a run from its last checkpoint.

    The run continues after its driver died, it failed, or it was stopped with --now. Settings that are not named keep
    their values. Name APP only if a program started the run, or if its code has moved.
    """
    start_or_resume(**{**arguments, "resume": arguments["resume"] or LATEST})
