"""The ledger: every decision of a control loop, with its inputs and its outcome.

It is a file of JSON lines in the run's folder and suffices to repeat each decision: an `Opening` describes application
and cluster, a `Decision` its inputs. Only latency models are too large: the ledger has their file name and checksum. A
decision is written before it is applied, its outcome when that is known, and another outcome if a rollback did not
succeed at once. Lines are appended whole and synced. If a writer died in the middle of a line, readers skip it and
report that.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import Guard
from penstock.model.cluster import Cluster
from penstock.model.decoding import Undecodable, json_decoder
from penstock.model.errors import FileProblem
from penstock.model.plan import PlannedRoute
from penstock.model.topology import Application
from penstock.runtime.handle import MovedTask

LEDGER = "decisions.jsonl"  # in the run's folder
STUCK, UNFINISHED = (
    "stuck",
    "unfinished",
)  # verdicts on changes that are still in force without having been judged good


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record"):
    """One line of the ledger."""

    at: float  # seconds on the target's clock


class Opening(LedgerRecord, frozen=True, tag="opening"):
    """Subject of the decisions that follow, until the next opening."""

    run: str
    time: str  # of day, ISO 8601
    application: Application
    cluster: Cluster


class ReadingRecord(LedgerRecord, frozen=True, tag="reading"):
    """A reading."""

    reading: Reading


class Swap(LedgerRecord, frozen=True, tag="swap"):
    """Change of policy, shadow mode or latency models; policy None: off."""

    policy: str | None
    shadow: bool
    model: str = ""  # file of latency models


class TaskMove(msgspec.Struct, frozen=True):
    """Move of a task from one slot to another."""

    task: str
    before: str
    after: str


class Alternative(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A placement that was considered."""

    name: str
    moves: int  # needed to reach it
    score: float | None  # by the objective, higher is better; None: not allowed
    gain: float  # relative to staying
    chosen: bool = False


class Inputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All inputs of a decision beside application and cluster, and what a rollback needs."""

    policy: str
    objective: str
    seed: int
    placement: dict[str, str]
    rates: dict[str, float]  # offered to each source, in tuples per second
    readings: list[Reading]
    held_s: float  # duration of a move
    guard: Guard
    model: str = ""  # file of latency models; empty: none, the objective's estimator decides
    checksum: str = ""  # of that file
    anchor_s: float | None = None  # bound of earlier changes that were kept though worse, or rolled back
    placed_by: str = ""  # policy of the placement before
    routes: tuple[PlannedRoute, ...] = ()  # in force before


class Decision(LedgerRecord, frozen=True, tag="decision"):
    """A decision and its reason."""

    number: int
    time: str  # of day, ISO 8601
    inputs: Inputs
    alternatives: list[Alternative]
    moves: list[TaskMove]
    gain: float  # predicted, relative
    acts: bool  # the guard allows it
    reason: str
    before_s: float  # latency, mean of the readings
    bound_s: float  # latency above which the change is rolled back
    cost_s: float  # of the moves, as latency
    predicted_s: float | None = None  # latency; None: there is no latency model
    shadow: bool = False  # recorded only


class DecisionOutcome(LedgerRecord, frozen=True, tag="outcome"):
    """Outcome of a decision."""

    number: int
    verdict: str  # kept, rolled back, held, shadow, void, failed, stuck or unfinished
    note: str = ""
    realised_s: float | None = None  # latency, mean of the readings
    readings: list[Reading] = []
    voided: int = 0  # number of void measurements
    moved: list[MovedTask] = []
    in_force_s: float = 0.0  # from the change until it was judged or rolled back


Line = Opening | ReadingRecord | Swap | Decision | DecisionOutcome


class Ledger:
    """Writes the ledger of one run; without a path it stays in memory, for experiments."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.lines: list[Line] = []  # without a path
        self.next_number = 1
        self._opening: Opening | None = None
        self._last: Episode | None = None
        if path is not None and path.exists():
            for line in read_ledger(path).lines:
                self._note(line)

    @property
    def left(self) -> "Episode | None":
        """The last decision if it was applied and is still in force without having been judged good."""
        last = self._last
        if last is None or not last.decision.acts or last.decision.shadow:
            return None
        return last if last.outcome is None or last.outcome.verdict in (STUCK, UNFINISHED) else None

    def append(self, line: Line) -> None:
        """Append a line and sync the file; raises `FileProblem` if that fails."""
        self._note(line)
        if self.path is None:
            self.lines.append(line)
            return
        with FileProblem.on(self.path, "cannot be written", "check its permissions and free space"):
            _append(self.path, msgspec.json.encode(line) + b"\n")

    def _note(self, line: Line) -> None:
        if isinstance(line, Opening):
            self._opening = line
        elif isinstance(line, Decision):
            self.next_number = max(self.next_number, line.number + 1)
            self._last = None if self._opening is None else Episode(self._opening, line)
        elif isinstance(line, DecisionOutcome) and self._last is not None and line.number == self._last.decision.number:
            self._last.outcome = line


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":  # end an incomplete line of an earlier writer
            line = b"\n" + line
        while line:
            line = line[os.write(file, line) :]
        os.fsync(file)
    finally:
        os.close(file)


