"""Settings of a run in a file, TOML or JSON: a table per section.

[execution]
emulate = "hetero-small"
seed = 7

[checkpointing]
interval_s = 2.0
"""

from pathlib import Path

from penstock.model.errors import InvalidInput
from penstock.model.files import load_table
from penstock.runtime.config import Changes, RunConfig


def load_changes(path: str | Path) -> Changes:
    """Read the settings that a file (.toml, .json) names; refuse those that are unknown or out of bounds."""
    table = load_table(path)
    try:
        RunConfig().changed(table)
    except InvalidInput as error:
        raise type(error)("", f"{path}: {error}") from None
    return table


def load_config(path: str | Path) -> RunConfig:
    """Read the settings of a run from a file (.toml, .json); those that it does not name have their defaults."""
    return RunConfig().changed(load_changes(path))
