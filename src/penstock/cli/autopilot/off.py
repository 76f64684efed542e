"""`penstock autopilot off`: disable the autopilot of a running application."""

from pathlib import Path

from penstock.cli.autopilot.status import print_status
from penstock.cli.inputs import JsonOption, RunOption, RunsOption
from penstock.runtime.control_socket import Steer, ask
from penstock.runtime.storage.run_folder import find_running

EXAMPLE = "penstock autopilot off"


def off(run: RunOption = None, runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """Disable the autopilot of a running application.

    A change in progress is measured and judged first.
    """
    print_status(ask(find_running(run, runs), Steer("off", None, None)), as_json, disabled=True)
