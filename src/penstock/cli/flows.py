"""The application to run: a built-in one, a description, or an object in the user's code."""

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.api.sources.pace import ArrivalProcess
from penstock.cli.inputs import described, refuse_pins
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput, PenstockError, UnknownName, choices, nearest
from penstock.model.spec import parameter_value
from penstock.model.topology import Application
from penstock.workloads.applications import APPLICATIONS
from penstock.workloads.arrivals import Replay, arrivals
from penstock.workloads.clusters import CLUSTERS, find_cluster
from penstock.workloads.dataflows import DATAFLOWS, any_dataflow, dataflow

SETTINGS = ("rate", "arrivals", "input")  # the options that a user's function may take


def find_flow(
    text: str,
    *,
    rate: float | None = None,
    arrivals: ArrivalProcess | None = None,
    input: Path | None = None,  # noqa: A002  it is the option's name
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
) -> Dataflow:
    """Return the dataflow that a text names, with the settings of its sources; reject settings that it does not have.

    The text is a built-in name, with parameters if any (`word-count:sources=2`), or names code of the user's
    (`names_code`): a dataflow or a function that returns one, `words.py:make:size=3`. The function receives `rate`,
    `arrivals`, `input` and the `parameters`, converted to its annotations. An application that is only described, by
    name or in a file, runs with synthetic operators that follow the description.
    """
    settings = {name: v for name, v in zip(SETTINGS, (rate, arrivals, input), strict=True) if v is not None}
    name = text.partition(":")[0]
    if name in DATAFLOWS:
        return dataflow(with_parameters(text, parameters), rate=rate, arrivals=arrivals, input=input, seed=seed)
    if is_described(text):
        return _described(with_parameters(text, parameters), settings)
    if not names_code(text):
        raise _unknown(name)
    return _load_code(text, settings, parameters or {})


def find_application(text: str, parameters: Mapping[str, Any] | None = None) -> Application:
    """Return the application of a file, a built-in name or the user's code: everything that `run` accepts."""
    if names_code(text):
        return find_flow(text, parameters=parameters).application
    return described(with_parameters(text, parameters))


def both(
    application_text: str, cluster_text: str, parameters: Mapping[str, Any] | None = None
) -> tuple[Application, Cluster]:
    """Return an application and a cluster; reject tasks pinned to machines that the cluster does not have."""
    wanted, machines = find_application(application_text, parameters), find_cluster(cluster_text)
    refuse_pins(application_text, wanted, machines)
    return wanted, machines


def is_described(text: str) -> bool:
    """Return whether a text names a described application: a file or a built-in name, without code."""
    return text.endswith((".toml", ".json")) or text.partition(":")[0] in APPLICATIONS


def names_code(text: str) -> bool:
    """Return whether a text names the user's code: `module:object`, `file.py:object` or `file.py`, with any path."""
    if is_described(text) or text.partition(":")[0] in CLUSTERS:
        return False
    place, _, name = _without_parameters(text)[0].rpartition(":")
    return text.endswith(".py") or bool(place and name and "=" not in name)


def _without_parameters(text: str) -> tuple[str, str]:
    """Split `module:make:size=3,name=x` into the function and its parameters."""
    found = re.fullmatch(r"(.+:[^:=]+):([^:=]+=.*)", text)
    return (text, "") if found is None else (found[1], found[2])


def code_file(text: str) -> tuple[Path | None, str]:
    """Return the file of the code that a text names, None if it names a module, and the rest: `module:object`."""
    text, parameters = _without_parameters(text)
    if parameters:
        file, rest = code_file(text)
        return file, f"{rest}:{parameters}"
    place, _, name = (text, "", "") if text.endswith(".py") else text.rpartition(":")
    if not place.endswith(".py") and "/" not in place:
        return None, text
    path = Path(place if place.endswith(".py") else f"{place}.py")
    return path, f"{path.stem}:{name}"


def with_parameters(text: str, parameters: Mapping[str, Any] | None) -> str:
    """Return the text of an application with parameters appended in its syntax."""
    if not parameters:
        return text
    for name, value in parameters.items():
        if isinstance(value, list | dict) or "," in str(value):
            raise InvalidInput("set", f"expected a plain value of {name!r} without commas, got {value!r}")
    if text.endswith((".toml", ".json")):
        option = next(iter(parameters))
        raise InvalidInput("set", f"{text} describes an application and has no parameter {option!r}; leave it out")
    named = ",".join(f"{name}={_written(value)}" for name, value in parameters.items())
    extends = bool(_without_parameters(text)[1]) if names_code(text) else ":" in text
    return f"{text}{',' if extends else ':'}{named}"


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _described(text: str, settings: Mapping[str, Any]) -> Dataflow:
    """Return a synthetic dataflow for a described application."""
    for option in settings:
        if option != "rate":
            problem = f"{text} is only described, its tuples are made up and take no --{option}; leave it out"
            raise InvalidInput(option, problem)
    return any_dataflow(described(text), settings.get("rate"))


def arrival_process(spec: str | None, rate: float | None) -> ArrivalProcess | None:
    """Return the arrival process of a text or of a text and a rate; a recording is read to check it."""
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


def _unknown(name: str) -> PenstockError:
    own = "or name your own code as module:object or file.py:object"
    return UnknownName("app", f"nothing that can be run is named {name!r}; {nearest(name, DATAFLOWS)} {own}")


