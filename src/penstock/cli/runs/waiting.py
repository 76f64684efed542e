"""What a request to a run waits for: only one operation is in progress at a time, and a checkpoint may take long."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from penstock.cli.output import errors, print_note
from penstock.cli.progress import spinning
from penstock.cli.run_view import age
from penstock.model.errors import PenstockError
from penstock.runtime.control_socket import GetStatus, ask
from penstock.runtime.storage.run_folder import RunInfo

WATCH_S = 1.0  # between two statuses


@contextmanager
def showing_checkpoint(info: RunInfo, what: str) -> Iterator[None]:
    """Show on stderr which checkpoint a request waits for, while it is being answered inside the block."""
    answered = Event()
    watching = Thread(target=_show, args=(info, what, answered), name="penstock waiting", daemon=True)
    watching.start()
    try:
        yield
    finally:
        answered.set()
        watching.join()


def _show(info: RunInfo, what: str, answered: Event) -> None:
    """Update a spinner on a terminal; elsewhere, print a line per checkpoint."""
    shown = 0
    with spinning(what, quiet=False) as update, suppress(PenstockError):  # whoever waits for the answer gets the error
        while not answered.wait(WATCH_S):
            saving = ask(info, GetStatus()).saving
            if saving is None:
                update(what)
                continue
            text = f"waiting for checkpoint {saving.number}, {age(saving.age_s)} so far: it {saving.cause}"
            update(text)
            if saving.number != shown and not errors.is_terminal:
                print_note(text)
            shown = saving.number
