"""What `penstock run` is told of its autopilot: the options, checked, and the pilot that follows from them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.inputs import policy_names

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.autopilot.guard import Guard
    from penstock.autopilot.pilot import Pilot
    from penstock.model.cluster import Cluster
    from penstock.model.topology import Application
    from penstock.runtime.run import Run


def placement_names(incomplete: str) -> list[str]:
    """Complete the name of a placement policy."""
    return [name for name in policy_names(incomplete) if name != "all"]


AutopilotOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Move tasks while it runs, as this placement policy says for the load observed; undone where it is worse.",
        autocompletion=placement_names,
    ),
]
ShadowOption = Annotated[bool, typer.Option("--shadow", help="The autopilot decides and records, but does nothing.")]
IntervalOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Of a reading of the autopilot; five make a measurement. 3.")
]
ThresholdOption = Annotated[
    str | None, typer.Option(metavar="GAIN", help="Predicted gain from which on the autopilot acts, such as 5%; 5%.")
]
MovesOption = Annotated[int | None, typer.Option(help="Tasks that the autopilot moves at a time, at most; 10.", min=1)]
CoolDownOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Rest of the autopilot after each decision; longer after bad ones. 30."),
]


@dataclass(frozen=True)
class Piloting:
    """An autopilot as it was asked for."""

    policy: str | None
    shadow: bool
    guard: "Guard"
    model: "Path | None" = None
    objective: str | None = None
    seed: int = 0
    known: bool = False  # whether the cluster was known before the run started

    def attach(self, run: "Run") -> "Pilot":
        """Give a run its pilot; one that was not asked for is off until it is steered."""
        from penstock.autopilot.pilot import attach
        from penstock.estimate.latency import load_models

        if self.model is not None and not self.known:
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


def piloting(
    policy: str | None,
    shadow: bool,
    interval: float | None,
    threshold: str | None,
    max_moves: int | None,
    cool_down: float | None,
    *,
    application: "Application",
    cluster: "Cluster | None" = None,
    sample_tps: float | None,
    model: "Path | None" = None,
    objective: str | None = None,
    seed: int = 0,
) -> Piloting:
    """Check what was asked for, before anything is started; warn of a policy that lacks what it is made for."""
    from penstock.autopilot.guard import Guard
    from penstock.autopilot.pilot import caution
    from penstock.model.errors import InvalidInput
    from penstock.policies.registry import placement_policy

    told = {"shadow": shadow or None, "interval": interval, "threshold": threshold}
    told |= {"max-moves": max_moves, "cool-down": cool_down}
    if policy is None:
        if odd := [name for name, value in told.items() if value is not None]:
            raise InvalidInput(odd[0], f"expected --autopilot POLICY beside --{odd[0]}, got none; name one")
    else:
        placement_policy(policy)
        if sample_tps == 0:
            raise InvalidInput("sample", "an autopilot needs latencies, got none to be sampled; leave --sample out")
    if model is not None:  # without a policy too: the run may be given one later
        from penstock.estimate.latency import load_models

        models = load_models(model)
        models.check(application)
        warn("" if cluster is None else models.foreign(cluster))
    limits = {"interval_s": interval, "max_moves": max_moves, "cool_down_s": cool_down}
    limits["threshold"] = None if threshold is None else share("threshold", threshold)
    guard = Guard(**{name: value for name, value in limits.items() if value is not None})  # type: ignore[arg-type]
    warn(caution(policy, "" if model is None else str(model), objective))
    return Piloting(policy, shadow, guard, model, objective, seed, cluster is not None)


def warn(caution: str) -> None:
    """Print what an autopilot's policy lacks, if anything."""
    from penstock.cli.output import errors

    if caution:
        errors.print(f"warning: {caution}", style="yellow", markup=False, soft_wrap=True)


def share(name: str, text: str) -> float:
    """Return a share that is told as `5%` or `0.05`."""
    from penstock.model.errors import InvalidInput

    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise InvalidInput(name, f"expected a share such as 5% or 0.05, got {text!r}; choose another --{name}")
    return found
