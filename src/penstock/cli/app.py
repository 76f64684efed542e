"""The `penstock` command: its options, how it starts, and how an error ends it.

Exit codes: 0 success; 1 a negative answer (no feasible placement, something is missing, the run failed); 2 invalid
input. With `--json` a command prints one JSON document on stdout: its result, or
`{"error": {"message": …, "field": …}}`.
"""

import errno
import logging
import os
import sys
from importlib.metadata import version as version_of
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from penstock.cli.tree import SETTINGS, commands
from penstock.model.errors import PenstockError

STOPPED = 130  # exit code after Ctrl-C, as of other programs
EXPECTED = {  # typer's description of a value: ours
    "greater than or equal to": "a number ≥",
    "less than or equal to": "a number ≤",
    "greater than": "a number >",
    "less than": "a number <",
    "a valid integer": "a whole number",
    "a valid number": "a number",
}
PURPOSE = "Schedule stream processing: choose where each task runs, predict throughput and latency, run it, adapt it."
START = "Start with `penstock plan log-processing hetero-small --policy all`, then `penstock run word-count`."


class _Root(TyperGroup):
    """The root of the tree; reports Ctrl-C to `main`, where typer would end silently."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise typer.Abort from stop


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"penstock {version_of('penstock')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options of `penstock` itself."""


def root() -> TyperGroup:
    """Return the `penstock` command with its tree, no command of which is loaded."""
    app = typer.Typer(
        name="penstock",
        cls=_Root,
        help=PURPOSE,
        epilog=START,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings=dict(SETTINGS),
    )
    app.callback()(_options)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for command in commands():
        group.add_command(command)
    return group


def main() -> None:
    """Run the command line; invalid input ends in one line and exit code 2."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        os.environ.setdefault("TERMINAL_WIDTH", "160")  # of typer's help, which would cut the names of options at 80
    logging.getLogger().addFilter(is_for_user)
    if sys.stderr.isatty():
        _log_compilation()
    try:
        code = root().main(prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except PenstockError as error:
        _end(_with_option(error), error.exit_code, getattr(error, "path", "").lstrip("-"))
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except BaseException as error:
        if _interrupted(error):
            _end(str(error) if isinstance(error, typer.Abort) and str(error) else "stopped", STOPPED)
        if hasattr(error, "format_message"):  # an error in the options, raised by the click inside typer
            path = getattr(getattr(error, "ctx", None), "command_path", "penstock")
            _end(f"{_option_error(error)} (see {path} --help)", 2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _end("output: no space is left on its device; free some", 2)
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _log_compilation() -> None:
    """Print to the terminal when kernels are compiled: the first command of its kind takes long."""
    log, handler = logging.getLogger("penstock.model.kernel"), logging.StreamHandler()
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    log.propagate = False


def is_for_user(record: logging.LogRecord) -> bool:
    """Return whether a log line is for the user: Spark's gateway logs Ctrl-C with a traceback, `main` in a word."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")


def _end(message: str, code: int, field: str = "") -> NoReturn:
    """Print why a command ends, and end it: a line on stderr, or with --json an object on stdout."""
    from penstock.cli.output import neutral, print_json  # imports rich and numpy, which help does not need

    text = " ".join(message.split())
    if "--json" in sys.argv[1:]:
        print_json({"error": {"message": text, "field": field or None, "exit_code": code}})
    else:
        line = text if code == STOPPED else f"error: {text}"
        typer.secho(neutral(line), fg=None if code == STOPPED else typer.colors.RED, err=True)
    sys.exit(code)


def _with_option(error: PenstockError) -> str:
    """Return an error's text, its field named as the option that was used: `warm_up` is `--warm-up`."""
    field, problem = getattr(error, "path", ""), getattr(error, "problem", "")
    option = f"--{field.replace('_', '-')}"
    used = any(argument == option or argument.startswith(f"{option}=") for argument in sys.argv)
    return f"{option}: {problem}" if "_" in field and used else str(error)


def _option_error(error: BaseException) -> str:
    """Return what is wrong with an option; the value is in the cause of the error, which typer's own text omits."""
    wrong = next(iter(getattr(error.__cause__, "errors", list)()), None)
    if wrong is None or getattr(error, "param", None) is None:
        return str(error.format_message())  # type: ignore[attr-defined]
    names = getattr(error, "param").opts or ["argument"]  # noqa: B009  the type is of the click inside typer
    expected = wrong["msg"].removeprefix("Input should be ").partition(",")[0]
    for theirs, ours in EXPECTED.items():
        expected = expected.replace(theirs, ours)
    return f"{max(names, key=len)}: expected {expected}, got {wrong['input']!r}"


def _interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C is behind an error: compiled code and Spark wrap it in errors of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            return True
        error = error.__cause__ or error.__context__
    return False
