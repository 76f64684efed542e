"""How long a task takes for tuples, as measured: so no call takes too long, and no queue gets too deep."""

SLICE_S = 0.005  # that one call of an author's code should take at most
RECENT = 64.0  # tuples, over which the time that one takes is taken to be the same
MEMORY = 0.8  # the weight that a slow call keeps when another follows
ALIKE = 1e-3  # relative variance of the numbers of tuples below which no line can be fitted
NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0)  # sums of weights, counts, their squares, seconds, counts times seconds


class Pace:
    """How long a task takes for a tuple of late: from when it was the first in line to when it was done with.

    That includes what its slot and its processor do for others meanwhile, and how long it waits for those after it.
    """

    __slots__ = ("_done", "_seconds", "_tuples")

    def __init__(self) -> None:
        self._done = 0.0
        self._seconds = self._tuples = 0.0

    def processed(self, count: int, arrived: float, now: float) -> None:
        """Take note of tuples that were processed together."""
        self._seconds += max(0.0, now - max(arrived, self._done))
        self._tuples += count
        self._done = now
        if self._tuples > RECENT:
            share = RECENT / 2 / self._tuples
            self._seconds, self._tuples = self._seconds * share, self._tuples * share

    @property
    def seconds(self) -> float:
        """Seconds per tuple; 0: none was processed yet."""
        return self._seconds / self._tuples if self._tuples else 0.0


class Stride:
    """How many tuples an author's code gets at once, so that it returns soon: `count`.

    An operator is called for each tuple, so that its time is proportional to their number. A sink or a source is called
    once for all of them, and a call may take long whatever their number: a line is fitted to slow calls. If its
    constant part alone takes too long, a call gets as many tuples as double that time; fewer would only waste it.
    """

    __slots__ = ("_batched", "_most", "_sums", "count")

    def __init__(self, most: int, *, batched: bool) -> None:
        self.count = 1
        self._most = most
        self._batched = batched
        self._sums = NOTHING

    def took(self, count: int, seconds: float) -> None:
        """Take note of how long a call took."""
        most = 2 * self.count if count >= self.count else self.count
        if self._batched:
            most = min(most, self._affordable(count, seconds))
        elif seconds > 0.0:
            most = min(most, int(SLICE_S * count / seconds))
        self.count = max(1, min(most, self._most))

    def _affordable(self, count: int, seconds: float) -> int:
        """Return how many tuples a call has time for; as long as all slow calls are alike, another number is tried."""
        if seconds <= SLICE_S:
            self._sums = NOTHING
            return 2 * count
        new = (1.0, count, count * count, seconds, count * seconds)
        weight, n, nn, t, nt = (MEMORY * old + one for old, one in zip(self._sums, new, strict=True))
        self._sums = (weight, n, nn, t, nt)
        spread = weight * nn - n * n
        if spread < ALIKE * n * n:
            return count // 2 if count > 1 else 2
        each = (weight * nt - n * t) / spread
        fixed = max(0.0, (t - each * n) / weight)
        return self._most if each <= 0.0 else int(max(SLICE_S - fixed, fixed) / each)
