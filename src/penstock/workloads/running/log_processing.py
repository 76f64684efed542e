"""Log processing: rules parse every line; an index stores its terms, and a counter counts its type.

Generated lines have the formats of a web server (Apache) and of a login service (OpenSSH). A line depends only on its
number and the seed, so a source can continue at any number. Ten lines cover one second.

A line's fields come from the first matching format, its type from the first rule that matches the message. A line of
unknown format is all message; a message that matches no rule is `other`.
"""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import msgspec

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.model.topology import Application
from penstock.workloads.running.blueprint import Blueprint, Feed
from penstock.workloads.running.counts import Count, LatestCounts, count_name

START = datetime(2026, 1, 5, tzinfo=UTC)
LINES_A_SECOND = 10
USERS = ("admin", "root", "test", "guest", "oracle", "postgres", "backup", "web", "git", "anna")
PAGES = ("index.html", "login.php", "favicon.ico", "robots.txt", "images/logo.png", "cgi-bin/status")
MODULES = ("core", "proxy", "ssl", "rewrite", "mpm_event")

# The relative frequency of each kind of line, and its text; `{name}` is random for each line.
WEB = (
    (30, "notice", "jk2_init() Found child {process} in scoreboard slot {slot}"),
    (20, "notice", "workerEnv.init() ok /etc/httpd/conf/workers{slot}.properties"),
    (18, "error", "mod_jk child workerEnv in error state {slot}"),
    (14, "error", "[client {address}] File does not exist: /var/www/html/{page}"),
    (5, "error", "[client {address}] client denied by server configuration: /var/www/html/{page}"),
    (8, "info", "AH{process:05}: {module} serves request {process} from {address}"),
    (5, "warn", "{module} took {process} ms to answer {address}"),
)
LOGIN = (
    (32, "Failed password for {user} from {address} port {port} ssh2"),
    (14, "Failed password for invalid user {user} from {address} port {port} ssh2"),
    (14, "Invalid user {user} from {address}"),
    (16, "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost={address}"),
    (12, "Received disconnect from {address}: 11: Bye Bye [preauth]"),
    (6, "Accepted password for {user} from {address} port {port} ssh2"),
    (4, "reverse mapping checking getaddrinfo for {address} failed - POSSIBLE BREAK-IN ATTEMPT!"),
    (2, "Server listening on {address} port {port}."),
)
_WEB_WEIGHTS = [row[0] for row in WEB]
_LOGIN_WEIGHTS = [row[0] for row in LOGIN]


