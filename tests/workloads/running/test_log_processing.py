import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.workloads.dataflows import dataflow
from penstock.workloads.running.counts import latest_counts
from penstock.workloads.running.log_processing import LogEntry, LogLines, classify, parse, postings
from tests.shared_data import SHARED, needs_shared
from tests.workloads.running.executor import Executor


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (
            "[Sun Jan 04 04:47:44 2026] [error] mod_jk child workerEnv in error state 6",
            LogEntry(
                "worker-error", "Sun Jan 04 04:47:44 2026", "error", "", "mod_jk child workerEnv in error state 6"
            ),
        ),
        (
            "[Sun Jan 04 04:47:44.123456 2026] [ssl:warn] certificate is old\r\n",
            LogEntry("other", "Sun Jan 04 04:47:44.123456 2026", "warning", "ssl", "certificate is old"),
        ),
        (
            "Jan  4 06:55:46 gate sshd[24200]: Invalid user web from 10.0.0.1",
            LogEntry("invalid-user", "Jan  4 06:55:46", "", "sshd", "Invalid user web from 10.0.0.1"),
        ),
        (
            "Jan 14 06:55:46 host Some Program: hello: again",
            LogEntry("other", "Jan 14 06:55:46", "", "Some Program", "hello: again"),
        ),
        (
            "2026-01-04 19:29:17,382 - WARN  [Worker[id=1]:Manager@765] - Connection broken for 3",
            LogEntry(
                "disconnect",
                "2026-01-04 19:29:17,382",
                "warning",
                "Worker[id=1]:Manager@765",
                "Connection broken for 3",
            ),
        ),
        (
            "260104 220651 32 INFO dfs.Node: Received block blk_-17 of size 3",
            LogEntry("block", "260104 220651", "info", "dfs.Node", "Received block blk_-17 of size 3"),
        ),
        (
            "[01.04 13:30:58] browser.exe *64 - example.org:443 open through proxy",
            LogEntry("connection", "01.04 13:30:58", "", "browser.exe *64", "example.org:443 open through proxy"),
        ),
        ("no format at all", LogEntry("other", "", "", "", "no format at all")),
        ("", LogEntry("other", "", "", "", "")),
    ],
)
def test_a_line_is_split_by_its_format(line: str, entry: LogEntry) -> None:
    assert parse(line) == entry


@pytest.mark.parametrize(
    ("message", "entry_type"),
    [
        ("Failed password for invalid user web from 10.0.0.1 port 17 ssh2", "failed-password"),
        ("Invalid user web from 10.0.0.1", "invalid-user"),
        ("reverse mapping failed - POSSIBLE BREAK-IN ATTEMPT! disconnect", "break-in-attempt"),
        ("Accepted publickey for anna from 10.0.0.1 port 17", "login"),
        ("[client 10.0.0.1] File does not exist: /var/www/x", "missing-file"),
    ],
)
def test_the_first_matching_rule_decides(message: str, entry_type: str) -> None:
    assert classify(message) == entry_type


def test_an_entry_is_found_under_each_of_its_terms_once() -> None:
    entry = LogEntry("other", "now", "error", "sshd", "Failed for 10.0.0.1: failed a x2")
    assert postings(entry).terms == ("10.0.0.1", "failed", "for", "sshd", "x2")


def test_equal_entries_share_an_id_and_others_do_not() -> None:
    lines = [LogLines()(number) for number in range(2000)]
    ids = {line: postings(parse(line)).entry for line in lines}
    assert len(set(ids.values())) == len(set(lines))
    assert postings(parse(lines[3])) == postings(parse(lines[3] + "\n"))


def test_a_line_depends_only_on_its_number() -> None:
    assert [LogLines(3)(number) for number in range(50)] == [LogLines(3)(number) for number in range(50)]
    assert LogLines(3)(5) != LogLines(4)(5)
    assert LogLines(0)(10**12) == LogLines(0)(10**12)


def test_generated_lines_match_formats_and_rules() -> None:
    entries = [parse(LogLines()(number)) for number in range(5000)]
    assert all(entry.time for entry in entries)
    web = sum(entry.level != "" for entry in entries)
    assert abs(web - 2500) < 5 * (5000 * 0.25) ** 0.5
    types = Counter(entry.entry_type for entry in entries)
    assert len(types) >= 10
    assert types["other"] < 500


def test_times_of_generated_lines_do_not_decrease() -> None:
    make = LogLines()
    times = [make(number)[:15] for number in range(3000) if make(number)[0] != "["]
    assert times == sorted(times)


def test_counts_of_generated_lines_are_the_truth(tmp_path: Path) -> None:
    ran = Executor(dataflow("log-processing", rate=1000, count=600), tmp_path).run()
    truth = Counter(parse(line).entry_type for line in ran.sent["source->rules"])
    assert truth.total() == 600
    assert latest_counts(tmp_path / "output/counts") == truth


def test_every_line_is_in_the_index(tmp_path: Path) -> None:
    ran = Executor(dataflow("log-processing", rate=1000, count=300), tmp_path).run()
    rows = indexed(tmp_path)
    assert sorted(row["entry"] for row in rows) == sorted(
        postings(parse(line)).entry for line in ran.sent["source->rules"]
    )
    found = {row["entry"] for row in rows if "sshd" in row["terms"]}
    assert found == {postings(parse(line)).entry for line in ran.sent["source->rules"] if "sshd" in line}


def indexed(folder: Path) -> list[dict[str, str]]:
    files = sorted((folder / "output" / "index").glob("part-*.jsonl"))
    return [json.loads(row) for file in files for row in file.read_text().splitlines()]


@needs_shared
def test_counts_of_a_real_log_are_the_truth(tmp_path: Path) -> None:
    log = SHARED / "logs" / "Apache_2k.log"
    lines = log.read_text().splitlines()
    Executor(dataflow("log-processing", rate=1e6, input=log), tmp_path).run()
    counts = latest_counts(tmp_path / "output/counts")
    assert sum(counts.values()) == len(lines) == 2000
    assert counts["worker-error"] == sum("in error state" in line for line in lines)
    started = ("workerEnv.init() ok", "jk2_init() Found child")
    assert counts["worker-start"] == sum(any(text in line for text in started) for line in lines)
    assert len(indexed(tmp_path)) == 2000


@needs_shared
@pytest.mark.parametrize(
    ("name", "recognised"), [("Apache", 1.0), ("OpenSSH", 1.0), ("Zookeeper", 1.0), ("HDFS", 1.0), ("Mac", 0.95)]
)
def test_real_logs_have_known_formats(name: str, recognised: float) -> None:
    lines = (SHARED / "logs" / f"{name}_2k.log").read_text(errors="replace").splitlines()
    known = [parse(line) for line in lines if parse(line).time]
    assert len(known) >= recognised * len(lines)
