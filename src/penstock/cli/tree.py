"""The tree of commands: where each is, what it does, and for whom; its module is imported only when it is used.

Typer turns a function into the command. The last line of its docstring is an example of its use.
"""

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

AUTHOR = "Application author"
OPERATOR = "Operator"
PLANNER = "Planner"
RESEARCHER = "Researcher"
SETTINGS = {"help_option_names": ["-h", "--help"]}


class Entry(NamedTuple):
    """A command: its name, the role it is for, the first line of its help, and its function (`module:function`)."""

    name: str
    role: str
    help: str
    function: str


class Section(NamedTuple):
    """A group of commands: its name, the role it is for, its help, an example of its use, and its commands."""

    name: str
    role: str
    help: str
    example: str
    entries: "tuple[Entry | Section, ...]"


RUNS = (
    Entry("list", OPERATOR, "List all runs, newest first.", "runs.folders:list_runs"),
    Entry("resume", OPERATOR, "Resume a run from its last checkpoint.", "run:resume"),
    Entry("move", OPERATOR, "Move one task of a running application to another machine or slot.", "runs.move:move"),
    Entry(
        "apply", OPERATOR, "Change a running application to another plan or other tuple policies.", "runs.apply:apply"
    ),
    Entry("limit", OPERATOR, "Limit the rate of a running application's sources.", "runs.limit:limit"),
    Entry("checkpoints", OPERATOR, "List the checkpoints of a run, or inspect one.", "runs.checkpoints:checkpoints"),
    Entry("clean", OPERATOR, "Remove the folders of runs that have ended.", "runs.folders:clean"),
)
PLANS = (Entry("diff", PLANNER, "Compare two plans: tasks, tuple policies, predictions.", "plan_diff:diff"),)
POLICIES = (
    Entry("list", PLANNER, "List every policy by what it decides.", "policies:list_policies"),
    Entry("show", PLANNER, "Show a policy's description and parameters.", "policies:show_policy"),
)
AUTOPILOT = (
    Entry(
        "set", OPERATOR, "Set the policy that moves the tasks of a running application.", "autopilot.control:set_policy"
    ),
    Entry("off", OPERATOR, "Disable the autopilot of a running application.", "autopilot.control:off"),
    Entry("status", OPERATOR, "Show the autopilot of a running application.", "autopilot.control:status"),
    Entry(
        "history", OPERATOR, "List the autopilot's decisions and their measured effects.", "autopilot.decisions:history"
    ),
    Entry(
        "explain",
        OPERATOR,
        "Explain a decision: its inputs, its alternatives, its outcome.",
        "autopilot.decisions:explain",
    ),
)
CLUSTER = (
    Entry(
        "admit", OPERATOR, "Admit an application to a cluster, or explain why it is rejected.", "cluster.admit:admit"
    ),
    Entry("release", OPERATOR, "Remove an application from a cluster's book.", "cluster.changes:release"),
    Entry("priority", OPERATOR, "Change the priority of a best-effort application.", "cluster.changes:change_priority"),
    Entry("fail", OPERATOR, "Mark a machine, a switch or a link as failed.", "cluster.changes:fail"),
    Entry("restore", OPERATOR, "Mark an element as working again, or change its capacity.", "cluster.changes:restore"),
    Entry("book", OPERATOR, "Show the admitted applications and the use of each element.", "cluster.book:book"),
    Entry("serve", OPERATOR, "Run the admitted applications at their booked rates.", "cluster.serve:serve"),
)
SIM = (
    Entry(
        "slotted",
        PLANNER,
        "Simulate an application in time slots, and compare routing policies.",
        "sim.slotted:slotted",
    ),
    Entry("twin", PLANNER, "Simulate an emulated run event by event: latency, throughput, load.", "sim.twin:twin"),
    Entry("explore", RESEARCHER, "Try random placements and write their telemetry.", "sim.explore:explore"),
    Entry(
        "calibrate",
        RESEARCHER,
        "Measure the costs of components, streams, network and engine.",
        "sim.calibrate:calibrate",
    ),
    Entry("scaling", PLANNER, "Compare scaling policies on recorded arrivals.", "sim.scaling:scaling"),
    Entry("forecast", RESEARCHER, "Compare forecasters on known arrivals.", "sim.forecast:forecast"),
)
TRAIN = (
    Entry("latency", RESEARCHER, "Train latency models on tables.", "models.train:train"),
    Entry("placement", RESEARCHER, "Train a network that places tasks.", "models.placement:train"),
)
EVALUATE = (
    Entry("latency", RESEARCHER, "Compare latency models with measured latencies.", "models.evaluate:evaluate"),
    Entry(
        "placement",
        RESEARCHER,
        "Compare networks with other policies on random instances.",
        "models.placement:evaluate",
    ),
)
MODELS: tuple[Entry | Section, ...] = (
    Entry("tables", RESEARCHER, "Turn telemetry into tables of hops, tuples and windows.", "models.tables:tables"),
    Section("train", RESEARCHER, "Train models.", "penstock models train latency tables --output app.npz", TRAIN),
    Section(
        "evaluate",
        RESEARCHER,
        "Compare models with measurements or with searches.",
        "penstock models evaluate placement",
        EVALUATE,
    ),
)
LAB = (
    Entry("sweep", RESEARCHER, "Compare policies on many clusters and seeds.", "lab.sweep:sweep"),
    Entry("reproduce", RESEARCHER, "Reproduce a paper's figures and check its claims.", "lab.reproduce:reproduce"),
)
TREE: tuple[Entry | Section, ...] = (
    Entry("run", AUTHOR, "Run an application on Spark.", "run:run"),
    Entry("report", AUTHOR, "Show where tuples spent their time, from a run's telemetry.", "report:report"),
    Entry("doctor", AUTHOR, "Check Python, Java, Spark, cores and memory.", "doctor:doctor"),
    Entry(
        "status", OPERATOR, "Show a running application: rates, queues, latencies, machines, tasks.", "status:status"
    ),
    Entry("stop", OPERATOR, "Stop a running application.", "stop:stop"),
    Section("runs", OPERATOR, "Inspect, change and resume runs.", "penstock runs list", RUNS),
    Section(
        "autopilot",
        OPERATOR,
        "Have a policy move tasks while an application runs.",
        "penstock autopilot set local-search --shadow",
        AUTOPILOT,
    ),
    Section(
        "cluster",
        OPERATOR,
        "Share a cluster among applications, with guaranteed rates.",
        "penstock cluster admit face-detection star-8 --rate 5",
        CLUSTER,
    ),
    Entry("show", PLANNER, "Draw an application, a cluster or a plan, or list built-in ones.", "show:show"),
    Entry("plan", PLANNER, "Choose where each task runs; predict throughput and latency.", "plan:plan"),
    Section("plans", PLANNER, "Compare plans.", "penstock plans diff monday.toml tuesday.toml", PLANS),
    Section(
        "policies", PLANNER, "List policies and their parameters.", "penstock policies show local-search", POLICIES
    ),
    Section(
        "sim",
        PLANNER,
        "Simulate, calibrate and forecast.",
        "penstock sim twin word-count li-10 --policy t-storm --rate 5000",
        SIM,
    ),
    Section(
        "models",
        RESEARCHER,
        "Make tables of telemetry, train and evaluate models.",
        "penstock models tables --input runs --output tables",
        MODELS,
    ),
    Section("lab", RESEARCHER, "Run experiments.", "penstock lab reproduce potus --quick", LAB),
)