@dataclass(frozen=True)
class LedgerContents:
    """The contents of a ledger."""

    lines: Sequence[Line]
    problems: Sequence[str] = ()  # lines that could not be read, one sentence each
    ended: bool = False  # it is no longer written

    @property
    def episodes(self) -> "list[Episode]":
        """The decisions in order, each with its opening and outcome."""
        found: dict[int, Episode] = {}
        opening = None
        for line in self.lines:
            if isinstance(line, Opening):
                opening = line
            elif isinstance(line, Decision) and opening is not None:
                found[line.number] = Episode(opening, line)
            elif isinstance(line, DecisionOutcome) and line.number in found:
                found[line.number].outcome = line
        listed = list(found.values())
        for one in listed if self.ended else listed[:-1]:
            one.over = True
        return listed

    @property
    def readings(self) -> list[Reading]:
        """All readings, in order."""
        return [line.reading for line in self.lines if isinstance(line, ReadingRecord)]


@dataclass
class Episode:
    """A decision from its inputs to its outcome; None: in progress, or interrupted when its driver ended."""

    opening: Opening
    decision: Decision
    outcome: DecisionOutcome | None = field(default=None)
    over: bool = False  # no longer in progress, even if no outcome was written

    @property
    def verdict(self) -> str:
        """Verdict of its outcome."""
        if self.outcome is None:
            return UNFINISHED if self.over else "in progress"
        return self.outcome.verdict


def describe_episode(episode: Episode) -> str:
    """Describe a decision and its outcome in one line."""
    decision, outcome = episode.decision, episode.outcome
    text = f"decision {decision.number} by {decision.inputs.policy}: {episode.verdict}"
    if outcome is None or outcome.verdict in ("held", "shadow"):
        return f"{text}, {decision.reason}"
    if outcome.realised_s is not None:
        change = outcome.realised_s / decision.before_s - 1
        text += f", latency {1e3 * decision.before_s:.3g} ms before, {1e3 * outcome.realised_s:.3g} ms now"
        text += f" ({change:+.1%}, predicted {-decision.gain:+.1%})"
    return text + (f"; {outcome.note}" if outcome.note else "")


def read_ledger(path: Path) -> LedgerContents:
    """Read a ledger; incomplete lines are skipped and reported."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        kept = "penstock run --autopilot or penstock autopilot set starts an autopilot, which writes them"
        raise FileProblem(f"{path}: there are no decisions; {kept}") from None
    except OSError as error:
        raise FileProblem.of(error, path, "cannot be read", "check the path") from None
    lines: list[Line] = []
    problems: list[str] = []
    decode = json_decoder(Line)
    for number, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            lines.append(decode(text))
        except Undecodable as error:
            problems.append(f"{path}: line {number} is incomplete or not a ledger record, skipped: {error}")
    return LedgerContents(lines, problems)
