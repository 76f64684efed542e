"""The command line: one file a command."""

from penstock.cli.app import main

__all__ = ["main"]
