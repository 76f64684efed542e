"""Inputs of the command line: files, built-in applications and clusters, and common options."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.model.cluster import Cluster, check_pins
from penstock.model.errors import FileProblem, InvalidInput, member
from penstock.model.files import load_application, load_plan, load_table
from penstock.model.objective import Objective
from penstock.model.plan import Plan
from penstock.model.topology import Application, Topology
from penstock.model.tuples import TuplePolicies, over
from penstock.policies.registry import PolicyKind, names, placement_policy
from penstock.policies.streams import check, check_names
from penstock.workloads.applications import APPLICATIONS
from penstock.workloads.applications import application as built_in_application
from penstock.workloads.clusters import CLUSTERS

PICTURES = (".png", ".svg", ".pdf")
TABLES = (".toml", ".json")
SVG = (".svg",)
MASTERS = r"local(-cluster)?(\[[^\]]*\])?$|spark://.+|yarn$|k8s://.+"

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
MasterOption = Annotated[str | None, typer.Option(help="Spark master URL; default: embedded.")]
RUN_HELP = "A run: its name, its folder, or latest, which is the default."
RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN_HELP)]
RunOption = Annotated[str | None, typer.Option("--run", help=RUN_HELP)]
RunsOption = Annotated[Path, typer.Option(help="Folder of the run folders.")]


def routing_names(incomplete: str) -> list[str]:
    """Complete the name of a routing policy, after `STREAM=` if there is one."""
    stream, equals, prefix = incomplete.rpartition("=")
    return [f"{stream}{equals}{name}" for name in (*names(PolicyKind.ROUTING), "none") if name.startswith(prefix)]


def completing(*known: str) -> Callable[[str], list[str]]:
    """Return a function that completes one of some names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


policy_names = completing(*names(PolicyKind.PLACEMENT), "all")
placement_names = completing(*names(PolicyKind.PLACEMENT))
application_names = completing(*APPLICATIONS)
cluster_names = completing(*CLUSTERS)
objective_names = completing(*Objective)

RoutingOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Routing policy, or STREAM=POLICY for one stream; repeatable; `none`: by the streams' groupings.",
        autocompletion=routing_names,
    ),
]
SendingOption = Annotated[
    str | None,
    typer.Option(
        help="Sending policy, which orders the out-queues; `none`: in order of emission.",
        autocompletion=completing(*names(PolicyKind.SENDING), "none"),
    ),
]
SlotOption = Annotated[
    float | None, typer.Option(help="Milliseconds between two routing decisions of an out-queue; default: 1.")
]

PoliciesOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Policy, NAME or NAME:PARAMETER=VALUE; repeatable; all: all others.", autocompletion=policy_names
    ),
]
ObjectiveOption = Annotated[
    str, typer.Option(help="throughput, delay, traffic or balanced.", autocompletion=objective_names)
]
SeedOption = Annotated[int, typer.Option(help="Random seed.", min=0)]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would happen.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Parameter of the application, or of your function that makes it; repeatable.",
    ),
]
ParametersOption = Annotated[
    Path | None,
    typer.Option("--parameters", metavar="FILE", help="File of parameters (.toml, .json); --set overrides it."),
]
ApplicationArgument = Annotated[
    str,
    typer.Argument(
        help="A built-in name, NAME or NAME:PARAMETER=VALUE, a file that describes an application (.toml, .json), "
        "or your code: module:object, file.py:object or file.py.",
        autocompletion=application_names,
    ),
]
ClusterArgument = Annotated[
    str, typer.Argument(help="A file (.toml, .json, .graph) or a built-in name.", autocompletion=cluster_names)
]


def is_file(text: str) -> bool:
    """Return whether a text names a file: it exists, has a supported suffix, or contains a folder."""
    return Path(text).suffix.lower() in (".toml", ".json") or is_network(text) or "/" in text or Path(text).exists()


def is_network(text: str) -> bool:
    """Return whether a text names a file in Repetita's format for networks."""
    return Path(text).suffix.lower() == ".graph"