def _load_code(text: str, settings: Mapping[str, Any], parameters: Mapping[str, Any]) -> Dataflow:
    """Return the dataflow of the user's code: an object, or the result of a function."""
    text, more = _without_parameters(text)
    parameters = {**dict(each.partition("=")[::2] for each in filter(None, more.split(","))), **parameters}
    file, named = code_file(text)
    place, _, name = named.partition(":")
    module = _module(place) if file is None else _file(file)
    found: Any = _named(text, module, name) if name else _only(text, module)
    if isinstance(found, Dataflow):
        if option := next(iter([*settings, *parameters]), None):
            how = f"--{option}" if option in settings else f"parameter {option!r}"
            problem = f"{text} is a Dataflow and takes no {how}; name a function with a parameter {option!r}"
            raise InvalidInput(option, problem)
        return found
    if callable(found):
        arguments = _bind_arguments(text, found, settings, parameters)
        function = found
        found = _call(text, lambda: function(**arguments))
    if not isinstance(found, Dataflow):
        raise InvalidInput("app", f"expected {text} to be a Dataflow or a function that returns one, got {found!r:.80}")
    return found


def _named(text: str, module: ModuleType, name: str) -> Any:
    """Return the object of a module with a name, which may contain dots."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            flows = _flows(found)
            has = f"it has the dataflows {choices(flows)}" if flows else "name a Dataflow or a function that makes one"
            close = nearest(part, [each for each in vars(found) if not each.startswith("_")])
            remedy = close if close.startswith("did") else has
            raise UnknownName("app", f"{text.rpartition(':')[0]!r} has no {name!r}; {remedy}")
        found = getattr(found, part)
    return found


def _only(text: str, module: ModuleType) -> Any:
    """Return the only dataflow of a file that is named without an object."""
    flows = _flows(module)
    if len(flows) == 1:
        return getattr(module, flows[0])
    has = f"it has the dataflows {choices(flows)}" if flows else "it has no Dataflow"
    example = flows[0] if flows else "FUNCTION"
    what = "one of them" if flows else "a function that makes one"
    raise InvalidInput("app", f"expected {text}:NAME, got {text!r}, {has}; name {what}, {text}:{example}")


def _flows(module: Any) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Dataflow)]


def _file(path: Path) -> ModuleType:
    """Import a file as the module of its name, by which workers import it too."""
    if not path.is_file():
        there = [each.name for each in path.parent.glob("*.py")]
        close = nearest(path.name, there) if there else "there is no such file"
        raise UnknownName("app", f"{path} cannot be read; {close}")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _module(path.stem)
    if getattr(module, "__file__", None) is None or not path.samefile(str(module.__file__)):
        problem = f"{path} has the name of another module, {getattr(module, '__file__', None) or path.stem}"
        raise InvalidInput("app", f"{problem}; rename the file")
    return module


def _module(name: str) -> ModuleType:
    """Import a module, from the current directory first."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidInput(
                "app", f"{name!r} cannot be imported, {_describe_error(error)}; install what it needs"
            ) from None
        problem = f"no module {name!r} is in {os.getcwd()} or installed"
        raise UnknownName("app", f"{problem}; name its file, or choose one of {', '.join(DATAFLOWS)}") from None
    except PenstockError:
        raise
    except Exception as error:
        raise InvalidInput("app", f"{name!r} cannot be imported, {_describe_error(error)}; fix it there") from error
    except SystemExit:
        raise InvalidInput("app", f"{name!r} exits when it is imported; put that under __main__") from None


def _call(text: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except PenstockError:
        raise
    except Exception as error:
        raise InvalidInput("app", f"{text} failed, {_describe_error(error)}; fix it there") from error


def _bind_arguments(
    text: str, make: Callable[..., Any], settings: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a function; reject unknown ones, and parameters without a value."""
    known = _parameters(make)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for option in settings:
        if option in parameters:
            raise InvalidInput("set", f"expected one {option}, got --{option} and --set {option}=…; leave one out")
        if option not in known and not takes_any:
            raise InvalidInput(option, f"{text} takes no --{option}; give it a parameter {option!r}, or leave it out")
    for name in parameters:
        if name not in known and not takes_any:
            there = nearest(name, known) if known else "it has none"
            raise UnknownName("set", f"{text} has no parameter {name!r}; {there}")
    arguments = dict(settings)
    hints = _hints(make)
    for name, value in parameters.items():
        arguments[name] = parameter_value(f"set.{name}", value, hints.get(name, _default_type(known.get(name))))
    for name, parameter in known.items():
        starred = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if not starred and parameter.default is parameter.empty and name not in arguments:
            remedy = f"give --{name}" if name in SETTINGS else f"give --set {name}=VALUE"
            raise InvalidInput(name, f"{text} has no default for its parameter {name!r}; {remedy}")
    return arguments


def _default_type(parameter: inspect.Parameter | None) -> Any:
    """Return the type that a parameter without annotation takes: that of its default, if this is a plain value."""
    kind = None if parameter is None else type(parameter.default)
    return kind if kind in (bool, int, float, str) else Any


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(make, include_extras=True)
    except Exception:  # annotations may name imports for type checkers
        return {}


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):  # it is not written in Python
        return {}


def _describe_error(error: BaseException) -> str:
    """Describe an error of the user's code and its line, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if _is_theirs(frame.filename)]
    at = f" ({where[-1]})" if where else ""
    if isinstance(error, SyntaxError) and error.filename:
        at = f" ({Path(error.filename).name}:{error.lineno})"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(text.split())}{at}"


def _is_theirs(filename: str) -> bool:
    return not filename.startswith("<") and Path(filename) != Path(__file__) and "importlib" not in filename
