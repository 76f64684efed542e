"""The autopilot options of `penstock run`: their checks, and the pilot that they start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from penstock.autopilot.guard import Guard
from penstock.autopilot.pilot import Pilot, attach, caution
from penstock.cli.inputs import placement_names
from penstock.cli.output import print_note
from penstock.estimate.latency import load_models
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application
from penstock.policies.registry import placement_policy
from penstock.runtime.config import RunConfig
from penstock.runtime.run import Run

AutopilotOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Placement policy that moves tasks during the run, for the observed load; a move that "
        "makes latency worse is rolled back.",
        autocompletion=placement_names,
    ),
]
ShadowOption = Annotated[bool, typer.Option("--shadow", help="The autopilot only decides and records.")]
IntervalOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Length of one reading of the autopilot; five make a measurement; default: 3."
    ),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(metavar="GAIN", help="Smallest predicted gain for which the autopilot acts, such as 5%; default: 5%."),
]
MovesOption = Annotated[
    int | None, typer.Option(help="Maximum tasks that the autopilot moves at a time; default: 10.", min=1)
]
CoolDownOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Pause of the autopilot after each decision, longer after bad ones; default: 30."
    ),
]


class AutopilotOptions(NamedTuple):
    """The autopilot options of a command line."""

    policy: str | None = None
    shadow: bool = False
    interval: float | None = None
    threshold: str | None = None
    max_moves: int | None = None
    cool_down: float | None = None


@dataclass(frozen=True)
class AutopilotStart:
    """The checked settings of the autopilot of a run that starts."""

    policy: str | None
    shadow: bool
    guard: Guard
    model: Path | None = None
    objective: str | None = None
    seed: int = 0
    cluster_known: bool = False  # before the run started

    def attach(self, run: Run) -> Pilot:
        """Start the pilot of a run; without a policy it is off until `penstock autopilot set`."""
        if self.model is not None and not self.cluster_known:
            warn(load_models(self.model).foreign(run.cluster))
        return attach(
            run,
            self.policy,
            shadow=self.shadow,
            objective=self.objective,
            seed=self.seed,
            model="" if self.model is None else str(self.model.absolute()),
            guard=self.guard,
        )


def check_autopilot(
    requested: AutopilotOptions,
    application: Application,
    config: RunConfig,
    *,
    cluster: Cluster | None = None,
    model: Path | None = None,
    objective: str | None = None,
) -> AutopilotStart:
    """Check the options of the autopilot before the run starts; warn if its policy lacks models that it needs."""
    policy, shadow, interval, threshold, max_moves, cool_down = requested
    options = {"shadow": shadow or None, "interval": interval, "threshold": threshold}
    options |= {"max-moves": max_moves, "cool-down": cool_down}
    if policy is None:
        if unused := [name for name, value in options.items() if value is not None]:
            raise InvalidInput(unused[0], f"expected --autopilot POLICY with --{unused[0]}, got none; name one")
    else:
        placement_policy(policy)
        if config.telemetry.sample_tps == 0:
            raise InvalidInput("sample", "an autopilot needs latencies, got none to be sampled; leave --sample out")
    if model is not None:  # even without a policy: `penstock autopilot set` may set one later
        models = load_models(model)
        models.check(application)
        warn("" if cluster is None else models.foreign(cluster))
    limits = {"interval_s": interval, "max_moves": max_moves, "cool_down_s": cool_down}
    limits["threshold"] = None if threshold is None else share("threshold", threshold)
    guard = Guard(**{name: value for name, value in limits.items() if value is not None})  # type: ignore[arg-type]
    warn(caution(policy, "" if model is None else str(model), objective))
    seed = config.execution.seed
    return AutopilotStart(policy, shadow, guard, model, objective, seed, cluster is not None)


def warn(caution: str) -> None:
    """Print a warning about the autopilot's policy, unless it is empty."""
    if caution:
        print_note(f"warning: {caution}", "yellow")


def share(name: str, text: str) -> float:
    """Parse a share such as `5%` or `0.05`."""
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise InvalidInput(name, f"expected a share such as 5% or 0.05, got {text!r}; choose another --{name}")
    return found
