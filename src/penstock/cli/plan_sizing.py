"""`penstock plan --parallelism`: the number of tasks of each component, stated or found."""

from collections.abc import Sequence
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.output import console, number, policy_cell, table
from penstock.cli.progress import counting
from penstock.model.cluster import Cluster
from penstock.model.entity import Count
from penstock.model.errors import InvalidInput
from penstock.model.objective import Objective
from penstock.model.parallelism import parallelism_of
from penstock.model.placement import Infeasible
from penstock.model.spec import parameter_value
from penstock.model.topology import Application
from penstock.planning.planner import Decision, Planner
from penstock.planning.sizing import USUAL_POLICY, Sizer
from penstock.policies.api import Sized

AUTO = "auto"

ParallelismOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="auto|COMPONENT=TASKS",
        help="Number of tasks: COMPONENT=TASKS, repeatable; or auto, the least machines and tasks for --rate or the "
        "application's own, without one the highest rate.",
    ),
]


class Sizing(NamedTuple):
    """The sizes that policies found for an application, and the rate that was asked for."""

    application: Application
    rate_tps: float | None  # None: the highest
    sizes: dict[str, Sized | Infeasible]  # by policy
    seconds: dict[str, float]
    sizers: dict[str, Sizer]

    @property
    def best(self) -> str | None:
        """The policy with the least machines, then tasks, for the rate, or with the highest rate; None without one."""
        found = {policy: size for policy, size in self.sizes.items() if isinstance(size, Sized)}
        return min(found, key=lambda policy: self._rank(found[policy])) if found else None

    def planned(self, cluster: Cluster, seed: int) -> tuple[Planner, list[Decision]]:
        """Return the best size as a decision, if there is one, with the planner for its parallelism."""
        if self.best is None:
            return Planner(self.application, cluster, seed=seed), []
        size = self.sizes[self.best]
        assert isinstance(size, Sized), "so is the best"
        planner, decision = self.sizers[self.best].decision(size)
        return planner, [Decision(decision.policy, decision.result, decision.evaluation, self.seconds[self.best])]

    @property
    def sufficient(self) -> bool:
        """Whether the best carries the rate."""
        size = None if self.best is None else self.sizes[self.best]
        return isinstance(size, Sized) and size.throughput_tps >= (self.rate_tps or 0.0) * (1 - 1e-9)

    def _rank(self, size: Sized) -> tuple[float, ...]:
        tasks = float(sum(size.parallelism.values()))
        if self.rate_tps is not None and size.throughput_tps >= self.rate_tps * (1 - 1e-9):
            return 0.0, float(size.machines), tasks
        return 1.0, -float(f"{size.throughput_tps:.6g}"), float(size.machines), tasks


def chosen_parallelism(texts: Sequence[str] | None) -> tuple[bool, dict[str, int]]:
    """Return whether the parallelism is to be found, and the stated numbers of tasks."""
    found: dict[str, int] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals and text != AUTO:
            raise InvalidInput("parallelism", f"expected auto or COMPONENT=TASKS, got {text!r}")
        if name in found:
            raise InvalidInput("parallelism", f"{name!r} is given twice, again as {value!r}; remove one")
        if equals:
            found[name] = parameter_value(f"parallelism.{name}", value, Count)
    if AUTO in (texts or ()) and found:
        raise InvalidInput("parallelism", f"expected auto or numbers, got auto and {next(iter(found))}; leave one out")
    return AUTO in (texts or ()), found


def find_sizing(
    application: Application,
    cluster: Cluster,
    policies: Sequence[str] | None,
    rate: float | None,
    seed: int,
    quiet: bool,
) -> Sizing:
    """Size an application with each of the policies."""
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidInput("rate", f"expected tuples per second > 0, got {rate:g}; choose another --rate")
    wanted = rate if rate is not None else application.offered_tps
    names = policies or [USUAL_POLICY]
    sizers = {name: Sizer(application, cluster, name, seed=seed) for name in names}
    sizes: dict[str, Sized | Infeasible] = {}
    seconds: dict[str, float] = {}
    with counting("sizing", len(names), quiet) as advance:
        for name, sizer in sizers.items():
            advance(name, 0)
            started = perf_counter()
            sizes[name] = sizer.highest_rate() if wanted is None else sizer.for_rate(wanted)
            seconds[name] = perf_counter() - started
            advance(name, 1)
    return Sizing(application, wanted, sizes, seconds, sizers)


def refuse_sizing_options(objective: Objective, model: object) -> None:
    """Reject options that a search for a parallelism does not use."""
    if objective is not Objective.THROUGHPUT:
        problem = f"a parallelism is found for throughput, got {objective}"
        raise InvalidInput("objective", f"{problem}; plan with the saved plan's parallelism, COMPONENT=TASKS")
    if model is not None:
        raise InvalidInput("model", f"a parallelism is found for throughput, got {model}; leave it out")


def print_sizing(sizing: Sizing) -> None:
    """Print the sizes that policies found."""
    goal = "the highest rate" if sizing.rate_tps is None else f"{number(sizing.rate_tps)}/s"
    console.print(f"[bold]parallelism for {goal}[/]\n")
    names = list(parallelism_of(sizing.application))
    rows = table("policy", "machines", "tasks", "throughput\n/s", *names)
    for policy, size in sizing.sizes.items():
        name = policy_cell(policy, policy == sizing.best)
        if isinstance(size, Infeasible):
            rows.add_row(name, *["-"] * (3 + len(names)))
            continue
        numbers = [str(size.parallelism[component]) for component in names]
        total = str(sum(size.parallelism.values()))
        rows.add_row(name, str(size.machines), total, number(size.throughput_tps), *numbers)
    now = parallelism_of(sizing.application)
    rows.add_row("[dim]application[/]", "", str(sum(now.values())), "", *(str(now[name]) for name in names))
    console.print(rows)
    if sizing.best is not None and not sizing.sufficient:
        size = sizing.sizes[sizing.best]
        assert isinstance(size, Sized)
        found = f"at most {number(size.throughput_tps)}/s were found"
        console.print(f"[yellow]no parallelism carries {goal} on these machines; {found}[/]", soft_wrap=True)
    console.print()


def sizing_record(sizing: Sizing) -> dict[str, Any]:
    """Return the sizes for JSON."""
    return {
        "rate_tps": sizing.rate_tps,
        "sufficient": sizing.sufficient,
        "sizes": [
            {
                "policy": policy,
                "machines": size.machines,
                "throughput_tps": size.throughput_tps,
                "parallelism": size.parallelism,
            }
            if isinstance(size, Sized)
            else {"policy": policy, "machines": None, "reason": size.reason}
            for policy, size in sizing.sizes.items()
        ],
    }
