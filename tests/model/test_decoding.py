"""Untrusted bytes: decoding them raises one declared error, whatever they contain."""

import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pytest

from penstock.admission import BookFile
from penstock.admission.reconciler.state import ReconcilerState, read_state, state_file
from penstock.api.sources.split_log import SplitLog
from penstock.autopilot import ledger
from penstock.estimate.latency_models import load_models
from penstock.model.decoding import Undecodable, decode_msgpack, json_decoder, json_lines_decoder, msgpack_decoder
from penstock.model.errors import PenstockError
from penstock.model.files import load_any, load_costs
from penstock.pipeline.manifest import Manifest as TableManifest
from penstock.pipeline.manifest import read_manifest as read_table_manifest
from penstock.runtime import control_socket as socket
from penstock.runtime.protocol import controller_messages, encode, frames, transport, worker_messages
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage import run_folder as folder
from penstock.runtime.storage.disk import Posix
from penstock.workloads.running.counts import latest_counts
from tests import ROOT

SOURCE = ROOT / "src" / "penstock"
BAD_TEXT = bytes.fromhex("970a03a1ff0000c40100c2")  # a hello whose run's name is not UTF-8
DEEP = 100_000  # levels

MSGPACK: dict[str, Callable[[bytes], Any]] = {
    "command": controller_messages.decode_command,
    "frame": frames.decode_frame,
    "greeting": transport.decode_greeting,
    "worker message": worker_messages.decode_worker_message,
    "task state": msgpack_decoder(checkpoints.TaskState),
    "anything": msgpack_decoder(),
    "position": msgpack_decoder(strict=False),
    "batch": msgpack_decoder(list[dict[str, Any]]),
}
JSON: dict[str, Callable[[bytes], Any]] = {
    "request": json_decoder(socket.AnyRequest),
    "answer": json_decoder(socket.Answer),
    "run": json_decoder(folder.RunInfo),
    "manifest": json_decoder(checkpoints.CheckpointManifest),
    "journal": json_decoder(checkpoints.Journal),
    "operator": json_decoder(ReconcilerState),
    "ledger": json_decoder(ledger.Line),
    "tables": json_decoder(TableManifest),
    "lines": json_lines_decoder(dict[str, int]),
    "anything": json_decoder(),
}
VALID = [
    encode(transport.Hello(transport.PROTOCOL, "run", 3, 7, b"n" * 16)),
    encode(worker_messages.Register("w0", "127.0.0.1", 4711, 12)),
    encode(worker_messages.Failure(1, "split", 0, "'x'", "ValueError: no", "Traceback")),
    encode(controller_messages.PerformMove(1, 2, 3, "m0/0")),
    encode(frames.Data(1, 0, 0, 1, 0, 1, 0.5, b"\x91\xa1x", (frames.Mark(0, 1, 2, 3, 0.5),))),
    encode([{"a": "b", "c": [1, 2.5, None, "d"]}]),
]
VALID_JSON = [
    b'{"type": "move", "task": "split[0]", "slot": "m0/0"}',
    b'{"run": "r", "application": "a", "master": "", "emulated": null, "policy": "p", "started": "2025-01-01T00:00:00Z", "pid": 1, "version": "1"}',  # noqa: E501
    b'{"epoch": 1, "placement": {"in[0]": "m0/0"}, "limits": {"in": 5.0}}',
    b'{"a": [1, -2.5e3, "\\u00e9", null, true], "b": {"c": "d"}}',
]
HOSTILE = [
    BAD_TEXT,
    b"\x91" * DEEP,
    b"\x81\xa1a" * DEEP,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\x81\x80\x00",
]
HOSTILE_JSON = [
    b'{"run": "\xff"}',
    b"[" * DEEP,
    b'{"run": ' * DEEP,
    b'"\\ud800"',
    b"1e999999",
    b"9" * 5000,
    b"\xff\xfe[]",
]


def mutated(random: Random, valid: list[bytes], alphabet: bytes) -> bytes:
    """Return random bytes, or a valid message with some bytes changed, removed, repeated or added."""
    if random.random() < 0.3:
        return bytes(random.choice(alphabet) for _ in range(random.randrange(40)))
    data = bytearray(random.choice(valid))
    for _ in range(random.randrange(1, 5)):
        place = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data[place : place + 1] = bytes([random.choice(alphabet)])
            case 1:
                del data[place : place + random.randrange(1, 4)]
            case 2:
                data[place:place] = data[place : place + random.randrange(1, 12)]
            case _:
                data[place:place] = bytes([random.choice(alphabet)])
    return bytes(data)


