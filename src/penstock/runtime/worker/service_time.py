"""Measured processing times of a task, which bound the duration of one call and the length of queues."""

TARGET_S = 0.005  # upper bound for one call of an author's code
FEW = 64  # tuples of an operator, up to which this bound alone applies: it may become much slower at any time
SHORT_S = 0.0005  # upper bound for more tuples than that
WINDOW = 64.0  # tuples in the mean processing time
DECAY = 0.8  # weight of a slow call after the next one
SAME = 1e-3  # relative variance of the batch sizes below which no line can be fitted
NO_SUMS = (0.0, 0.0, 0.0, 0.0, 0.0)  # sums of weights, counts, squared counts, seconds, counts times seconds


class MeasuredServiceTime:
    """The recent mean time per tuple of a task, from reaching the head of the queue to the end of processing.

    It includes the time that the slot and the processor spend on other tasks, and the wait for tuples of the same call.
    """

    __slots__ = ("_last", "_seconds", "_tuples")

    def __init__(self) -> None:
        self._last = 0.0
        self._seconds = self._tuples = 0.0

    def add(self, count: int, arrived: float, now: float) -> None:
        """Add tuples that were processed together."""
        since = arrived if arrived > self._last else self._last
        if now > since:
            self._seconds += now - since
        self._tuples += count
        self._last = now
        if self._tuples > WINDOW:
            share = WINDOW / 2 / self._tuples
            self._seconds, self._tuples = self._seconds * share, self._tuples * share

    @property
    def seconds(self) -> float:
        """Seconds per tuple; 0: no tuple was processed yet."""
        return self._seconds / self._tuples if self._tuples else 0.0


class BatchSize:
    """The number of tuples per call of an author's code (`count`), chosen so that the call returns soon.

    An operator is called for each tuple, so its time is proportional to their number; only a fast one gets many, as
    none of them can be interrupted. A sink or a source is called once
    for all of them, and a call may be slow whatever their number: a line is fitted to the slow calls. If its constant
    part alone exceeds the target, a call gets the number of tuples that doubles this time; fewer would only waste it.
    """

    __slots__ = ("_batched", "_maximum", "_sums", "count")

    def __init__(self, maximum: int, *, batched: bool) -> None:
        self.count = 1
        self._maximum = maximum
        self._batched = batched
        self._sums = NO_SUMS

    def add(self, count: int, seconds: float) -> None:
        """Adapt to the duration of a call with `count` tuples."""
        if count < self.count and seconds * self.count <= SHORT_S * count:
            return  # a full call would be short, too
        most = 2 * self.count if count >= self.count else self.count
        if self._batched:
            most = min(most, self._affordable(count, seconds))
        elif seconds > 0.0:
            affordable = count / seconds
            most = min(most, max(min(FEW, int(TARGET_S * affordable)), int(SHORT_S * affordable)))
        self.count = max(1, min(most, self._maximum))

    def _affordable(self, count: int, seconds: float) -> int:
        """Return how many tuples fit into a call; while all slow calls have the same size, try another one."""
        if seconds <= TARGET_S:
            self._sums = NO_SUMS
            return 2 * count
        new = (1.0, count, count * count, seconds, count * seconds)
        weight, n, nn, t, nt = (DECAY * old + one for old, one in zip(self._sums, new, strict=True))
        self._sums = (weight, n, nn, t, nt)
        spread = weight * nn - n * n
        if spread < SAME * n * n:
            return count // 2 if count > 1 else 2
        each = (weight * nt - n * t) / spread
        fixed = max(0.0, (t - each * n) / weight)
        return self._maximum if each <= 0.0 else int(max(TARGET_S - fixed, fixed) / each)
