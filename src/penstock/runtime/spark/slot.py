"""The body of a slot's Spark task, on the executor: it unpickles a function and calls it.

Kept small, because every Python process that Spark starts for a slot imports it.
"""

import pickle
import traceback
from collections.abc import Callable, Iterable

UNLOADABLE = "the application could not be loaded on the executor"


class Slot:
    """The body of a single-partition job: calls the packed function, and returns why it could not start.

    A function that cannot be unpacked ends the job: a retry would fail as well. What it raises when it runs is a
    failure of the task, which Spark retries.
    """

    def __init__(self, packed: bytes, argument: str) -> None:
        self.packed = packed
        self.argument = argument

    def __call__(self, rows: Iterable[bytes]) -> Iterable[str]:
        """Run the slot to its end."""
        for _ in rows:  # Spark does not reuse a Python process with unread input
            pass
        try:
            main: Callable[[str], None] = pickle.loads(self.packed)  # noqa: S301 - packed by our own driver
        except Exception as error:
            reason = traceback.format_exception_only(error)[-1].strip()
            return [f"{UNLOADABLE}: {reason}"]
        main(self.argument)
        return []
