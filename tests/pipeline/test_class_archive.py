"""The class archive: sessions start with one, without one, and with one that Java cannot use."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from penstock.pipeline import class_archive
from penstock.pipeline.class_archive import RECORD, archive_path, java_options, record_classes

JAVA = os.environ["PENSTOCK_TESTS_JAVA"]
BANNER = 'openjdk version "17.0.1" 2021-10-19'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with a space in its name, and a Java."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.delenv(RECORD, raising=False)
    monkeypatch.setattr(class_archive, "java_banner", lambda: BANNER)
    return tmp_path / "a cache"


def make_archive(content: bytes = b"not an archive") -> Path:
    path = archive_path()
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_without_an_archive_java_has_no_options() -> None:
    assert java_options() == ""


def test_an_archive_belongs_to_a_version_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_archive()
    assert f"-XX:SharedArchiveFile={path}" in shlex.split(java_options())
    monkeypatch.setattr(class_archive, "java_banner", lambda: BANNER.replace("17.0.1", "21.0.1"))
    assert java_options() == ""


@pytest.mark.spark
@pytest.mark.parametrize("content", [b"", b"not an archive" * 1000])
def test_java_ignores_an_archive_that_it_cannot_use(content: bytes) -> None:
    make_archive(content)
    done = subprocess.run([JAVA, *shlex.split(java_options()), "-version"], capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.spark
def test_java_writes_the_archive_that_it_then_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_archive()
    path.unlink()
    monkeypatch.setenv(RECORD, str(path))
    subprocess.run([JAVA, *shlex.split(java_options()), "-version"], capture_output=True, check=True)
    monkeypatch.delenv(RECORD)
    options = [*shlex.split(java_options()), "-Xshare:on"]  # fail if the archive cannot be used
    subprocess.run([JAVA, *options, "-version"], capture_output=True, check=True)


def test_a_new_archive_replaces_that_of_another_java(monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_archive()
    monkeypatch.setattr(class_archive, "java_banner", lambda: "another java")

    def write(command: list[str], *, env: dict[str, str], **_: object) -> None:
        Path(env[RECORD]).write_bytes(b"classes")

    monkeypatch.setattr(class_archive, "run", write)
    made = record_classes()
    assert made is not None
    assert made == archive_path()
    assert made.read_bytes() == b"classes"
    assert list(old.parent.iterdir()) == [made]


def test_a_command_that_fails_leaves_no_archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "run", lambda *_, **__: None)
    assert record_classes() is None
    assert not list((cache / "penstock").iterdir())
