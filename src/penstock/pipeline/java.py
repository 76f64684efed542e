"""Find the installed Java and check whether Spark can use it."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.model.errors import PenstockError

OLDEST_JAVA = 17


class NoJava(PenstockError):
    """Spark cannot start: Java is missing or too old."""


def java_banner() -> str:
    """Return what the Java that Spark would start says about its version; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return _banner(command) if command is not None and Path(command).exists() else ""


@functools.cache
def _banner(command: str) -> str:
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stderr + answer.stdout


def java_version() -> int | None:
    """Return the major version of the Java that Spark would start; None if there is none."""
    found = re.search(r'version "(?:1\.)?(\d+)', java_banner())
    return int(found[1]) if found else None


def need_java() -> None:
    """Raise `NoJava` if Spark cannot start."""
    version = java_version()
    remedy = f"install JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to one"
    if version is None:
        raise NoJava(f"java: not found; {remedy}")
    if version < OLDEST_JAVA:
        raise NoJava(f"java: version {version} is too old for Spark; {remedy}")
