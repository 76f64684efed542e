"""The application that a user names to be run: a built-in one, or an object of the user's own module."""

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidInput, PenstockError, UnknownName, choices

if TYPE_CHECKING:
    from penstock.api.dataflow import Dataflow
    from penstock.api.sources.pace import Arrivals

SETTINGS = ("rate", "arrivals", "input")  # the options that a user's function may take


def flow_names(incomplete: str) -> list[str]:
    """Complete the name of a built-in application that has code."""
    from penstock.workloads.dataflows import DATAFLOWS

    return [name for name in DATAFLOWS if name.startswith(incomplete)]


def find_flow(
    text: str,
    *,
    rate: float | None = None,
    arrivals: "Arrivals | None" = None,
    input: Path | None = None,  # noqa: A002  it is the option's name
    seed: int = 0,
) -> "Dataflow":
    """Return the dataflow that a text names, its sources set as asked; refuse what it has no setting for.

    The text is a built-in name, with parameters where wanted (`word-count:sources=2`), or `module:object`, a dataflow
    or a function that returns one. Settings are handed to the function as `rate`, `arrivals` and `input`. An
    application that is only described, by name or in a file, runs with operators that pass tuples on as it says.
    """
    given = {name: v for name, v in zip(SETTINGS, (rate, arrivals, input), strict=True) if v is not None}
    name, _, rest = text.partition(":")
    if name in flow_names(name):
        from penstock.workloads.dataflows import dataflow

        return dataflow(text, rate=rate, arrivals=arrivals, input=input, seed=seed)
    if is_described(text):
        return _described(text, given)
    if not rest or "=" in rest:
        raise _unknown(text, name)
    return _own(text, given)


def is_described(text: str) -> bool:
    """Whether a text names an application that is described, in a file or by a built-in name, without code."""
    from penstock.workloads.applications import APPLICATIONS

    return text.endswith((".toml", ".json")) or text.partition(":")[0] in APPLICATIONS


def _described(text: str, given: Mapping[str, Any]) -> "Dataflow":
    """Return a dataflow that behaves as an application is described to."""
    from penstock.cli.inputs import application
    from penstock.workloads.dataflows import any_dataflow

    for option in given:
        if option != "rate":
            problem = f"{text} is only described, its tuples are made up and take no --{option}; leave it out"
            raise InvalidInput(option, problem)
    return any_dataflow(application(text), given.get("rate"))


def arrival_process(spec: str | None, rate: float | None) -> "Arrivals | None":
    """Return the arrival process of a text, its rate given there or apart from it; a recording is looked at."""
    import msgspec

    from penstock.workloads.arrivals import Replay, arrivals

    if spec is None:
        return None
    if rate is not None:
        if re.search(r"[:,]rate=", spec):
            problem = f"expected one rate, got {rate:g} and another in --arrivals {spec}; leave one out"
            raise InvalidInput("rate", problem)
        spec += f"{',' if ':' in spec else ':'}rate={rate!r}"
    process = arrivals(spec)
    if isinstance(process, Replay):
        process = msgspec.structs.replace(process, path=os.path.abspath(process.path))  # workers run elsewhere
        process.trace  # noqa: B018  reading it is the check
    return process


def _unknown(text: str, name: str) -> PenstockError:
    ready = f"there are {', '.join(flow_names(''))}, or module:object for your own"
    if text.endswith(".py"):
        return UnknownName("app", f"expected module:object, got {text!r}; write {Path(text).stem}:NAME")
    return UnknownName("app", f"nothing that can be run is named {name!r}; {ready}")


def _own(text: str, given: Mapping[str, Any]) -> "Dataflow":
    """Return the dataflow that a module of the user's holds or makes."""
    from penstock.api.dataflow import Dataflow

    place, _, name = text.partition(":")
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            flows = [known for known, value in vars(found).items() if isinstance(value, Dataflow)]
            has = f"it has the dataflows {choices(flows)}" if flows else "name a Dataflow or a function that makes one"
            raise UnknownName("app", f"{place!r} has no {name!r}; {has}")
        found = getattr(found, part)
    if isinstance(found, Dataflow):
        if given:
            option = next(iter(given))
            problem = f"{text} is a Dataflow and takes no --{option}; give a function with a parameter {option!r}"
            raise InvalidInput(option, problem)
        return found
    if callable(found):
        _refuse_untaken(text, found, given)
        _refuse_missing(text, found, given)
        found = _called(text, lambda: found(**given))
    if not isinstance(found, Dataflow):
        raise InvalidInput("app", f"expected {text} to be a Dataflow or a function that returns one, got {found!r:.80}")
    return found


def _module(name: str) -> ModuleType:
    """Import a module, from the current directory first."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidInput("app", f"{name!r} cannot be imported, {_told(error)}; install what it needs") from None
        problem = f"no module {name!r} is in {os.getcwd()} or installed"
        raise UnknownName("app", f"{problem}; go to its folder, or choose one of {', '.join(flow_names(''))}") from None
    except PenstockError:
        raise
    except Exception as error:
        raise InvalidInput("app", f"{name!r} cannot be imported, {_told(error)}; mend it there") from error
    except SystemExit:
        raise InvalidInput("app", f"{name!r} exits when it is imported; put that under __main__") from None


def _called(text: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except PenstockError:
        raise
    except Exception as error:
        raise InvalidInput("app", f"{text} failed, {_told(error)}; mend it there") from error


def _refuse_untaken(text: str, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse options that a function has no parameter for."""
    parameters = _parameters(make)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in given:
        if option not in parameters:
            raise InvalidInput(option, f"{text} takes no --{option}; give it a parameter {option!r}, or leave it out")


def _refuse_missing(text: str, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse a function that cannot be called with the options alone."""
    for name, parameter in _parameters(make).items():
        starred = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if starred or parameter.default is not parameter.empty or name in given:
            continue
        remedy = f"give --{name}" if name in SETTINGS else "give it a default"
        raise InvalidInput(name, f"{text} has no default for its parameter {name!r}; {remedy}")


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):  # one that is not written in Python
        return {}


def _told(error: BaseException) -> str:
    """Say in one line what an error of the user's code was, and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if _is_theirs(frame.filename)]
    at = f" ({where[-1]})" if where else ""
    if isinstance(error, SyntaxError) and error.filename:
        at = f" ({Path(error.filename).name}:{error.lineno})"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(text.split())}{at}"


def _is_theirs(filename: str) -> bool:
    return not filename.startswith("<") and Path(filename) != Path(__file__) and "importlib" not in filename
