"""`penstock autopilot set`, `off` and `status`: the policy that moves the tasks of a running application."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.autopilot.options import warn
from penstock.cli.inputs import JsonOption, RunArgument, RunOption, RunsOption, placement_names
from penstock.cli.output import print_json, print_line
from penstock.estimate.latency_models import load_models
from penstock.model.status import PilotStatus
from penstock.policies.registry import placement_policy
from penstock.runtime.control_socket import Steer, ask
from penstock.runtime.storage.run_folder import find_running


def set_policy(
    policy: Annotated[
        str, typer.Argument(metavar="POLICY", help="The placement policy to use.", autocompletion=placement_names)
    ],
    run: RunOption = None,
    shadow: Annotated[
        bool | None, typer.Option("--shadow/--act", help="Only decide and record, or also act; default: unchanged.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Latency models to predict with, from penstock models train latency; default: unchanged."),
    ] = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Set the policy that moves the tasks of a running application.

    It takes effect with the next decision; a change in progress is measured and judged first. See the decisions with
    penstock autopilot history.

    Example: penstock autopilot set local-search:seconds=1 --shadow
    """
    placement_policy(policy)
    if model is not None:
        load_models(model)  # refuses a file that has none; the driver checks that they are of its application
    found = ask(find_running(run, runs), Steer(policy, shadow, None if model is None else str(model.absolute())))
    warn(found.caution)
    print_status(found, as_json)


def off(run: RunArgument = None, runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """Disable the autopilot of a running application.

    A change in progress is measured and judged first.

    Example: penstock autopilot off
    """
    print_status(ask(find_running(run, runs), Steer("off", None, None)), as_json, disabled=True)


def status(run: RunArgument = None, runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """Show the autopilot of a running application.

    Example: penstock autopilot status
    """
    print_status(ask(find_running(run, runs), Steer(None, None, None)), as_json)


def print_status(status: PilotStatus, as_json: bool, disabled: bool = False) -> None:
    """Print an autopilot's status."""
    if as_json:
        print_json(status)
    else:
        print_line(pilot_line(status, disabled))


def pilot_line(status: PilotStatus, disabled: bool = False) -> str:
    """Return an autopilot's status in one line; if it was disabled, with the change that it still completes."""
    if disabled and status.text:
        return f"autopilot off, after what is in progress: {status.text}"
    return f"autopilot {status.text or 'off'}"