class LogLines:
    """Generates the log line of a number; half of the lines are the web server's."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, number: int) -> str:
        """Return the line."""
        rng = Random((self.seed << 64) + number)  # noqa: S311  nothing here is secret
        time = START + timedelta(seconds=number // LINES_A_SECOND)
        process = rng.randint(1000, 32767)
        drawn = {
            "address": f"10.{rng.randint(0, 3)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
            "port": rng.randint(1024, 65535),
            "process": process,
            "slot": rng.randint(0, 9),
            "user": rng.choice(USERS),
            "page": rng.choice(PAGES),
            "module": rng.choice(MODULES),
        }
        if rng.random() < 0.5:
            [(_, level, message)] = rng.choices(WEB, _WEB_WEIGHTS)
            return f"[{time:%a %b %d %H:%M:%S %Y}] [{level}] {message.format(**drawn)}"
        [(_, message)] = rng.choices(LOGIN, _LOGIN_WEIGHTS)
        return f"{time:%b %d %H:%M:%S} gate sshd[{process}]: {message.format(**drawn)}"


WARNINGS = {"warn": "warning", "err": "error", "crit": "critical", "fatal": "critical", "emerg": "critical"}

FORMATS = (
    # Apache: [Sun Dec 04 04:47:44 2005] [error] message
    re.compile(r"\[(?P<time>\w{3} \w{3} +\d+ [\d:.]+ \d{4})\] \[(?:(?P<source>\w*):)?(?P<level>\w+)\] (?P<message>.*)"),
    # syslog: Dec 10 06:55:46 host sshd[24200]: message
    re.compile(r"(?P<time>\w{3} +\d+ \d\d:\d\d:\d\d) \S+ (?P<source>[^:\[]+)(?:\[\d+\])?: (?P<message>.*)"),
    # log4j: 2015-07-29 19:29:17,382 - WARN  [thread:Class@765] - message
    re.compile(r"(?P<time>\d{4}-\d\d-\d\d [\d:]{8}[,.]\d+) - (?P<level>[A-Z]+) +\[(?P<source>.*?)\] - (?P<message>.*)"),
    # Hadoop: 081110 220651 32 INFO dfs.FSNamesystem: message
    re.compile(r"(?P<time>\d{6} \d{6}) \d+ (?P<level>[A-Z]+) (?P<source>[^:\s]+): (?P<message>.*)"),
    # Proxifier: [07.26 13:30:58] chrome.exe - message
    re.compile(r"\[(?P<time>\d\d\.\d\d [\d:]{8})\] (?P<source>.+?) - (?P<message>.*)"),
)


class LogRule(NamedTuple):
    """A type of entry, and the pattern of its messages."""

    entry_type: str
    pattern: re.Pattern[str]


RULES = tuple(
    LogRule(entry_type, re.compile(pattern))
    for entry_type, pattern in (
        ("break-in-attempt", r"POSSIBLE BREAK-IN ATTEMPT"),
        ("failed-password", r"Failed (?:password|none) for"),
        ("invalid-user", r"(?i)invalid user"),
        ("authentication-failure", r"(?i)authentication fail|check pass; user unknown"),
        ("login", r"Accepted (?:password|publickey) for|session opened for"),
        ("disconnect", r"(?i)\bdisconnect|connection (?:closed|reset|broken)"),
        ("worker-error", r"in error state"),
        ("worker-start", r"workerEnv\.init\(\) ok|jk2_init\(\) Found child"),
        ("missing-file", r"File does not exist"),
        ("access-denied", r"client denied by server|[Dd]irectory index forbidden"),
        ("block", r"\bblk_-?\d+"),
        ("connection", r"(?i)\bconnection|\bsocket|\bproxy"),
    )
)
OTHER = "other"


class LogEntry(msgspec.Struct, frozen=True):
    """The fields of a log line; a missing field is empty."""

    entry_type: str
    time: str  # as written
    level: str  # in lower case
    source: str  # the program or class that wrote it
    message: str


def parse(line: str) -> LogEntry:
    """Return the entry of a line."""
    line = line.rstrip()
    for known in FORMATS:
        if (found := known.match(line)) is not None:
            parts = found.groupdict("")
            level = parts.get("level", "").lower()
            return LogEntry(
                classify(parts["message"]),
                parts["time"],
                WARNINGS.get(level, level),
                parts.get("source", "").strip(),
                parts["message"],
            )
    return LogEntry(classify(line), "", "", "", line)


def classify(message: str) -> str:
    """Return the type of the first rule that matches a message."""
    for rule in RULES:
        if rule.pattern.search(message) is not None:
            return rule.entry_type
    return OTHER


_TERM = re.compile(r"\d+(?:\.\d+)+|\w{2,}")  # addresses and versions are single terms


class Posting(msgspec.Struct, frozen=True):
    """The input of an inverted index for one entry: its terms."""

    entry: str  # hash of the line; equal for equal lines
    terms: tuple[str, ...]  # in order, each once


def postings(entry: LogEntry) -> Posting:
    """Return the terms of an entry's message and source, with an id that is the same in every task."""
    text = "\n".join((entry.time, entry.source, entry.message))
    terms = set(_TERM.findall(f"{entry.source} {entry.message}".lower()))
    return Posting(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest(), tuple(sorted(terms)))


def count_type(count: int, entry: LogEntry) -> tuple[int, Count]:
    """Return the next count of an entry's type, as its state and as the output."""
    return count_name(count, entry.entry_type)


def log_processing_flow(application: Application, feed: Feed, output: bool = True) -> Dataflow:
    """Return the dataflow of a log-processing topology: source, rules, then index and count with one database each.

    Lines are generated, or those of `feed.input`. In the run's folder, `output/index` contains the postings as lines of
    JSON, and `output/counts` the latest count of each type.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    [(name, own)] = feed.split(model.shares()).items()
    lines = flow.source(name, own.source(LogLines(own.seed)), emits=str, **model.costs(name))
    entries = flow.map("rules", parse, model.outlet(lines, "rules"), **model.costs("rules"))
    index = flow.map("index", postings, model.outlet(entries, "index"), **model.costs("index"))
    grouped = model.outlet(entries, "count", "entry_type")
    counts = flow.stateful_map("count", count_type, grouped, initial=0, **model.costs("count"))
    databases: dict[str, Sink[Any]] = {
        "index-database": JsonLines("output/index") if output else Discard(),
        "count-database": LatestCounts() if output else Discard(),
    }
    for outlet, (name, database) in zip((index, counts), databases.items(), strict=True):
        flow.sink(name, database, model.outlet(outlet, name), **model.costs(name))
    return flow
