"""Admission: the book of a cluster, and the reconciler that runs what the book contains."""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.admission.book import (
        Admitted,
        BookFile,
        BookShares,
        Changed,
        Outdated,
        RateChange,
        Refused,
        Remedy,
        RemedyKind,
        Unmet,
        Usage,
        admit,
        fail,
        rate_changes,
        release,
        replan,
        reprioritise,
        restore,
        set_capacity,
        shares,
        unmet,
        usage,
    )
    from penstock.admission.reconciler import OperatorState, PathState, operate, read_state
    from penstock.model.book import Book, BookedPath, Booking, Promise
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.admission.book": (
                "Admitted, BookFile, BookShares, Changed, Outdated, RateChange, Refused, Remedy, RemedyKind, "
                "Unmet, Usage, admit, fail, rate_changes, release, replan, reprioritise, restore, set_capacity, "
                "shares, unmet, usage "
            ),
            "penstock.admission.reconciler": "OperatorState, PathState, operate, read_state",
            "penstock.model.book": "Book, BookedPath, Booking, Promise",
        },
    )

__all__ = [
    "Admitted",
    "Book",
    "BookFile",
    "BookShares",
    "BookedPath",
    "Booking",
    "Changed",
    "OperatorState",
    "Outdated",
    "PathState",
    "Promise",
    "RateChange",
    "Refused",
    "Remedy",
    "RemedyKind",
    "Unmet",
    "Usage",
    "admit",
    "fail",
    "operate",
    "rate_changes",
    "read_state",
    "release",
    "replan",
    "reprioritise",
    "restore",
    "set_capacity",
    "shares",
    "unmet",
    "usage",
]
