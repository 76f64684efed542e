"""Settings of runs in tests, by the names of their fields alone."""

from typing import Any

from penstock.runtime.config import BY_PATH, RunConfig

PATHS = {path.rpartition(".")[2]: path for path in BY_PATH}
ARGUMENTS = ("emulate", "policy", "plan", "runs", "resume", "callbacks")  # of `ps.run`


def changes(**values: Any) -> dict[str, Any]:
    """Return settings as nested tables, as a file has them."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        section, _, field = PATHS[name].rpartition(".")
        if section:
            found.setdefault(section, {})[field] = value
        else:
            found[field] = value
    return found


def config(**values: Any) -> RunConfig:
    """Return settings, all others by default."""
    return RunConfig().changed(changes(**values))


def arguments(**values: Any) -> dict[str, Any]:
    """Return the arguments of `ps.run`, with all that are settings in its `config`."""
    settings = {name: value for name, value in values.items() if name not in ARGUMENTS}
    return {**{name: values[name] for name in values if name in ARGUMENTS}, "config": changes(**settings)}
