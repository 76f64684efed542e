"""The command line: a folder for each group of commands, a module for each command."""

from penstock.cli.app import main

__all__ = ["main"]
