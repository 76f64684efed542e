"""A book in a file: written atomically, checked, and safe from concurrent writers."""

import fcntl
import json
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.admission import Admitted, BookFile, admit, fail, set_capacity
from penstock.model.book import Book
from penstock.model.errors import FileProblem
from tests.admission.book.cases import application, book


def full_book() -> Book:
    one = admit(book(fails=0.1), application("gr", rate=12.0))
    assert isinstance(one, Admitted)
    two = admit(one.book, application("be", priority=2.0), given="examples/be.toml")
    assert isinstance(two, Admitted)
    return set_capacity(fail(two.book, "c--d").book, "b", 0.9).book


def test_what_is_saved_is_loaded_equal(tmp_path: Path) -> None:
    kept, whole = BookFile(tmp_path / "book.json"), full_book()
    assert not kept.exists()
    kept.save(whole, None)
    assert kept.exists()
    assert kept.load() == whole
    kept.save(fail(whole, "a").book, whole.version)
    assert kept.load() == fail(whole, "a").book


def test_refuses_to_overwrite_what_somebody_else_has_written(tmp_path: Path) -> None:
    kept, whole = BookFile(tmp_path / "book.json"), full_book()
    kept.save(whole, None)
    kept.save(fail(whole, "a").book, whole.version)
    before = kept.path.read_bytes()
    problem = rf"book.json: expected version {whole.version}, but another process has saved"
    with pytest.raises(FileProblem, match=problem):
        kept.save(fail(whole, "d").book, whole.version)
    with pytest.raises(FileProblem, match="a book of version"):
        kept.save(book(), None)
    assert kept.path.read_bytes() == before


def test_refuses_to_save_if_the_file_was_deleted(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="expected version 3, but the file no longer exists"):
        BookFile(tmp_path / "book.json").save(book(), 3)
    assert not (tmp_path / "book.json").exists()


def test_of_many_who_write_at_once_one_wins_each_time(tmp_path: Path) -> None:
    kept, start = BookFile(tmp_path / "book.json"), book()
    kept.save(start, None)
    won: list[str] = []

    def write(element: str) -> None:
        try:
            kept.save(fail(start, element).book, start.version)
            won.append(element)
        except FileProblem:
            pass

    threads = [threading.Thread(target=write, args=(element,)) for element in ("a", "b", "c", "d", "a--b", "b--d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert kept.load().failed == (won[0],)


def damaged(text: str) -> list[tuple[str, str]]:
    raw = json.loads(text)
    other_number = json.loads(text)
    other_number["book"]["version"] += 1
    other_format = raw | {"format": 2}
    without_field = json.loads(text)
    del without_field["book"]["cluster"]
    return [
        (text[: len(text) // 2], "not a book, "),
        ("", "not a book, "),
        ("[1, 2]", "no format and book at the top level"),
        ('{"machines": []}', "no format and book at the top level"),
        (json.dumps(other_number), "wrong checksum"),
        (json.dumps(without_field), "wrong checksum"),
        (json.dumps(other_format), "unsupported book format 2, expected 1"),
    ]


@pytest.mark.parametrize("case", range(7))
def test_a_damaged_file_is_refused_in_one_line_and_left_as_it_is(tmp_path: Path, case: int) -> None:
    kept = BookFile(tmp_path / "book.json")
    kept.save(full_book(), None)
    text, problem = damaged(kept.path.read_text())[case]
    kept.path.write_text(text)
    for attempt in (kept.load, lambda: kept.save(book(), 0)):
        with pytest.raises(FileProblem) as caught:
            attempt()
        assert problem in str(caught.value)
        assert str(caught.value).startswith(str(kept.path))
        assert "\n" not in str(caught.value)
    assert kept.path.read_text() == text


def test_what_fits_its_checksum_but_is_no_book_is_refused(tmp_path: Path) -> None:
    from penstock.admission.book.file import _checksum

    kept = BookFile(tmp_path / "book.json")
    kept.save(book(), None)
    raw = json.loads(kept.path.read_text())
    raw["book"]["failed"] = ["z"]
    kept.path.write_text(json.dumps(raw | {"checksum": _checksum(raw["book"])}))
    with pytest.raises(FileProblem, match=r"failed\[0\]: 'diamond' has no machine, switch or link 'z'"):
        kept.load()


def test_places_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="cannot be read, no such file"):
        BookFile(tmp_path / "none.json").load()
    with pytest.raises(FileProblem, match="cannot be written, no such file"):
        BookFile(tmp_path / "none" / "book.json").save(book(), None)


def test_a_book_that_somebody_else_keeps_locked_is_left_as_it_is(tmp_path: Path) -> None:
    kept = BookFile(tmp_path / "book.json", patience_s=0.05)
    kept.save(book(), None)
    before = kept.path.read_bytes()
    with (tmp_path / ".book.json.lock").open("w") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(FileProblem, match=r"another process has held .*\.book\.json\.lock locked for 0\.05 s"):
            kept.save(replace(book(), version=1), 0)
        assert kept.load() == book()
    assert kept.path.read_bytes() == before
    kept.save(replace(book(), version=1), 0)
    assert kept.load().version == 1
