"""What is printed: nothing that comes from files or other processes controls the terminal."""

import io
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from penstock.cli.output import Terminal, neutral, print_json
from penstock.runtime.storage.run_folder import create, write_info
from tests.conftest import Ran

Penstock = Callable[..., Ran]

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202eb\x00\x7f\ud800"


def printed(what: object, **options: object) -> str:
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=200, highlight=False)
    console.print(what, **options)  # type: ignore[arg-type]
    return file.getvalue()


def test_control_characters_are_shown_and_styles_still_work() -> None:
    table = Table("name")
    table.add_row(Text(HOSTILE))
    for what in (Text(HOSTILE), table):
        text = printed(what)
        for hostile in ("\x1b]", "\x1b[2J", "\r", "\x9b", "\u202e", "\x00", "\x7f", "\ud800"):
            assert hostile not in text
        assert "\\u001b]0;owned" in text
    assert "\x1b[1m" in printed("[bold]x[/]")
    assert neutral("two\nlines\tand é ★") == "two\nlines\tand é ★"


def test_json_stays_what_it_means() -> None:
    text = neutral(msgspec.json.encode({"name": "a\x9b\u202eb"}).decode())
    assert text == '{"name":"a\\u009b\\u202eb"}'
    assert msgspec.json.decode(text) == {"name": "a\x9b\u202eb"}
    print_json({"name": "a\x9b"})


def test_escapes_control_characters_from_a_runs_folder(penstock: Penstock, tmp_path: Path) -> None:
    info = create("a", tmp_path)
    write_info(msgspec.structs.replace(info, run="x\x1b[2Jy", pid=2**31 - 1, socket="/nowhere"))
    ran = penstock("status", "--runs", tmp_path)
    assert "x\\u001b[2Jy" in ran.out + ran.err
    assert "\x1b[2J" not in ran.err + ran.out
