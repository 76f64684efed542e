"""The rule engine of log processing: it splits lines into fields and classifies entries.

Both use the first matching pattern: the first matching format determines the fields, the first rule that matches the
message the type. A line of unknown format is all message; a message that matches no rule is `other`.
"""

import re
from typing import NamedTuple

import msgspec

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
