"""Shared by the readers: decoding, and errors that name the file and the location in it."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.entity import to_invalid_input
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.files import read_text


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Prefix every `InvalidInput` raised in the block with the file's path."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)("", f"{path}: {error}") from None


def read_json(path: Path, kind: Any) -> Any:
    """Read a JSON file as a type that msgspec knows."""
    try:
        raw = decode_json(read_text(path))
    except Undecodable as error:
        raise FileProblem(f"{path}: not valid JSON, {error}; correct it there") from None
    with naming(path):
        try:
            return msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            raise to_invalid_input(error, raw, kind) from None


def bad_line(path: Path, line: int, problem: str) -> FileProblem:
    """Return the error about a line, counted from 1."""
    return FileProblem(f"{path}: line {line}: {problem}")


def parse_number(path: Path, line: int, field: str, text: str, least: float = -math.inf) -> float:
    """Return the finite number in a field of a line."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < least:
        limit = "" if least == -math.inf else f" ≥ {least:g}"
        raise bad_line(path, line, f"{field}: expected a number{limit}, got {text.strip()[:40]!r}")
    return value


def parse_whole_number(path: Path, line: int, field: str, text: str, least: int = 0) -> int:
    """Return the whole number in a field of a line."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise bad_line(path, line, f"{field}: expected a whole number ≥ {least}, got {text.strip()[:40]!r}")
    return value
