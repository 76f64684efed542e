"""The book of a cluster: admission, sharing, and every change to it.

`admit` admits an application, or rejects it and suggests what would help. `release`, `reprioritise` and `replan` change
bookings; `fail`, `restore` and `set_capacity` record changes of the cluster. Each returns a new book and leaves its
argument unchanged. `BookFile` stores a book in a file that several processes may change.
"""

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

__all__ = [
    "Admitted",
    "BookFile",
    "BookShares",
    "Changed",
    "Outdated",
    "RateChange",
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
    "release",
    "replan",
    "reprioritise",
    "restore",
    "set_capacity",
]
