"""Every rule of the protocol that is broken shows in a schedule before long, and in none where it is kept."""

import pytest

from penstock.testing.bugs import BUGS, inject_bug
from penstock.testing.schedules import Totals, run_schedule

BASE = 1
MOST = 5_000


def first_failure(seeds: range, bug: str) -> int | None:
    """Return the number of schedules needed to find a bug; None: more than there are."""
    with inject_bug(bug):
        for number, seed in enumerate(seeds):
            if run_schedule(seed, Totals()):
                return number + 1
    return None


def test_there_is_a_bug_for_every_rule_that_shows_from_outside() -> None:
    assert [rule for rule, _ in BUGS.values()] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 11, 12, 13, 16, 19, 19, 20]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_caught_within_five_thousand_schedules(bug: str) -> None:
    found = first_failure(range(BASE, BASE + MOST), bug)
    assert found is not None
    assert run_schedule(BASE + found - 1, Totals()) == ""  # without the bug


def test_a_bug_ends_with_its_injection() -> None:
    with inject_bug("ended-sources"):
        assert first_failure(range(BASE, BASE + 10), "") is not None
    assert first_failure(range(BASE, BASE + 10), "") is None