class LazyCommand(TyperCommand):
    """A command that imports its module when it is invoked, or when its own help is requested."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.help, rich_help_panel=entry.role)
        self.entry = entry

    def load(self) -> TyperCommand:
        """Import the command's module and return the command with its options."""
        module_name, _, name = self.entry.function.partition(":")
        function = getattr(import_module(f"penstock.cli.{module_name}"), name)
        description, _, example = str(inspect.getdoc(function)).rpartition("\n\nExample: ")
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
        settings = dict(SETTINGS)
        alone.command(self.entry.name, help=description, epilog=f"Example: {example}", context_settings=settings)(
            function
        )
        command = typer.main.get_command(alone)
        assert isinstance(command, TyperCommand)
        return command

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the command itself."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


def walk(tree: Sequence[Entry | Section] = TREE, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Return the commands of a tree with the words that lead to them."""
    for node in tree:
        if isinstance(node, Entry):
            yield (*path, node.name), node
        else:
            yield from walk(node.entries, (*path, node.name))


def commands(tree: Sequence[Entry | Section] = TREE) -> Iterator[LazyCommand | TyperGroup]:
    """Return the commands of a tree, none of them loaded."""
    for node in tree:
        if isinstance(node, Entry):
            yield LazyCommand(node)
        else:
            yield TyperGroup(
                name=node.name,
                commands={str(command.name): command for command in commands(node.entries)},
                help=node.help,
                epilog=f"Example: {node.example}",
                rich_help_panel=node.role,
                rich_markup_mode="markdown",
                no_args_is_help=True,
                context_settings=dict(SETTINGS),
            )
