"""`penstock cluster admit`: decide whether, on which paths and at which rate an application is admitted."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from msgspec import ValidationError, convert
from msgspec.structs import asdict, replace

from penstock.admission import Admitted, BookFile, Refused, find_unmet, replan
from penstock.admission import admit as admit_to_book
from penstock.cli import inputs
from penstock.cli.cluster import books
from penstock.cli.flows import find_application, with_parameters
from penstock.cli.formatting import plural
from penstock.cli.output import console, number, print_json
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.cluster import Cluster, machine_of
from penstock.model.entity import to_invalid_input
from penstock.model.errors import FileProblem, InvalidInput, UnknownName, nearest
from penstock.model.plan import digest
from penstock.model.topology import Application
from penstock.workloads.clusters import find_cluster

POLICY = "sparcle"

ClusterArgument = Annotated[
    str | None,
    typer.Argument(
        help="The cluster, a file or a built-in name; needed for the first application.",
        autocompletion=inputs.cluster_names,
    ),
]
NamedOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="The cluster, if it is not the second argument.", autocompletion=inputs.cluster_names
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(help="Guaranteed source tuples per second, of all sources together; default: best effort."),
]
AvailabilityOption = Annotated[
    float | None, typer.Option(help="Required share of the time in which the rate, or any path, is available.")
]
BestEffortOption = Annotated[
    bool, typer.Option("--best-effort", help="Give it a fair share of what guaranteed applications leave.")
]
PriorityOption = Annotated[float | None, typer.Option(help="Weight among best-effort applications; default: 1.")]
PinOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Pin tasks: COMPONENT=MACHINE for all of a component, COMPONENT=MACHINE,MACHINE for one each; repeatable."
    ),
]
NameOption = Annotated[str | None, typer.Option("--as", help="The name in the book; default: the application's own.")]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help="Policy that places each path; default: sparcle; with --again: unchanged.",
        autocompletion=inputs.policy_names,
    ),
]
PathsOption = Annotated[int, typer.Option(help="Maximum paths.", min=1)]
EstimateOption = Annotated[
    bool, typer.Option("--estimate", help="Allow more than 16 paths; their availability is then estimated.")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Random seed of policies and estimates; default: 0; with --again: unchanged.", min=0)
]
AgainOption = Annotated[
    bool, typer.Option("--again", help="Find new paths for an application in the book, by its name there.")
]


def admit(
    application: inputs.ApplicationArgument,
    cluster: ClusterArgument = None,
    parameter: inputs.SetOption = None,
    parameters: inputs.ParametersOption = None,
    named: NamedOption = None,
    rate: RateOption = None,
    availability: AvailabilityOption = None,
    best_effort: BestEffortOption = False,
    priority: PriorityOption = None,
    pin: PinOption = None,
    name: NameOption = None,
    policy: PolicyOption = None,
    paths: PathsOption = 8,
    estimate: EstimateOption = False,
    seed: SeedOption = None,
    again: AgainOption = False,
    book: books.BookOption = books.BOOK,
    dry_run: inputs.DryRunOption = False,
    as_json: inputs.JsonOption = False,
) -> None:
    """Admit an application to a cluster, or explain why it is rejected.

    It gets a guaranteed rate, or with --best-effort a share of what is left. A path is one placement of all tasks with
    the routes of all streams. Paths are added until the rate is available for the requested share of the time, given
    how often machines and links fail; if that is impossible, nothing is booked. Guaranteed rates are reserved before
    the rest is divided, in proportion to priorities where applications compete. A rejection names the obstacle and the
    least change that would help. Nothing runs yet: penstock cluster serve runs what is admitted.

    A rate is that of all sources together, divided as the application's rate_tps says, else equally. If somebody else
    changes the book meanwhile, the decision is made again.

    Example: penstock cluster admit face-detection field-and-cloud --pin camera=field1 --rate 0.1
    """
    cluster = _one_of(cluster, named)
    if again:
        _refuse_beside_again(cluster, rate, best_effort, priority, availability, pin, name, seed, parameter, parameters)

        def decide(found: Book) -> Admitted | Refused:
            return replan(found, application, policy=policy, paths=paths, estimate=estimate)
    else:
        text = with_parameters(application, inputs.chosen_parameters(parameter, parameters))
        wanted = _wanted(text, rate, availability, best_effort, priority, pin, name)

        def decide(found: Book) -> Admitted | Refused:
            by = policy or POLICY
            return admit_to_book(found, wanted, policy=by, paths=paths, seed=seed or 0, given=text, estimate=estimate)

    before, result = decide_and_save(book, cluster, decide, keep=not dry_run, create=not again)
    if as_json:
        print_json(_as_json(result, dry_run))
    else:
        _print(result, before, book, dry_run)
    if not isinstance(result, Admitted):
        raise typer.Exit(1)


def decide_and_save(
    path: Path, cluster: str | None, decide: Callable[[Book], Admitted | Refused], keep: bool, create: bool
) -> tuple[Book, Admitted | Refused]:
    """Decide on the current book and save the decision; decide again if another process has changed the book.

    With `create` the book need not exist yet. Return the book before the decision, and the decision.
    """
    file = BookFile(path)

    def attempt() -> tuple[Book, Admitted | Refused]:
        there = file.exists()
        before = _book(file, cluster) if create else books.load_book(path)
        result = decide(before)
        if keep and isinstance(result, Admitted):
            file.save(result.book, before.version if there else None)
        return before, result

    return books.until_saved(attempt)


def _one_of(cluster: str | None, named: str | None) -> str | None:
    if cluster is not None and named is not None:
        raise InvalidInput("cluster", f"expected it once, got {cluster!r} and --cluster {named!r}; leave one out")
    return cluster if named is None else named


def _wanted(
    text: str,
    rate: float | None,
    availability: float | None,
    best_effort: bool,
    priority: float | None,
    pin: list[str] | None,
    name: str | None,
) -> Application:
    """Return the application with the requested guarantees."""
    found = find_application(text)
    if best_effort and rate is not None:
        raise InvalidInput("rate", f"expected a rate or --best-effort, got {rate:g} and both; leave one out")
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidInput("rate", f"expected source tuples per second > 0, got {rate:g}")
    if rate is not None and priority is not None:
        raise InvalidInput("priority", f"only best-effort applications have one, got {priority:g} and --rate")
    guaranteed = None if best_effort else found.guaranteed_tps if rate is None else rate
    changes = {
        "name": found.name if name is None else name,
        "components": _pinned(found, pin or []),
        "guaranteed_tps": guaranteed,
        "availability": found.availability if availability is None else availability,
        "priority": found.priority if priority is None else priority,
    }
    try:
        return convert({**asdict(found), **changes}, Application, from_attributes=True)
    except ValidationError as error:
        raise to_invalid_input(error, changes, Application) from None


def _pinned(application: Application, pins: list[str]) -> tuple[object, ...]:
    where: dict[str, str | tuple[str, ...]] = {}
    for text in pins:
        component, equals, machine = text.partition("=")
        if not equals or not machine:
            raise InvalidInput("pin", f"expected COMPONENT=MACHINE or COMPONENT=MACHINE,MACHINE, got {text!r}")
        if component not in application.index:
            raise UnknownName("pin", f"no component is named {component!r}; {nearest(component, application.index)}")
        where[component] = tuple(machine.split(",")) if "," in machine else machine
    return tuple(replace(one, pinned=where.get(one.name, one.pinned)) for one in application.components)


def _book(file: BookFile, cluster: str | None) -> Book:
    """Return the book, or an empty one for a cluster."""
    if not file.exists():
        if cluster is None:
            raise FileProblem(
                f"{file.path}: there is no book yet; name the cluster too: penstock cluster admit APP CLUSTER"
            )
        return Book(cluster=find_cluster(cluster))
    there = file.load()
    if cluster is not None and digest(found := find_cluster(cluster)) != digest(there.cluster):
        if found.name != there.cluster.name:
            is_of = f"{file.path} is of {there.cluster.name!r}, which is another cluster"
            raise InvalidInput("cluster", f"{is_of}; use another --book, or name none")
        changed = f"{cluster} differs from the cluster of {file.path}: {_differences(there.cluster, found)}"
        remedy = "name no cluster to keep the book's own, or use another --book"
        raise InvalidInput(
            "cluster", f"{changed}; {remedy} (penstock cluster restore ELEMENT --capacity changes one's)"
        )
    return there


def _differences(one: Cluster, other: Cluster) -> str:
    """Name a few elements that differ between two descriptions of a cluster."""
    parts = [
        {**{m.name: m for m in each.machines}, **{k.label: k for k in each.links}, **{s: s for s in each.switches}}
        for each in (one, other)
    ]
    names = [name for name in {**parts[0], **parts[1]} if parts[0].get(name) != parts[1].get(name)]
    if not names:
        return "its distances, or the order of what it has, differ"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {'differs' if len(names) == 1 else 'differ'}"


def _refuse_beside_again(*options: object) -> None:
    names = ("cluster", "rate", "best_effort", "priority", "availability", "pin", "as", "seed", "set", "parameters")
    for name, value in zip(names, options, strict=True):
        if value is not None and value is not False and value != []:  # a seed of 0 counts
            problem = f"expected none with --again, which keeps the earlier request, got {value!r}"
            raise InvalidInput(name, f"{problem}; release the application and admit it again")


def _print(result: Admitted | Refused, before: Book, file: Path, dry_run: bool) -> None:
    if isinstance(result, Refused):
        console.print(f"[red]refused[/] [bold]{result.application}[/]: {result.reason}", soft_wrap=True)
        for remedy in result.suggestions[1:]:  # the reason includes the first
            console.print(f"  or {remedy.text}", soft_wrap=True)
        console.print(f"[dim]{file} is as it was.[/]" if before.bookings else "[dim]Nothing was reserved.[/]")
        return
    booking = result.booking
    would = "would be admitted" if dry_run else "admitted"
    console.print(
        f"[green]{would}[/] [bold]{booking.name}[/]: {books.booking_in_words(booking)}, paths by {booking.policy}"
    )
    enough = ", all that it offers" if booking.sated else ""
    console.print(f"  rate now {number(booking.rate_tps)}/s over {plural(len(booking.paths), 'path')}{enough}")
    requested = "" if booking.availability is None else f", requested {books.share(booking.availability)}"
    what = "the rate" if booking.guaranteed else "one of them" if len(booking.paths) > 1 else "it"
    often = books.share(booking.achieved_availability)
    if result.at_most is not None:
        often = f"at least {often} (estimated, between {often} and {books.share(result.at_most)}, seed {booking.seed})"
    console.print(f"  {what} is available {often} of the time{requested}", soft_wrap=True)
    for position, path in enumerate(booking.paths):
        _print_path(position, path, booking)
    missed = find_unmet(result.book)
    if result.rates or missed:
        console.print("others:")
        books.print_changes(result.rates, missed)
    if not dry_run:
        console.print(
            f"[dim]{file} is at version {result.book.version}; see it by penstock cluster book[/]", soft_wrap=True
        )


def _print_path(position: int, path: BookedPath, booking: Booking) -> None:
    where = {name: ", ".join(dict.fromkeys(map(machine_of, slots))) for name, slots in path.plan.tasks.items()}
    rate = path.reserved_tps if booking.guaranteed else path.rate_tps
    console.print(f"  path {position + 1}: [bold]{number(rate)}/s[/]")
    console.print(
        "    " + " · ".join(f"{name} [cyan]{machines}[/]" for name, machines in where.items()), soft_wrap=True
    )
    for route in path.plan.routes:
        console.print(f"    [dim]{route.stream}: {' '.join(route.links)}[/]", soft_wrap=True)


def _as_json(result: Admitted | Refused, dry_run: bool) -> dict[str, object]:
    if isinstance(result, Refused):
        suggestions = [
            remedy._asdict() | {"also": [one._asdict() for one in remedy.also]} for remedy in result.suggestions
        ]
        refusal = {"admitted": False, "application": result.application, "reason": result.reason}
        return {**refusal, "binding": result.binding, "suggestions": suggestions}
    booking = result.booking
    return {
        "admitted": True,
        "saved": not dry_run,
        "application": booking.name,
        "promise": booking.kind,
        "rate_tps": booking.rate_tps,
        "demand_tps": booking.demand_tps,
        "availability": booking.achieved_availability,
        "availability_at_most": booking.achieved_availability if result.at_most is None else result.at_most,
        "estimated": result.at_most is not None,
        "paths": booking.paths,
        "version": result.book.version,
        "others": books.changes_json(result.rates)["rates"],
        "unmet": [missed._asdict() for missed in find_unmet(result.book)],
    }
