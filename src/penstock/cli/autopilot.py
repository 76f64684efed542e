"""`penstock autopilot`: which policy moves the tasks of a running application, and how it stands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.inputs import JsonOption, RunOption, RunsOption, policy_names
from penstock.cli.piloting import warn

if TYPE_CHECKING:
    from penstock.model.status import PilotStatus

EXAMPLES = """Examples:

  penstock autopilot status

  penstock autopilot local-search:seconds=1 --shadow

  penstock autopilot predictive --model wc.npz --act --run word-count-20250131-142501

  penstock autopilot off
"""


def _choices(incomplete: str) -> list[str]:
    own = [word for word in ("off", "status") if word.startswith(incomplete)]
    return [*own, *(name for name in policy_names(incomplete) if name != "all")]


@app.command(epilog=EXAMPLES)
def autopilot(
    policy: Annotated[
        str,
        typer.Argument(
            metavar="POLICY|off|status", help="Who decides from now on; off: nobody.", autocompletion=_choices
        ),
    ] = "status",
    run: RunOption = None,
    shadow: Annotated[
        bool | None, typer.Option("--shadow/--act", help="Only decide and record, or act; as it is unless said.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Latency models to predict by from now on; see penstock train latency. As it is unless said."
        ),
    ] = None,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Have another policy move the tasks of a running application, or none, or say how its autopilot stands.

    It counts from the next decision on; a change that is under way is judged first. What was decided is told by
    penstock history.
    """
    from penstock.cli.output import console, print_json
    from penstock.model.errors import InvalidInput
    from penstock.policies.registry import placement_policy
    from penstock.runtime.control_socket import Steer, ask
    from penstock.runtime.storage.run_folder import find_running

    wanted = None if policy == "status" else policy
    if wanted not in (None, "off"):
        placement_policy(policy)
    elif model is not None:
        raise InvalidInput("model", f"expected a POLICY that goes by it, got {policy!r} beside {model}; name one")
    found = ask(find_running(run, runs), Steer(wanted, shadow, _checked(model)))
    warn(found.caution)
    if as_json:
        print_json(found)
    else:
        console.print(line(found, put_off=wanted == "off"), markup=False, soft_wrap=True)


def _checked(model: Path | None) -> str | None:
    """Return where latency models are, whatever folder the driver is in, refusing a file that is none of them.

    Whether they are of its application is for the driver to say.
    """
    from penstock.estimate.latency_models import load_models

    if model is None:
        return None
    load_models(model)
    return str(model.absolute())


def line(status: "PilotStatus", put_off: bool = False) -> str:
    """Say how an autopilot stands; of one that was put off, what it still ends first."""
    if put_off and status.text:
        return f"autopilot off; first it ends what is under way: {status.text}"
    return f"autopilot {status.text or 'off'}"
