"""What runs in a slot's Spark task, on the executor: it takes the function apart again and calls it.

Kept small, because every Python process that Spark starts for a slot imports it.
"""

import pickle
import traceback
from collections.abc import Callable, Iterable

UNLOADABLE = "the application could not be loaded on the executor"


class Slot:
    """The body of a single-partition job: calls the function that was packed, and yields what kept it from starting.

    A function that cannot be unpacked here never will be, so that ends the job instead of being tried again; what it
    raises when it runs is a failure of the task, and Spark's to retry.
    """

    def __init__(self, packed: bytes, argument: str) -> None:
        self.packed = packed
        self.argument = argument

    def __call__(self, rows: Iterable[bytes]) -> Iterable[str]:
        """Run the slot to its end."""
        for _ in rows:  # a Python process whose input was left unread is not used again
            pass
        try:
            main: Callable[[str], None] = pickle.loads(self.packed)  # noqa: S301 - packed by our own driver
        except Exception as error:
            reason = traceback.format_exception_only(error)[-1].strip()
            return [f"{UNLOADABLE}: {reason}"]
        main(self.argument)
        return []
