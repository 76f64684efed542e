"""Admission and sharing: the book of a cluster, and everything that changes it.

`admit` lets an application in or refuses it with what would help; `release`, `reprioritise`, `replan` change what is
booked; `fail`, `restore` and `set_capacity` say what became of the cluster. Each returns another book and leaves the
one it was given as it is. `BookFile` keeps a book in a file that several processes may change.
"""

from penstock.admission.book.admission import Admitted, Refused, admit, replan
from penstock.admission.book.changes import (
    Changed,
    RateChange,
    Unmet,
    fail,
    rate_changes,
    release,
    reprioritise,
    restore,
    set_capacity,
    unmet,
)
from penstock.admission.book.file import BookFile, Outdated
from penstock.admission.book.sharing import BookShares, Usage, shares, usage
from penstock.admission.book.trials import Remedy, RemedyKind

__all__ = [
    "Admitted",
    "BookFile",
    "BookShares",
    "Changed",
    "Outdated",
    "RateChange",
    "Refused",
    "Remedy",
    "RemedyKind",
    "Unmet",
    "Usage",
    "admit",
    "fail",
    "rate_changes",
    "release",
    "replan",
    "reprioritise",
    "restore",
    "set_capacity",
    "shares",
    "unmet",
    "usage",
]