def described(text: str) -> Application:
    """Return the application of a file or a built-in name."""
    return load_application(text) if is_file(text) else built_in_application(text)


def chosen_parameters(texts: Sequence[str] | None, file: Path | None) -> dict[str, Any]:
    """Return the parameters of an application from a file and options; options override the file."""
    found: dict[str, Any] = {} if file is None else load_table(file)
    named: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidInput("set", f"expected KEY=VALUE, got {text!r}")
        if name.strip() in named:
            raise InvalidInput("set", f"{name.strip()!r} is given twice, again as {value!r}; remove one")
        named[name.strip()] = value
    return found | named


def refuse_pins(text: str, topology: Topology, machines: Cluster) -> None:
    """Reject tasks pinned to unknown machines; the error names the application's file, if there is one."""
    with naming(text) if is_file(text) else nullcontext():
        check_pins(topology, machines)


@contextmanager
def naming(file: Path | str) -> Iterator[None]:
    """Prefix errors in fields with the file that contains them."""
    try:
        yield
    except InvalidInput as error:
        text = str(error)
        raise type(error)("", text if str(file) in text else f"{file}: {text}") from None


def plan_file(path: Path) -> Plan:
    """Read a plan; reject unknown tuple policies."""
    found = load_plan(path)
    check_policies_in(found, path)
    return found


def check_policies_in(plan: Plan, path: Path | str, topology: Topology | None = None) -> None:
    """Reject unknown tuple policies in a plan's file, and those that an application cannot have."""
    parts = {"": TuplePolicies(routing=plan.tuples.routing, sending=plan.tuples.sending)}
    parts |= {f"streams.{label}": TuplePolicies(routing=spec) for label, spec in plan.tuples.streams.items()}
    for part, policies in parts.items():
        try:
            check_names(policies)
        except InvalidInput as error:
            field = f"tuples.{part or error.path}"
            raise type(error)("", f"{path}: {field}: {error.problem}") from None
    if topology is not None:
        with naming(path):
            check(over(TuplePolicies(), plan.tuples), topology)


def chosen_policies(specs: Sequence[str]) -> list[str]:
    """Return the requested policies without duplicates; reject unknown ones.

    `all` adds every placement policy that is not named itself: `all` and `optimal:seconds=2` selects all of them, with
    that bound on optimal.
    """
    named = list(dict.fromkeys(spec for spec in specs if spec != "all"))
    for spec in named:
        placement_policy(spec)
    if "all" not in specs:
        return named
    by_name = {name: [spec for spec in named if spec.partition(":")[0] == name] for name in names(PolicyKind.PLACEMENT)}
    return [spec for name, own in by_name.items() for spec in own or [name]]


def refuse_file(path: Path | None, endings: Sequence[str], *inputs: str) -> None:
    """Reject a file that has another ending, is an input, or cannot be written, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise FileProblem(f"{path}: expected a name that ends in {', '.join(endings)}; rename it")
    if path.exists() and any(Path(name).exists() and path.samefile(name) for name in inputs):
        raise FileProblem(f"{path}: is what you plan for; choose another name")
    if not path.absolute().parent.is_dir():
        raise FileProblem(f"{path}: cannot be written, {path.parent} is not a folder; choose another place")


def refuse_master(master: str | None) -> None:
    """Reject an invalid Spark master URL before Spark starts."""
    if master is not None and not re.match(MASTERS, master):
        problem = f"expected local[n], spark://host:port, yarn or k8s://…, got {master!r}"
        raise InvalidInput("master", f"{problem}; choose another --master, or leave it out")


def refuse_numbers(**options: float | None) -> None:
    """Reject numbers that are not above 0."""
    for name, value in options.items():
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInput(name, f"expected a number > 0, got {value:g}; choose another --{name.replace('_', '-')}")


def chosen_objective(text: str) -> Objective:
    """Return the objective of a name."""
    return member("objective", Objective, text)
