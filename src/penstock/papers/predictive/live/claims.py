"""Claims of the live figures, and those about autopilots: every application and policy, the two policies compared.

The reduction of latency is measured with whole trees, which is what a user waits for. Its prediction is checked with
longest paths, because (2.5) predicts only these; the result for whole trees is reported, too.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.stats import t as student

from penstock.experiments.figure import Claim, judged
from penstock.experiments.statistics import signed

LATE = 0.25  # maximum share of checks of a placement or a run at which its emulation lags


def emulated_truly(seen: str, what: str, late: Sequence[str]) -> Claim:
    """Claim that the host kept up with ten machines; `late` are the placements or runs at which it did not."""
    return judged(
        "ours: ten machines are emulated truly on this host",
        "not compared",
        seen,
        f"events late at ≤ {LATE:.0%} of the looks at every {what}",
        not late,
        f"late: {', '.join(late)}; run it on a host that is idle, or has more cores",
    )


ALGORITHM, SEARCH = POLICIES = ("predictive", "predictive-search")  # Algorithm 1; ours, by the same models
PAPER = (0.20, 0.318)
POINTS = 0.10
BEHIND = 0.01  # tolerance within which a latency counts as not higher, as on the twin
CONFIDENCE = 0.95


def pilot_claims(rows: pd.DataFrame) -> list[Claim]:
    """Check the rows of all passes."""
    found: list[Claim] = []
    for name, own in rows.groupby("application", sort=False):
        by_policy = {policy: own[own["policy"] == policy] for policy in POLICIES}
        found += [claim for policy, one in by_policy.items() for claim in _claims_of(str(name), policy, one)]
        found.append(_compared(str(name), by_policy[ALGORITHM], by_policy[SEARCH]))
    return [*found, _guarded(rows), _true(rows)]


def _claims_of(name: str, policy: str, rows: pd.DataFrame) -> Iterator[Claim]:
    mean, (_, high) = _mean(rows["ratio"]), interval(rows["ratio"].tolist())
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())
    decided = f"decided: {'; '.join(dict.fromkeys(str(reason) for reason in rows['reason']))}"
    yield judged(
        f"{_ours(policy)}live, the autopilot ({policy}) lowers the mean latency of {name} below the default's",
        "lower" if policy == ALGORITHM else "not compared",
        f"{_limits(rows['ratio'])}; {verdicts}; {rows['moves'].mean():.0f} moves",
        "upper 95 % limit of the mean ratio < 1",
        high < 1.0,
        decided,
    )
    yield judged(
        f"{_ours(policy)}and by as much as on the paper's cluster ({policy}): {name}",
        f"{signed(-PAPER[0])} to {signed(-PAPER[1])}",
        f"{signed(mean - 1)}; {_times(rows, 'before_ms', 'after_ms')}, p99 "
        f"{_times(rows, 'before_p99_ms', 'after_p99_ms')}",
        f"at least {signed(POINTS - PAPER[0])}",
        mean <= 1.0 - PAPER[0] + POINTS,
        f"on the longest path of means, which models predict, it is {signed(_mean(rows['path_ratio']) - 1)}; a tuple "
        f"is done with the last of all that follow from it, which gains less. {decided}",
    )
    yield _predicted(name, policy, rows)


def _predicted(name: str, policy: str, rows: pd.DataFrame) -> Claim:
    """Claim that the predicted longest path (2.5) was measured."""
    gain, came = rows["predicted_gain"].to_numpy(), 1.0 - rows["path_ratio"].to_numpy()
    accuracy = f"models' accuracy in cross-validation {rows['accuracy'].mean():.1%}"
    off = [
        float((rows[predicted] / rows[measured] - 1).mean())
        for predicted, measured in (("predicted_before_ms", "before_path_ms"), ("predicted_ms", "after_path_ms"))
    ]
    return judged(
        f"ours: the reduction that was predicted ({policy}) for {name} is the one that came on the longest path",
        "not compared",
        f"predicted {signed(-gain.mean())} ({_times(rows, 'predicted_before_ms', 'predicted_ms')}), came "
        f"{signed(-came.mean())} ({_times(rows, 'before_path_ms', 'after_path_ms')}); whole trees "
        f"{signed(float(rows['ratio'].mean()) - 1)}; {accuracy}",
        f"mean absolute difference of paths ≤ {100 * POINTS:.0f} points",
        float(np.mean(np.abs(gain - came))) <= POINTS,
        f"models are off by {signed(off[0])} for the default, by {signed(off[1])} for what was chosen by them",
    )


def _compared(name: str, algorithm: pd.DataFrame, search: pd.DataFrame) -> Claim:
    """Claim that the search is no worse, run by run: both passes of a run had the same workers and load."""
    one, other = (
        rows.set_index("repetition")[["ratio", "path_ratio", "after_ms"]].sort_index() for rows in (algorithm, search)
    )
    against = other / one
    mean = _mean(against["ratio"])
    least = [float(rows["after_ms"].mean()) for rows in (one, other)]
    return judged(
        f"ours: {SEARCH} lowers the mean latency of {name} no less than Algorithm 1",
        "not compared",
        f"{mean:.3f} {_spread(against['ratio'])} times as much of the default's is left; {least[1]:.0f} against "
        f"{least[0]:.0f} ms; "
        f"longest paths {float(against['path_ratio'].mean()):.3f} {_spread(against['path_ratio'])}",
        f"mean of the ratio, each to its own default, ≤ {1 + BEHIND:g}",
        mean <= 1 + BEHIND,
        f"{int((against['ratio'] < 1).sum())} of {len(against)} runs are lower",
    )


def _guarded(rows: pd.DataFrame) -> Claim:
    acted = rows[rows["bound_ms"].notna()]  # without a change there is no bound
    within = acted["after_ms"] <= acted["bound_ms"]  # false if the latency was not measured
    worse = _named(acted[~within])
    idle = f"; nothing was done in {len(rows) - len(acted)} more" if len(acted) < len(rows) else ""
    return judged(
        "ours: no run ends with a latency beyond the bound of its guard",
        "not compared",
        f"{len(acted) - len(worse)} of {len(acted)}; rolled back {int((rows['verdict'] == 'rolled back').sum())}{idle}",
        "every run, under either policy",
        len(acted) > 0 and not worse,
        f"beyond it: {', '.join(worse)}" if worse else "nothing was done in any run",
    )


def _true(rows: pd.DataFrame) -> Claim:
    unfinished = f"unfinished {rows['unfinished'].sum()} of {rows['tuples'].sum()}"
    seen = f"late at {rows['late'].mean():.0%} of readings; {unfinished}"
    return emulated_truly(seen, "run", _named(rows[rows["late"] > LATE]))


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the limits of the mean of repetitions, by Student's t; of a single one, its value."""
    if len(ratios) < 2:
        return ratios[0], ratios[0]
    mean, error = float(np.mean(ratios)), float(np.std(ratios, ddof=1) / np.sqrt(len(ratios)))
    reach = float(student.ppf((1 + CONFIDENCE) / 2, len(ratios) - 1)) * error
    return mean - reach, mean + reach


def _mean(ratios: "pd.Series[float]") -> float:
    """Return the mean of repetitions; NaN if one of them was not measured, which proves nothing."""
    return float(ratios.mean(skipna=False))


def _ours(policy: str) -> str:
    """Mark claims that are not the paper's."""
    return "" if policy == ALGORITHM else "ours: "


def _limits(ratios: "pd.Series[float]") -> str:
    low, high = interval(ratios.tolist())
    limits = f"95 %: {signed(low - 1)} to {signed(high - 1)}; {len(ratios)} runs" if len(ratios) > 1 else "one run"
    return f"{signed(float(ratios.mean()) - 1)} ({limits})"


def _spread(ratios: "pd.Series[float]") -> str:
    low, high = interval(ratios.tolist())
    return f"(95 %: {low:.3f} to {high:.3f}; {len(ratios)} runs)" if len(ratios) > 1 else "(one run)"


def _times(rows: pd.DataFrame, before: str, after: str) -> str:
    return f"{rows[before].mean():.0f} → {rows[after].mean():.0f} ms"


def _named(rows: pd.DataFrame) -> list[str]:
    return [f"{row.application} {row.repetition} {row.policy}" for row in rows.itertuples()]
