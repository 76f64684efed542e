"""Claims that both figures share."""

from collections.abc import Sequence

from penstock.experiments.figure import Claim

LATE = 0.25  # maximum share of checks of a placement or a run at which its emulation lags


def judged(figure: str, claim: str, paper: str, ours: str, tolerance: str, holds: bool, why_not: str) -> Claim:
    """Return a claim, with the reason only if it does not hold."""
    return Claim(figure, claim, paper, ours, tolerance, bool(holds), "" if holds else why_not)


def emulated_truly(figure: str, seen: str, what: str, late: Sequence[str]) -> Claim:
    """Claim that the host kept up with ten machines; `late` are the placements or runs at which it did not."""
    return judged(
        figure,
        "ours: ten machines are emulated truly on this host",
        "not compared",
        seen,
        f"events late at ≤ {LATE:.0%} of the looks at every {what}",
        not late,
        f"late: {', '.join(late)}; run it on a host that is idle, or has more cores",
    )


def percent(change: float) -> str:
    """Format a change, such as `−21.6 %`, `+3.0 %`."""
    return f"{100 * change:+.1f} %".replace("-", "−")
