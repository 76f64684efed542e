"""Where the split logs of all that is booked are: what one operator has to tell the next.

Who loses that begins all sources anew. So it is on disk before a path may start, and every entry stays for as long as
its application is booked, whether this operator can run it or not.
"""

import re
from collections.abc import Collection
from pathlib import Path

from penstock.admission.reconciler.state import OperatorState, SharedSources, logs_folder, read_state, write_state

Key = tuple[str, str]  # an application's name and fingerprint


class Remembered:
    """The part of an operator's state that outlives it."""

    def __init__(self, book: Path) -> None:
        self._book = book
        before = read_state(book)
        self._sources = {} if before is None else {_key(each): each for each in before.sources}
        self._on_disk = set(self._sources)

    @property
    def sources(self) -> tuple[SharedSources, ...]:
        """All of them."""
        return tuple(self._sources.values())

    def folder(self, key: Key) -> Path:
        """Return the folder of an application's split logs: that of the operator before, or a new one."""
        if key in self._sources:
            return Path(self._sources[key].folder)
        plain = re.sub(r"[^\w.-]+", "-", key[0]).strip("-.") or "application"
        number = 1
        while (folder := logs_folder(self._book) / f"{plain}-{number}").exists():
            number += 1
        return folder

    def add(self, sources: SharedSources) -> None:
        """Remember where an application's split logs are; from the next `write` on that is safe."""
        self._sources[_key(sources)] = sources

    def forget(self, wanted: Collection[Key]) -> None:
        """Forget all but some."""
        self._sources = {key: each for key, each in self._sources.items() if key in wanted}

    def write(self, state: OperatorState) -> None:
        """Keep a state, all that is remembered in it."""
        write_state(self._book, state)
        self._on_disk = {_key(each) for each in state.sources}

    def safe(self, key: Key) -> bool:
        """Return whether another operator would find an application's split logs."""
        return key in self._on_disk


def _key(sources: SharedSources) -> Key:
    return sources.application, sources.digest
