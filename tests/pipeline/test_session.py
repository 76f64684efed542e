"""What a session rejects before it starts a JVM."""

import socket
from pathlib import Path

import pytest

from penstock.model.errors import FileProblem
from penstock.pipeline.session import NoSpark, session


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: no answer, and no other process gets the port
        where = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(NoSpark) as refused, session("tests", f"spark://{where}"):
            pass
    assert f"'spark://{where}' does not answer, no connection to {where}" in str(refused.value)


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(FileProblem, match="cannot be created") as refused,
        session("tests", folder=tmp_path / "file" / "x"),
    ):
        pass
    assert str(tmp_path / "file" / "x") in str(refused.value)
