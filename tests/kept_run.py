"""Run folders with real checkpoints, as a driver that died leaves them."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

import penstock as ps
from penstock.model.tuples import TuplePolicies
from penstock.runtime.layout import Layout
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import CheckpointManifest, Journal, SavedTask, TaskState
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import RunInfo, create
from tests.runtime.words import words
from tests.settings import config

DISK = Posix()
STATE = {"count[0]": {"the": 7, "a": 3}, "lines[0]": {"count": 40}}


def kept_run(runs: Path, flow: ps.Dataflow | None = None, **settings: Any) -> RunInfo:
    """Return a run that was started and has no checkpoint yet."""
    settings = {"app": "tests.runtime.words:words", "rate_tps": 10.0, **settings}
    return create((flow or words()).name, runs, policy="round-robin", config=config(**settings))


def place(info: RunInfo) -> str:
    """Return the folder of its checkpoints."""
    return str(info.checkpoints_path.absolute())


def keep_checkpoint(
    info: RunInfo,
    number: int,
    flow: ps.Dataflow | None = None,
    states: Mapping[str, Any] = STATE,
    pending: Mapping[str, tuple[tuple[str, str], ...]] | None = None,
    published: bool = True,
    **changes: Any,
) -> CheckpointManifest:
    """Write a checkpoint, all of it by one worker, in epoch 3."""
    flow = flow or words()
    names = Layout(flow).names
    body, tasks = b"", []
    for task, name in enumerate(names):
        logic = msgspec.msgpack.encode(states.get(name))
        data = b"".join(checkpoints.pack_state(TaskState(False, 10 * task, (), (), (), len(logic)), [logic]))
        position = msgspec.json.encode(states.get(name)).decode() if name.startswith("lines") else ""
        figures = (len(body), len(data), crc32(data), False, 40 if position else 10 * task)
        tasks.append(SavedTask(name, "w0.e3", *figures, position, (pending or {}).get(name, ())))
        body += data
    DISK.write(f"{checkpoints.folder_of(place(info), number)}/w0.e3", [body])
    slots = {name: f"local/{task % 2}" for task, name in enumerate(names)}
    made = CheckpointManifest(
        run=info.run,
        number=number,
        epoch=3,
        at=time.time(),
        seconds=0.045,
        version="0.1",
        shape=checkpoints.shape_of(flow),
        placement=slots,
        files={"w0.e3": len(body)},
        tasks=tuple(tasks),
    )
    manifest = msgspec.structs.replace(made, **changes)
    checkpoints.write_manifest(DISK, place(info), manifest)
    if published:
        checkpoints.publish(DISK, place(info), manifest)
    return manifest


def keep_journal(
    info: RunInfo,
    epoch: int,
    placement: dict[str, str],
    policy: str = "t-storm",
    routing: str = "",
    limits: dict[str, float] | None = None,
) -> None:
    """Write the journal for the next driver."""
    journal = Journal(epoch, placement, policy, TuplePolicies(routing=routing), limits or {})
    checkpoints.write_journal(DISK, place(info), journal)


def damage(info: RunInfo, number: int, file: str = "w0.e3") -> Path:
    """Change one byte of a file of a checkpoint."""
    path = Path(checkpoints.folder_of(place(info), number), file)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    return path
