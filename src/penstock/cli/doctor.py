"""`penstock doctor`: check the requirements of Penstock."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from subprocess import DEVNULL, Popen
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.inputs import JsonOption
from penstock.cli.output import console, print_json
from penstock.model.errors import PenstockError
from penstock.pipeline.java import OLDEST_JAVA, java_version
from penstock.policies.registry import PolicyKind, names

OLDEST_PYTHON = (3, 11)
LEAST_MEMORY_GB = 4.0
COMPILED_FOR = (("word-count", "hetero-small"), ("face-detection", "field-and-cloud"))
"""An application and a cluster per kind of network: a full mesh, and links with routes."""
WITHOUT_LOOPS = ("optimal",)  # it is slow, and uses the loops that the others compile


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    found: str
    fine: bool
    remedy: str = ""


def doctor(
    start: Annotated[bool, typer.Option("--start", help="Also start an embedded Spark session and run a job.")] = False,
    compile_loops: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Also compile the inner loops of planning and archive Spark's classes, so that both start fast.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, Spark, cores and memory.

    It reports what is missing.

    Example: penstock doctor --start
    """
    findings = [_python(), _java(), _spark(), _cores(), _memory()]
    if compile_loops:
        findings += [_compiled(), _archived()]
    if start and all(finding.fine for finding in findings):
        findings.append(_session())
    missing = [finding for finding in findings if not finding.fine]
    if as_json:
        answer: list[dict[str, Any]] = [finding._asdict() for finding in findings]
        print_json({"fine": not missing, "findings": answer})
    else:
        for finding in findings:
            mark = "[green]✓[/]" if finding.fine else "[red]✗[/]"
            console.print(
                f"{mark} {finding.what:<8} {finding.found}" + (f"; {finding.remedy}" if finding.remedy else "")
            )
        console.print("[bold]all fine[/]" if not missing else f"[bold red]{len(missing)} to fix[/]")
    if missing:
        raise typer.Exit(1)


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info[:2] >= OLDEST_PYTHON
    return Finding("python", found, fine, "" if fine else "install Python 3.11 or newer")


def _java() -> Finding:
    version = java_version()
    fine = version is not None and version >= OLDEST_JAVA
    remedy = "" if fine else f"install a JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to one"
    return Finding("java", "not found" if version is None else str(version), fine, remedy)


def _spark() -> Finding:
    try:
        return Finding("spark", f"PySpark {version('pyspark')}", True)
    except PackageNotFoundError:
        return Finding("spark", "PySpark not found", False, "install it: pip install 'pyspark>=4.3,<4.4'")


def _cores() -> Finding:
    cores = os.cpu_count() or 1
    remedy = "" if cores >= 2 else "two or more let Spark and its driver run in parallel"
    return Finding("cores", str(cores), True, remedy)


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    fine = total >= LEAST_MEMORY_GB
    remedy = "" if fine else f"embedded Spark wants {LEAST_MEMORY_GB:g} GB"
    return Finding("memory", f"{total:.1f} GB", fine, remedy)


def _compiled() -> Finding:
    """Run a plan per kind of network, each in its own process; the compiled loops stay in the cache on disk."""
    started = perf_counter()
    policies = [f"--policy={name}" for name in names(PolicyKind.PLACEMENT) if name not in WITHOUT_LOOPS]
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "plan"]
    compiling = {**os.environ, "PENSTOCK_INTERPRETED_S": "0"}
    plans = [
        Popen([*command, *case, *policies, "--json"], stdout=DEVNULL, stderr=DEVNULL, env=compiling)  # noqa: S603  our own words
        for case in COMPILED_FOR
    ]
    failed = [" ".join(case) for case, plan in zip(COMPILED_FOR, plans, strict=True) if plan.wait() != 0]
    if failed:
        return Finding("loops", "not compiled", False, f"run penstock plan {failed[0]} to see why")
    return Finding("loops", f"compiled or found in the cache in {perf_counter() - started:.0f} s", True)


def _archived() -> Finding:
    """Run an application and its report, while Java records the classes that it loads."""
    from penstock.pipeline.class_archive import EXERCISE, record_classes  # imports pyspark, which may be missing here

    started = perf_counter()
    archive = record_classes()
    if archive is None:
        return Finding("classes", "not archived", False, f"run penstock {EXERCISE} to see why")
    megabytes = archive.stat().st_size / 1e6
    return Finding("classes", f"archived in {perf_counter() - started:.0f} s, {megabytes:.0f} MB in {archive}", True)


def _session() -> Finding:
    from penstock.pipeline.session import session  # imports pyspark, which may be missing here

    started = perf_counter()
    try:
        with session("doctor") as spark:
            counted = spark.range(1000).count()
    except PenstockError as error:
        return Finding("session", "did not start", False, str(error))
    return Finding("session", f"counted to {counted} on embedded Spark in {perf_counter() - started:.1f} s", True)
