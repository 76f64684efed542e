"""`penstock autopilot status`: which policy moves the tasks of a running application, and its current step."""

from pathlib import Path

from penstock.cli.inputs import JsonOption, RunOption, RunsOption
from penstock.cli.output import console, print_json
from penstock.model.status import PilotStatus
from penstock.runtime.control_socket import Steer, ask
from penstock.runtime.storage.run_folder import find_running

EXAMPLE = "penstock autopilot status"


def status(run: RunOption = None, runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """Show the autopilot of a running application."""
    print_status(ask(find_running(run, runs), Steer(None, None, None)), as_json)


def print_status(status: PilotStatus, as_json: bool, disabled: bool = False) -> None:
    """Print an autopilot's status."""
    if as_json:
        print_json(status)
    else:
        console.print(line(status, disabled), markup=False, soft_wrap=True)


def line(status: PilotStatus, disabled: bool = False) -> str:
    """Return an autopilot's status in one line; if it was disabled, with the change that it still completes."""
    if disabled and status.text:
        return f"autopilot off, after what is in progress: {status.text}"
    return f"autopilot {status.text or 'off'}"
