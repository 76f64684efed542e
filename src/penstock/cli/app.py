"""The `penstock` command: its subcommands, and how a mistake ends.

Commands import what they need when they run, so that `--help` and completion answer at once. Exit codes: 0 done, 1 done
but the answer is no (nothing could be placed, something is missing, the run failed), 2 a mistake in what was asked.
With `--json` a command prints one JSON document on stdout: its answer, or `{"error": {"message": …, "field": …}}`.
"""

import errno
import logging
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from penstock.model.errors import PenstockError

STOPPED = 130  # exit code after Ctrl-C, as of other programs
PLAINER = {  # of typer's words on a value
    "greater than or equal to": "a number ≥",
    "less than or equal to": "a number ≤",
    "greater than": "a number >",
    "less than": "a number <",
    "a valid integer": "a whole number",
    "a valid number": "a number",
}


class _Commands(TyperGroup):
    """The commands; Ctrl-C in one is told to `main`, where typer would end in silence."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise typer.Abort from stop


app = typer.Typer(
    name="penstock",
    cls=_Commands,
    help="Schedule stream processing: where every task runs, and what that would give.",
    epilog="Start with: penstock plan log-processing hetero-small --policy all",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"penstock {version('penstock')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Schedule stream processing: where every task runs, and what that would give."""


def main() -> None:
    """Run the command line; a user's mistake ends in one line and exit code 2."""
    from penstock.cli import commands  # noqa: F401  registers them

    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        os.environ.setdefault("TERMINAL_WIDTH", "160")  # of typer's help, which would cut the names of options at 80
    logging.getLogger().addFilter(worth_telling)
    if sys.stderr.isatty():
        _tell_of_compiling()
    try:
        code = app(prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except PenstockError as mistake:
        _end(_with_option(mistake), mistake.exit_code, getattr(mistake, "path", ""))
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except BaseException as error:
        if _interrupted(error):
            _end(str(error) if isinstance(error, typer.Abort) and str(error) else "stopped", STOPPED)
        if hasattr(error, "format_message"):  # a mistake in the options, told by the click that typer carries with it
            asked = getattr(getattr(error, "ctx", None), "command_path", "penstock")
            _end(f"{_option_mistake(error)} (see {asked} --help)", 2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _end("output: no space is left where it goes; make room", 2)
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _tell_of_compiling() -> None:
    """Have the user at the terminal know why the first command of its kind takes long."""
    log, teller = logging.getLogger("penstock.model.kernel"), logging.StreamHandler()
    log.setLevel(logging.INFO)
    log.addHandler(teller)
    log.propagate = False


def worth_telling(record: logging.LogRecord) -> bool:
    """Whether a line of the log is for the user: of Ctrl-C Spark's gateway tells in a traceback, `main` in a word."""
    return not record.getMessage().startswith("KeyboardInterrupt while sending command")


def _end(message: str, code: int, field: str = "") -> NoReturn:
    """Print why a command ends, and end it: a line on stderr, or with --json an object on stdout."""
    from penstock.cli.output import neutral, print_json

    text = " ".join(message.split())
    if "--json" in sys.argv[1:]:
        print_json({"error": {"message": text, "field": field or None, "exit_code": code}})
    else:
        line = text if code == STOPPED else f"error: {text}"
        typer.secho(neutral(line), fg=None if code == STOPPED else typer.colors.RED, err=True)
    sys.exit(code)


def _with_option(mistake: PenstockError) -> str:
    """Return a mistake's text, its field named as the option that was given: `warm_up` is `--warm-up`."""
    field, problem = getattr(mistake, "path", ""), getattr(mistake, "problem", "")
    option = f"--{field.replace('_', '-')}"
    given = any(argument == option or argument.startswith(f"{option}=") for argument in sys.argv)
    return f"{option}: {problem}" if "_" in field and given else str(mistake)


def _option_mistake(error: BaseException) -> str:
    """Say what is wrong with an option; the value is in the cause of the error, which typer's own text leaves out."""
    wrong = next(iter(getattr(error.__cause__, "errors", list)()), None)
    if wrong is None or getattr(error, "param", None) is None:
        return str(error.format_message())  # type: ignore[attr-defined]
    names = getattr(error, "param").opts or ["argument"]  # noqa: B009  the type is of the click that typer carries
    wanted = wrong["msg"].removeprefix("Input should be ").partition(",")[0]
    for theirs, ours in PLAINER.items():
        wanted = wanted.replace(theirs, ours)
    return f"{max(names, key=len)}: expected {wanted}, got {wrong['input']!r}"


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: compiled code and Spark wrap it in errors of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            return True
        error = error.__cause__ or error.__context__
    return False
