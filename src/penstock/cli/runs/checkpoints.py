"""`penstock runs checkpoints`: list the checkpoints of a run, or inspect one."""

from collections.abc import Iterator
from contextlib import suppress
from os.path import join
from pathlib import Path
from time import time
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from penstock.cli.formatting import plural
from penstock.cli.inputs import JsonOption, RunArgument, RunsOption
from penstock.cli.output import console, duration, print_json, print_line, size, table
from penstock.cli.run_view import age
from penstock.model.decoding import Undecodable, decode_msgpack
from penstock.model.errors import FileProblem, PenstockError, UnknownName, choices, nearest
from penstock.model.status import Status
from penstock.runtime.control_socket import GetStatus, ask
from penstock.runtime.storage import checkpoints as kept
from penstock.runtime.storage.checkpoints import CheckpointManifest, SavedTask, load_manifest, numbers
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.key_groups import read_states
from penstock.runtime.storage.run_folder import NoRun, RunInfo, find_run, outcome

SHOWN = 48  # characters of a value
KEY = 24  # characters of a key
MOST = 20  # keys of a state


def checkpoints(
    run: RunArgument = None,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Checkpoint to inspect; default: list all.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Task whose state to show, such as count[0]; default checkpoint: the latest.")
    ] = None,
    most: Annotated[int, typer.Option(help="Maximum keys of a state to show, largest first.", min=1)] = MOST,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List the checkpoints of a run, or inspect one.

    A checkpoint holds the positions of sources, the states of tasks and the files of sinks. It is whole if every state
    in it is what was written. The last two complete ones are kept.

    Example: penstock runs checkpoints word-count-20250131-142501 --task 'count[0]' --most 50
    """
    info = find_run(run, runs)
    if number is None and task is None:
        _list(info, as_json)
    elif task is None:
        _show(info, _read(info, number), as_json)
    else:
        _show_task(info, _read(info, number), task, most, as_json)


class CheckpointRow(NamedTuple):
    """One checkpoint in the list."""

    number: int
    problem: str  # empty: it is intact
    manifest: CheckpointManifest | None  # None: it cannot be read
    published: bool


def _list(info: RunInfo, as_json: bool) -> None:
    status = _running_status(info)
    saving = None if status is None else status.saving
    rows = _rows(info)
    incomplete = sorted({*_incomplete(info), *([] if saving is None else [saving.number])})
    if as_json:
        facts = {"checkpoints": [_row_facts(row) for row in rows], "incomplete": incomplete, "in_progress": saving}
        print_json({"run": info.run, **facts})
        return
    if not rows:
        print_line(f"run {info.run} has no complete checkpoint")
    else:
        console.print(_table(rows))
    for number in incomplete:
        print_line(f"{number} {_why_incomplete(number, status)}", "dim")
    for row in rows:
        if row.problem:
            print_line(f"{row.number} is damaged: {row.problem}", "red")


def _rows(info: RunInfo) -> list[CheckpointRow]:
    """Return all checkpoints that have a manifest, the latest first."""
    disk, folder = Posix(), str(info.checkpoints_path)
    rows = []
    for number in kept.numbers(disk, folder):
        manifest, problem = None, ""
        try:
            manifest = kept.load_manifest(disk, folder, number)
            kept.verify(disk, folder, manifest)
        except FileNotFoundError:  # deleted in the meantime
            continue
        except (PenstockError, OSError) as error:
            problem = str(error)
            if not (info.checkpoints_path / f"{number:06}" / kept.MANIFEST).exists():
                continue
        published = kept.PUBLISHED in disk.listed(kept.folder_of(folder, number))
        rows.append(CheckpointRow(number, problem, manifest, published))
    return rows


def _incomplete(info: RunInfo) -> list[int]:
    """Return the checkpoints without a manifest that are later than all others."""
    disk, folder = Posix(), str(info.checkpoints_path)
    last = max(numbers(disk, folder), default=0)
    return [int(name) for name in disk.listed(folder) if name.isdecimal() and int(name) > last]


def _running_status(info: RunInfo) -> Status | None:
    """Return the status of a run; None: it has ended, or does not answer."""
    if outcome(info)[0]:
        return None
    with suppress(PenstockError):
        return ask(info, GetStatus())
    return None


def _why_incomplete(number: int, status: Status | None) -> str:
    """Describe a checkpoint without a manifest."""
    if status is None:
        return "was not completed"
    saving = status.saving
    if saving is not None and saving.number == number:
        return f"is in progress, {age(saving.age_s)} so far: it {saving.cause}"
    return "was aborted; the warnings of penstock status and run.log say why"


def _row_facts(row: CheckpointRow) -> dict[str, Any]:
    facts: dict[str, Any] = {"number": row.number, "whole": not row.problem, "problem": row.problem}
    return facts | {"published": row.published} | ({} if row.manifest is None else _facts(row.manifest))


def _facts(manifest: CheckpointManifest) -> dict[str, Any]:
    return {
        "at": manifest.at,
        "age_s": time() - manifest.at,
        "bytes": manifest.size,
        "seconds": manifest.seconds,
        "tasks": len(manifest.tasks),
        "epoch": manifest.epoch,
        "version": manifest.version,
        "last": manifest.last,
    }


def _table(rows: list[CheckpointRow]) -> Table:
    made = table("checkpoint", "age", "size", "took", "tasks", "epoch", "published", "", left=("published", ""))
    for row in rows:
        manifest = row.manifest
        if manifest is None:
            made.add_row(str(row.number), "-", "-", "-", "-", "-", "yes" if row.published else "no", "[red]damaged[/]")
            continue
        cells = [age(time() - manifest.at), size(manifest.size), duration(manifest.seconds), str(len(manifest.tasks))]
        state = "[red]damaged[/]" if row.problem else "whole, the last" if manifest.last else "whole"
        made.add_row(str(row.number), *cells, str(manifest.epoch), "yes" if row.published else "not yet", state)
    return made


def _read(info: RunInfo, number: int | None) -> CheckpointManifest:
    """Return a checkpoint, default: the latest; reject a missing or unreadable one."""
    disk, folder = Posix(), str(info.checkpoints_path)
    there = numbers(disk, folder)
    if not there:
        raise NoRun(f"run {info.run} has no complete checkpoint; penstock status {info.called} shows one in progress")
    if number is not None and number not in there:
        raise UnknownName("checkpoint", f"run {info.run} has none with number {number}; there are {choices(there)}")
    return load_manifest(disk, folder, there[0] if number is None else number)


def _show(info: RunInfo, manifest: CheckpointManifest, as_json: bool) -> None:
    (row,) = [row for row in _rows(info) if row.number == manifest.number] or [
        CheckpointRow(manifest.number, "", manifest, True)
    ]
    if as_json:
        print_json({"run": info.run, **_row_facts(row), "placement": manifest.placement, "states": manifest.tasks})
        return
    print_line(_headline(info, row, manifest))
    console.print()
    made = table("task", "on", "state", "tuples", "", left=("on", ""))
    for task in manifest.tasks:
        slot = manifest.placement.get(task.task, "-")
        made.add_row(
            escape(task.task), escape(slot), size(task.size), f"{task.counted:,}", escape(_about(task, row.published))
        )
    console.print(made)
    positions = [(task.task, task.position) for task in manifest.tasks if task.position]
    if positions:
        console.print()
    for name, position in positions:  # one unbroken line each, so that it can be copied
        print_line(f"{name} is at {position}")
    if manifest.pending:
        console.print()
    for temporary, final in manifest.pending:
        line = f"published {final}" if row.published else f"{Path(temporary).name} becomes {final}"
        print_line(line)
    if row.problem:
        print_line(f"damaged: {row.problem}", "red")


def _headline(info: RunInfo, row: CheckpointRow, manifest: CheckpointManifest) -> str:
    whole = "damaged" if row.problem else "whole"
    text = f"checkpoint {manifest.number} of {info.run}: {whole}, {'published' if row.published else 'not published'}"
    text += f", {size(manifest.size)} in {duration(manifest.seconds)}, {age(time() - manifest.at)} ago"
    text += f", epoch {manifest.epoch}, Penstock {manifest.version}"
    return text + (", the last one" if manifest.last else "")


def _about(task: SavedTask, published: bool) -> str:
    """Describe a task: whether its source had ended, the files of its sink."""
    parts = ["at its end"] if task.ended else []
    files = f"{plural(len(task.pending), 'file')} {'published' if published else 'to be published'}"
    parts += [files] if task.pending else []
    if task.earlier:
        parts.append(f"{size(sum(part.size for part in task.earlier))} in {plural(len(task.earlier), 'earlier file')}")
    return ", ".join(parts)


def _show_task(info: RunInfo, manifest: CheckpointManifest, task: str, most: int, as_json: bool) -> None:
    """Show a task's state, decoded without its types."""
    saved, state = _state(info, manifest, task)
    keyed = isinstance(state, dict)
    items = sorted(_items(state), key=lambda item: -item[2]) if keyed else list(_items(state))
    if as_json:
        shown = [{"key": key, "value": value, "bytes": amount} for key, value, amount in _plain(items[:most])]
        record = {"run": info.run, "checkpoint": manifest.number, "task": task, "bytes": saved.size}
        print_json(record | {"items": len(items), "first": shown})
        return
    what = plural(len(items), "key" if keyed else "item")
    head = f"{task} in checkpoint {manifest.number}: {size(saved.size)}, {saved.counted:,} tuples"
    print_line(f"{head}, {what}" if isinstance(state, dict | list) else head)
    if not isinstance(state, dict | list):
        print_line(f"state: {_short(state)}" if state is not None else "no state")
        return
    made = table("key" if keyed else "item", "bytes", "value", left=("value",))
    for key, value, amount in items[:most]:
        made.add_row(escape(_short(key, KEY)), f"{amount:,}", escape(_short(value)))
    console.print(made)
    if len(items) > most:
        console.print(f"[dim]{len(items) - most:,} more; show them with --most {len(items)}[/]")


