"""Where the split logs of all booked applications are: the state that one reconciler leaves to the next.

Without it, all sources would start from the beginning. So it is on disk before a path may start, and every entry stays
as long as its application is booked, whether or not this reconciler can run it.
"""

import re
from collections.abc import Collection
from pathlib import Path

from penstock.admission.reconciler.state import ReconcilerState, SharedSources, logs_folder, read_state, write_state

Key = tuple[str, str]  # an application's name and fingerprint


class SplitLogRegistry:
    """The part of a reconciler's state that outlives its process."""

    def __init__(self, book: Path) -> None:
        self._book = book
        before = read_state(book)
        self._sources = {} if before is None else {_key(each): each for each in before.sources}
        self._on_disk = set(self._sources)

    @property
    def sources(self) -> tuple[SharedSources, ...]:
        """All entries."""
        return tuple(self._sources.values())

    def folder(self, key: Key) -> Path:
        """Return the folder of an application's split logs: the previous reconciler's, or a new one."""
        if key in self._sources:
            return Path(self._sources[key].folder)
        plain = re.sub(r"[^\w.-]+", "-", key[0]).strip("-.") or "application"
        number = 1
        while (folder := logs_folder(self._book) / f"{plain}-{number}").exists():
            number += 1
        return folder

    def add(self, sources: SharedSources) -> None:
        """Add an application's split logs; they are safe after the next `write`."""
        self._sources[_key(sources)] = sources

    def forget(self, wanted: Collection[Key]) -> None:
        """Remove all entries but those wanted."""
        self._sources = {key: each for key, each in self._sources.items() if key in wanted}

    def write(self, state: ReconcilerState) -> None:
        """Write a state together with all entries."""
        write_state(self._book, state)
        self._on_disk = {_key(each) for each in state.sources}

    def safe(self, key: Key) -> bool:
        """Return whether another reconciler would find an application's split logs."""
        return key in self._on_disk


def _key(sources: SharedSources) -> Key:
    return sources.application, sources.digest
