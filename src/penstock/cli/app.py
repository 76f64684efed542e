"""The `penstock` command: its subcommands, and how a mistake ends.

Commands import what they need when they run, so that `--help` and completion answer at once. Exit codes: 0 done, 1 done
but the answer is no (nothing could be placed, something is missing), 2 a mistake in what was asked.
"""

import os
import sys
from typing import Annotated

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
        app()
    except PenstockError as mistake:
        typer.secho(f"error: {mistake}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        typer.secho("stopped", err=True)
        sys.exit(130)
