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
        Suggestion,
        SuggestionKind,
        Unmet,
        Usage,
        admit,
        compare_rates,
        compute_shares,
        fail,
        find_unmet,
        measure_usage,
        release,
        replan,
        reprioritise,
        restore,
        set_capacity,
    )
    from penstock.admission.reconciler import PathState, ReconcilerState, read_state, serve
    from penstock.model.book import Book, BookedPath, Booking, Promise
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.admission.book": (
                "Admitted, BookFile, BookShares, Changed, Outdated, RateChange, Refused, Suggestion, SuggestionKind, "
                "Unmet, Usage, admit, fail, compare_rates, release, replan, reprioritise, restore, set_capacity, "
                "compute_shares, find_unmet, measure_usage "
            ),
            "penstock.admission.reconciler": "ReconcilerState, PathState, serve, read_state",
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
