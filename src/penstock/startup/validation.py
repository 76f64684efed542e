"""What may be asked of the start of a run: everything is looked at before anything is made or started."""

import math
from functools import partial
from pathlib import Path

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster, check_pins
from penstock.model.errors import FileProblem, InvalidInput

SHORTEST_S = 0.1  # between checkpoints; saving one takes some hundredths


def refuse_below_one(**counts: int | None) -> None:
    """Refuse counts that are none."""
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise InvalidInput(name, f"expected a whole number ≥ 1, got {count!r}")


def refuse_seconds(checkpoint_s: float | None) -> None:
    """Refuse a time between checkpoints that is none, or too short to be kept."""
    if checkpoint_s is None:
        return
    seconds = math.nan if isinstance(checkpoint_s, bool) or not isinstance(checkpoint_s, int | float) else checkpoint_s
    if seconds != 0 and not SHORTEST_S <= seconds < math.inf:
        problem = f"expected 0 or seconds ≥ {SHORTEST_S}, got {checkpoint_s!r}"
        raise InvalidInput("checkpoint_s", f"{problem}; 5 is usual, and 0 makes only one, at the end")


def refuse_umask(umask: int | None) -> None:
    """Refuse a umask that is none, or that would keep the owner out."""
    if umask is None:
        return
    if isinstance(umask, bool) or not isinstance(umask, int) or not 0 <= umask <= 0o077:
        shown = f"{umask:03o}" if isinstance(umask, int) else repr(umask)
        raise InvalidInput("umask", f"expected 000 to 077 (octal), got {shown}; 077 is for the owner alone")


def refuse_restarts(restarts: int | None, window_s: float | None) -> None:
    """Refuse a restart limit that is none."""
    if restarts is not None and (isinstance(restarts, bool) or not isinstance(restarts, int) or restarts < 0):
        raise InvalidInput("restarts", f"expected a whole number ≥ 0, got {restarts!r}; 10 is usual")
    seconds = 1.0 if window_s is None else window_s
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidInput("restart_window_s", f"expected seconds > 0, got {window_s!r}; 600 is usual")


def refuse_unwritable(**folders: Path | str | bool | None) -> None:
    """Refuse folders in which nothing could be written."""
    from penstock.runtime.storage import run_folder as folder

    for name, place in folders.items():
        if isinstance(place, Path | str):
            folder.refuse_unwritable(Path(place), name)


def refuse_share(share: str | None, emulate: Cluster | None, master: str) -> None:
    """Refuse to share machines that are not emulated or may be on other hosts; make the folder where it is missing."""
    if share is None:
        return
    if emulate is None:
        raise InvalidInput(
            "share", f"expected emulate beside it, got {share!r} alone; only emulated machines are shared"
        )
    if not master.startswith("local"):
        problem = f"expected an embedded session, as workers share a file on this host, got master {master!r}"
        raise InvalidInput("share", f"{problem}; leave out share or master")
    try:
        Path(share).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise FileProblem(f"{share}: cannot be made, {why}; choose another folder to share") from None


def refuse_changed(**settings: object) -> None:
    """Refuse settings that a run which is resumed cannot change."""
    for name, value in settings.items():
        if value is not None:
            raise InvalidInput(name, "a run that is resumed keeps what it had, leave it out; or start a new run")


def address(text: str) -> tuple[str, int]:
    """Return the host and port of `HOST` or `HOST:PORT`; port 0 is any."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "0"
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("listen", f"expected HOST or HOST:PORT, got {text!r}")
    return host, int(port)


def known_cluster(emulate: Cluster | None, master: str | None, slots: int | None) -> Cluster | None:
    """Return the machines of a run, if they can be known before Spark starts: emulated ones, or this host."""
    from penstock.pipeline.session import running_session
    from penstock.runtime.spark.executors import is_local_master
    from penstock.startup.executor_discovery import discover

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
    from penstock.runtime.layout import Layout
    from penstock.runtime.spark.closures import pack

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
