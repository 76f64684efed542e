"""The `penstock` command: its subcommands, and how a mistake ends.

Commands import what they need when they run, so that `--help` and completion answer at once. Exit codes: 0 done, 1 done
but the answer is no (nothing could be placed, something is missing), 2 a mistake in what was asked.
"""

import errno
import os
import sys
from typing import Annotated, NoReturn

import typer

from penstock.model.errors import PenstockError

app = typer.Typer(
    name="penstock",
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

    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except PenstockError as mistake:
        _end(f"error: {mistake}", 2)
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except BaseException as error:
        if _interrupted(error):
            _end("stopped", 130)
        if hasattr(error, "format_message"):  # a mistake in the options, told by the click that typer carries with it
            asked = getattr(getattr(error, "ctx", None), "command_path", "penstock")
            _end(f"error: {error.format_message()} (see {asked} --help)", 2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _end("error: output: no space is left where it goes; make room", 2)
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _end(message: str, code: int) -> NoReturn:
    typer.secho(" ".join(message.split()), fg=typer.colors.RED if code == 2 else None, err=True)
    sys.exit(code)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: compiled code and Spark wrap it in errors of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            return True
        error = error.__cause__ or error.__context__
    return False
