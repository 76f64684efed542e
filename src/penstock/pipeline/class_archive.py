"""The class archive: Spark's classes as Java has parsed and verified them, in a file that later Java processes map.

A session loads some 15,000 classes, which otherwise takes half of the processor time until it has started.
`penstock doctor --compile` records the archive, once per installation, in the user's cache folder. Java ignores an
archive that was made by another version or for another class path, and sessions work without one.
"""

import hashlib
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, run
from tempfile import TemporaryDirectory

import pyspark

from penstock.pipeline.java import java_banner

RECORD = "PENSTOCK_RECORD_CLASSES"  # environment variable: the archive that the Java process writes when it ends
QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # Java would print on our output why it ignores an archive
EXERCISE = "run word-count --emulate homogeneous-8 --rate 100 --duration 3 --report"
"""A command that uses what runs and reports use."""


def java_options() -> str:
    """Return the Java options that use the archive, or that record one; empty if there is none."""
    if recorded := os.environ.get(RECORD):
        return f"{QUIET} {shlex.quote(f'-XX:ArchiveClassesAtExit={recorded}')}"
    archive = archive_path()
    if archive is None or not archive.is_file():
        return ""
    return f"{QUIET} -Xshare:auto {shlex.quote(f'-XX:SharedArchiveFile={archive}')}"


def archive_path() -> Path | None:
    """Return the archive of this Java and this PySpark; None for a user without a home."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    place = str(Path(pyspark.__file__).parent)
    digests = (hashlib.sha256(text.encode()).hexdigest()[:12] for text in (place, java_banner() + pyspark.__version__))
    return cache / "penstock" / f"classes-{'-'.join(digests)}.jsa"


def record_classes() -> Path | None:
    """Record the archive of this installation and remove its earlier ones; return it, or None if that failed."""
    archive = archive_path()
    if archive is None or not java_banner():
        return None
    with suppress(OSError), TemporaryDirectory(prefix="penstock-") as place:
        archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = archive.with_suffix(f".{os.getpid()}.part")
        try:
            command = [
                sys.executable,
                "-c",
                "from penstock.cli import main; main()",
                *EXERCISE.split(),
                "--runs",
                place,
            ]
            # Java inherits the output, which therefore ends when Java has written the archive.
            run(command, env={**os.environ, RECORD: str(part)}, stdout=PIPE, stderr=DEVNULL, check=False)  # noqa: S603  our own words
            part.rename(archive)
            for other in set(archive.parent.glob(f"{archive.name.rpartition('-')[0]}-*.jsa")) - {archive}:
                other.unlink()
            return archive
        finally:
            part.unlink(missing_ok=True)
    return None