def _state(info: RunInfo, manifest: CheckpointManifest, task: str) -> tuple[SavedTask, Any]:
    """Return a task of a checkpoint and the state of its logic."""
    names = {saved.task: saved for saved in manifest.tasks}
    if task not in names:
        raise UnknownName("task", f"checkpoint {manifest.number} has no {task!r}; {nearest(task, names)}")
    saved = names[task]
    path = join(kept.folder_of(str(info.checkpoints_path), manifest.number), saved.file)
    try:
        _, logic = kept.unpack_state(kept.read(Posix(), path, saved.offset, saved.size, saved.checksum), path)
        if task.rpartition("[")[0] not in manifest.shape.keyed:
            return saved, decode_msgpack(logic) if logic else None
        earlier = [kept.read_part(Posix(), str(info.checkpoints_path), part) for part in saved.earlier]
        return saved, read_states([*(kept.unpack_state(data, path)[1] for data in earlier), logic], path)
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}") from None
    except Undecodable as error:
        raise FileProblem(f"{path}: the state of {task} is not MessagePack, {error}") from None


def _items(state: Any) -> Iterator[tuple[Any, Any, int]]:
    """Return the keys of a state, or the positions of a list, each with its value and its size in bytes."""
    pairs = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    for key, value in pairs:
        yield key, value, len(msgspec.msgpack.encode(value))


def _plain(items: list[tuple[Any, Any, int]]) -> Iterator[tuple[Any, Any, int]]:
    """Replace values that JSON cannot represent by their `repr`."""
    for key, value, amount in items:
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError):
            value = repr(value)
        yield key, value, amount


def _short(value: Any, most: int = SHOWN) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
