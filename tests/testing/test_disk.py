"""The disk in memory does what a POSIX file system does, and fails as one fails."""

from pathlib import Path

import pytest

from penstock.model.errors import FileProblem
from penstock.runtime.storage.disk import Disk, Posix
from penstock.testing.disk import MemoryDisk, Torn


@pytest.fixture(params=["memory", "posix"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return MemoryDisk() if request.param == "memory" else Posix()


def test_reads_what_was_written_and_a_part_of_it(disk: Disk, tmp_path: Path) -> None:
    disk.write(f"{tmp_path}/a/file", [b"one", b"two"])
    assert disk.read(f"{tmp_path}/a/file") == b"onetwo"
    assert disk.read(f"{tmp_path}/a/file", 3, 2) == b"tw"
    with pytest.raises(FileNotFoundError):
        disk.read(f"{tmp_path}/a/other")


def test_lists_files_and_folders_and_nothing_without_a_folder(disk: Disk, tmp_path: Path) -> None:
    disk.write(f"{tmp_path}/a/b/file", [b""])
    disk.write(f"{tmp_path}/a/file", [b""])
    assert disk.listed(f"{tmp_path}/a") == ["b", "file"]
    assert disk.listed(f"{tmp_path}/none") == []


def test_removes_a_file_or_a_folder_and_what_is_not_there(disk: Disk, tmp_path: Path) -> None:
    disk.write(f"{tmp_path}/a/b/file", [b""])
    disk.write(f"{tmp_path}/a/file", [b""])
    for gone in ("a/file", "a/b", "a/none"):
        disk.remove(f"{tmp_path}/{gone}")
    assert disk.listed(f"{tmp_path}/a") == []


def test_publishes_a_file_once_and_never_over_another(disk: Disk, tmp_path: Path) -> None:
    disk.write(f"{tmp_path}/_a", [b"a"])
    for _ in range(2):
        disk.publish(f"{tmp_path}/_a", f"{tmp_path}/a")
    disk.write(f"{tmp_path}/_b", [b"b"])
    with pytest.raises(FileProblem, match="already exists and differs"):
        disk.publish(f"{tmp_path}/_b", f"{tmp_path}/a")
    with pytest.raises((FileNotFoundError, FileProblem), match="_c"):
        disk.publish(f"{tmp_path}/_c", f"{tmp_path}/c")
    assert disk.read(f"{tmp_path}/a") == b"a"
    assert disk.listed(str(tmp_path)) == ["_b", "a"]


def test_a_full_disk_leaves_a_part_of_a_file_and_the_whole_of_one_that_was_to_be_replaced() -> None:
    disk = MemoryDisk()
    disk.replace("/run/journal", b"before")
    disk.full = "/run"
    with pytest.raises(OSError, match="No space left on device"):
        disk.write("/run/file", [b"1234"])
    with pytest.raises(OSError, match="No space left on device"):
        disk.replace("/run/journal", b"after")
    assert disk.files == {"/run/journal": b"before", "/run/file": b"12"}
    disk.write("/other/file", [b"1234"])


def test_a_change_is_interrupted_after_a_number_of_changes() -> None:
    disk = MemoryDisk()
    disk.torn_after, disk.torn_share = 1, 0.5
    disk.write("/a", [b"1234"])
    with pytest.raises(Torn):
        disk.write("/b", [b"1234"])
    disk.write("/c", [b"1234"])
    assert disk.files == {"/a": b"1234", "/b": b"12", "/c": b"1234"}


def test_a_publication_that_is_torn_leaves_both_names_and_can_be_finished() -> None:
    disk = MemoryDisk()
    disk.write("/run/_a", [b"a"])
    disk.torn_after = 0
    with pytest.raises(Torn):
        disk.publish("/run/_a", "/run/a")
    assert disk.listed("/run") == ["_a", "a"]
    disk.publish("/run/_a", "/run/a")
    assert disk.listed("/run") == ["a"]


def test_damage_is_done_whatever_the_disk_would_take() -> None:
    disk = MemoryDisk()
    disk.write("/run/file", [b"1234"])
    disk.full = "/run"
    disk.damage("/run/file", b"12")
    assert disk.read("/run/file") == b"12"
