"""Checks of a run's settings and application, before anything is created or started."""

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.api.guarantees import require_guarantee
from penstock.model.cluster import Cluster, check_pins
from penstock.model.errors import InvalidInput, PenstockError, with_type
from penstock.model.files import make_folder
from penstock.model.limits import update_limits
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.session import running_session
from penstock.policies.streams import check
from penstock.runtime.config import MIN_INTERVAL_S, RunConfig
from penstock.runtime.layout import Layout
from penstock.runtime.spark.closures import pack
from penstock.runtime.spark.executors import is_local_master
from penstock.runtime.storage.run_folder import refuse_unwritable
from penstock.startup.executor_discovery import discover


def checked(config: RunConfig, flow: Dataflow, emulated: Cluster | None, runs: Path) -> RunConfig:
    """Return settings with absolute folders; refuse those that this application or this host cannot have."""
    execution, telemetry = config.execution, config.telemetry
    if 0 < config.checkpointing.interval_s < MIN_INTERVAL_S:
        problem = f"expected at least {MIN_INTERVAL_S} s, or 0 for one checkpoint at the end"
        raise InvalidInput("checkpointing.interval_s", f"{problem}, got {config.checkpointing.interval_s:g}")
    for name, place in (("telemetry", telemetry.folder), ("runs", runs), ("share", execution.share)):
        if place is not None:
            refuse_unwritable(Path(place), name)
    refuse_share(execution.share, emulated, execution.master or "local")
    require_guarantee(flow, config.checkpointing.guarantee)
    _refuse_tuple_policies(config.tuple_policies, flow)
    return replace(
        config,
        execution=replace(execution, share=_absolute(execution.share)),
        telemetry=replace(telemetry, folder=_absolute(telemetry.folder)),
        limits=update_limits({}, config.limits, flow.application),
    )


def _absolute(folder: str | None) -> str | None:
    return None if folder is None else str(Path(folder).absolute())


def _refuse_tuple_policies(tuples: TuplePolicies, flow: Dataflow) -> None:
    """Refuse tuple policies that are unknown, or that no stream of an application can have."""
    if tuples.slot_ms is not None and not tuples.named:
        problem = f"no policy is in force that decides once per slot, got {tuples.slot_ms:g}"
        raise InvalidInput("tuple_policies.slot_ms", f"{problem}; set routing or sending")
    check(tuples, flow.application)


def refuse_share(share: str | None, emulate: Cluster | None, master: str) -> None:
    """Refuse to share machines that are not emulated or may be on other hosts; make the folder if it is missing."""
    if share is None:
        return
    if emulate is None:
        raise InvalidInput(
            "execution.share", f"expected emulate beside it, got {share!r} alone; only emulated machines are shared"
        )
    if not master.startswith("local"):
        problem = f"expected an embedded session, as workers share a file on this host, got master {master!r}"
        raise InvalidInput("execution.share", f"{problem}; leave out share or master")
    make_folder(Path(share), "choose another folder to share")


def address(text: str) -> tuple[str, int]:
    """Return the host and port of `HOST` or `HOST:PORT`; port 0 is any."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "0"
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("execution.listen", f"expected HOST or HOST:PORT, got {text!r}")
    return host, int(port)


def known_cluster(emulate: Cluster | None, master: str | None, slots: int | None) -> Cluster | None:
    """Return the machines of a run, if they can be known before Spark starts: emulated ones, or this host."""
    if emulate is not None:
        return emulate
    running = running_session()
    url = str(running.sparkContext.master) if running is not None else master or "local"
    return discover((), True, slots) if is_local_master(url) else None


def refuse_pins(flow: Dataflow, cluster: Cluster | None, emulated: bool) -> None:
    """Refuse tasks that are pinned to machines which a run is known not to have."""
    if cluster is None:
        return
    try:
        check_pins(flow.application, cluster)
    except InvalidInput as error:
        if emulated:
            raise
        remedy = "this host is its only machine; emulate a cluster that has the other, or remove the pin"
        raise type(error)(error.path, f"{error.problem}; {remedy}") from None


def check_travels(flow: Dataflow) -> None:
    """Refuse code that no worker could receive."""
    Layout(flow)
    pack(partial(_nothing, flow))


def _nothing(_: Dataflow) -> None:
    """Stand in for what a worker does."""


def check_parts(flow: Dataflow) -> None:
    """Have every source and sink say now whether it could run, that of skipped tuples included."""
    for name, part in flow.parts.items():
        for made in (part.make(), None if part.letters is None else part.letters()):
            if isinstance(made, Sink) and made.exactly_once and type(made).snapshot is Sink.snapshot:
                problem = f"{type(made).__name__} says exactly_once but has no snapshot"
                raise InvalidInput(name, f"{problem}; give it one that says which file is next, and restore")
            check = getattr(made, "check", None)
            if check is not None:
                try:
                    check()
                except InvalidInput as error:
                    raise error.below(name) from None
                except (PenstockError, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    raise InvalidInput(name, f"its check raised {with_type(error)}") from error