@pytest.mark.parametrize("form", ["MessagePack", "JSON"])
def test_decoders_raise_only_one_error(form: str) -> None:
    decoders, valid, hostile = (MSGPACK, VALID, HOSTILE) if form == "MessagePack" else (JSON, VALID_JSON, HOSTILE_JSON)
    common = b"\x91\x92\x97\x81\xa1\xa3\xc4\xd6\xd9\xff\xfe\xcb" if form == "MessagePack" else b'[]{}":,\\u0e-.\xff'
    alphabet = bytes(range(256)) + common * 8
    random, refused = Random(23), 0
    for data in [*hostile, *(mutated(random, valid, alphabet) for _ in range(4000))]:
        for decode in decoders.values():
            try:
                decode(data)
            except Undecodable:
                refused += 1
    assert refused > 1000, "the fuzzing reaches the decoders' refusals"


def test_the_error_has_a_text_and_the_decoders_own_error_as_its_cause() -> None:
    with pytest.raises(Undecodable, match="utf-8") as caught:
        transport.decode_greeting(BAD_TEXT)
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)
    with pytest.raises(Undecodable, match="Expected `int`, got `str`"):
        decode_msgpack(b"\xa1x", int)


def test_no_other_module_decodes_by_itself() -> None:
    own = re.compile(r"\b(msgspec\.(json|msgpack|toml|yaml)\.(decode|Decoder)|json\.loads?\(|tomllib)\b")
    found = [path for path in SOURCE.rglob("*.py") if own.search(path.read_text())]
    assert found == [SOURCE / "model" / "decoding.py"]


def models_file(path: Path, header: bytes) -> None:
    packed = BytesIO()
    np.savez(packed, header=np.frombuffer(header, dtype=np.uint8))
    path.write_bytes(packed.getvalue())


def readers(place: Path) -> dict[Path, Callable[[], object]]:
    """Return each file that is read, with the function that reads it."""
    disk, kept = Posix(), str(place / "checkpoints")
    book = place / "book.json"
    return {
        place / "run.json": lambda: folder.load(place),
        place / "checkpoints" / "journal.json": lambda: checkpoints.read_journal(disk, kept),
        place / "checkpoints" / "000001" / "manifest.json": lambda: checkpoints.load_manifest(disk, kept, 1),
        place / "plan.json": lambda: load_any(place / "plan.json"),
        place / "plan.toml": lambda: load_any(place / "plan.toml"),
        place / "costs.json": lambda: load_costs(place / "costs.json"),
        book: lambda: BookFile(book).load(),
        state_file(book): lambda: read_state(book),
        place / "tables" / "manifest.json": lambda: read_table_manifest(place / "tables"),
        place / "models.npz": lambda: load_models(place / "models.npz"),
    }


@pytest.mark.parametrize(
    "content", [b'{"run": "\xff"}', b"[" * DEEP, b'{"book": ' * DEEP, b"[" * 700 + b"]" * 700, b""]
)
def test_a_file_that_cannot_be_decoded_is_rejected_in_one_line(tmp_path: Path, content: bytes) -> None:
    for path, read in readers(tmp_path).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.name == "000001":  # with its checksum
            text = content + b"\n"
            content_here = text + f"{crc32(text):08x}\n".encode()
        else:
            content_here = content
        path.write_bytes(content_here)
        with pytest.raises(PenstockError) as caught:
            read()
        assert "\n" not in str(caught.value), path


def test_a_model_file_whose_header_is_hostile_is_rejected(tmp_path: Path) -> None:
    for header in (b'{"format": "\xff"}', b"[" * DEEP):
        models_file(tmp_path / "models.npz", header)
        with pytest.raises(PenstockError, match="not a valid file of latency models"):
            load_models(tmp_path / "models.npz")


@pytest.mark.parametrize("line", [b'{"type": "\xff"}', b"[" * DEEP])
def test_incomplete_lines_are_skipped(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "decisions.jsonl").write_bytes(line + b"\n")
    assert len(ledger.read_ledger(tmp_path / "decisions.jsonl").problems) == 1
    log = tmp_path / "split.log"
    log.write_bytes(line + b"\n")
    split = SplitLog(log)
    split.look()
    assert split.next == 0


def test_a_tasks_state_that_cannot_be_decoded_is_a_problem_of_its_file() -> None:
    for head in (BAD_TEXT, b"\x91" * DEEP):
        with pytest.raises(PenstockError, match=r"w0\.e1: not the state of a task"):
            checkpoints.unpack_state(len(head).to_bytes(4, "big") + head, "w0.e1")


def test_counts_that_cannot_be_read_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "part-0.jsonl").write_bytes(b'["\xff", 1]\n')
    with pytest.raises(Undecodable):
        latest_counts(tmp_path)


def test_msgspec_itself_raises_more_than_its_own_errors() -> None:
    """Without this, the tests above could not fail."""
    with pytest.raises(UnicodeDecodeError):
        msgspec.msgpack.Decoder(transport.Greeting).decode(BAD_TEXT)
    with pytest.raises(RecursionError):
        msgspec.msgpack.decode(b"\x91" * DEEP)
