"""The folders to which the sinks of an application write, which distinguish their files from others."""

import os
from collections.abc import Iterator

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow


def output_folders(flow: Dataflow, run_folder: str) -> tuple[str, ...]:
    """Return the folders that the sinks of an application declare, including those of skipped tuples."""
    return tuple(os.path.abspath(os.path.join(run_folder, place)) for place in _declared(flow))


def _declared(flow: Dataflow) -> Iterator[str]:
    for part in flow.parts.values():
        for made in (part.logic(), None if part.letters is None else part.letters()):
            if isinstance(made, Sink):
                yield from (os.fspath(place) for place in made.folders())
