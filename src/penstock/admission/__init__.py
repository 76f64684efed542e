"""Admission: the book of a cluster, and the reconciler that runs what the book contains."""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.admission.book.admission import Admitted, Refused, admit, replan
    from penstock.admission.book.changes import (
        Changed,
        RateChange,
        Unmet,
        compare_rates,
        fail,
        find_unmet,
        release,
        reprioritise,
        restore,
        set_capacity,
    )
    from penstock.admission.book.file import BookFile, Outdated
    from penstock.admission.book.sharing import BookShares, Usage, compute_shares, measure_usage
    from penstock.admission.book.suggestions import Suggestion, SuggestionKind
    from penstock.admission.reconciler.service import serve
    from penstock.admission.reconciler.state import PathState, ReconcilerState, read_state
    from penstock.model.book import Book, BookedPath, Booking, Promise
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.admission.book.admission": "Admitted, Refused, admit, replan",
            "penstock.admission.book.changes": (
                "Changed, RateChange, Unmet, compare_rates, fail, find_unmet, release, reprioritise, restore, "
                "set_capacity"
            ),
            "penstock.admission.book.file": "BookFile, Outdated",
            "penstock.admission.book.sharing": "BookShares, Usage, compute_shares, measure_usage",
            "penstock.admission.book.suggestions": "Suggestion, SuggestionKind",
            "penstock.admission.reconciler.service": "serve",
            "penstock.admission.reconciler.state": "PathState, ReconcilerState, read_state",
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
    "Outdated",
    "PathState",
    "Promise",
    "RateChange",
    "ReconcilerState",
    "Refused",
    "Suggestion",
    "SuggestionKind",
    "Unmet",
    "Usage",
    "admit",
    "compare_rates",
    "compute_shares",
    "fail",
    "find_unmet",
    "measure_usage",
    "read_state",
    "release",
    "replan",
    "reprioritise",
    "restore",
    "serve",
    "set_capacity",
]
