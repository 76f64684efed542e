"""`penstock autopilot set`: set the policy that moves the tasks of a running application."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.autopilot.options import placement_names, warn
from penstock.cli.autopilot.status import print_status
from penstock.cli.inputs import JsonOption, RunOption, RunsOption
from penstock.estimate.latency_models import load_models
from penstock.policies.registry import placement_policy
from penstock.runtime.control_socket import Steer, ask
from penstock.runtime.storage.run_folder import find_running

EXAMPLE = "penstock autopilot set local-search:seconds=1 --shadow"


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
        typer.Option(help="Latency models to predict with, from penstock models train; default: unchanged."),
    ] = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Set the policy that moves the tasks of a running application.

    It takes effect with the next decision; a change in progress is measured and judged first. See the decisions with
    penstock autopilot history.
    """
    placement_policy(policy)
    if model is not None:
        load_models(model)  # refuses a file that has none; the driver checks that they are of its application
    found = ask(find_running(run, runs), Steer(policy, shadow, None if model is None else str(model.absolute())))
    warn(found.caution)
    print_status(found, as_json)
