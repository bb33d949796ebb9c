"""Java, Python, and what `make setup` has installed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from shardpost.checkout import CHECKOUT
from shardpost.doctor.finding import Finding, error, ok, refused, unknown, warning
from shardpost.embedded.broker import find_java
from shardpost.errors import ShardpostError
from shardpost.spark.jars import broker_jars, spark_jars

PYTHON = (3, 11)
REQUIREMENTS = CHECKOUT / "requirements.txt"
NAMED = 3
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


def check() -> Iterator[Finding]:
    """Check what Shardpost needs of this machine."""
    yield check_java()
    yield check_python(sys.version_info[:3])
    yield check_packages(REQUIREMENTS)
    yield check_jars()


def check_java() -> Finding:
    """Check that there is a Java that broker and Spark run on."""
    try:
        found = find_java()
    except ShardpostError as problem:
        return refused("java", problem)
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    return ok("java", f"{done.stderr.splitlines()[0]} ({found})")


def check_python(version: tuple[int, ...]) -> Finding:
    """Check Python's version."""
    found = ".".join(map(str, version))
    if version[:2] == PYTHON:
        return ok("python", f"{found} ({sys.executable})")
    cure = "install Python 3.11 with venv, remove .venv, and run `make setup`"
    return error("python", f"{found} ({sys.executable})", "Python 3.11", cure)


def check_packages(requirements: Path) -> Finding:
    """Check that exactly the versions of requirements.txt are installed."""
    if not requirements.exists():
        return unknown("packages", f"there is no {requirements} to compare with")
    pinned = _PINNED.findall(requirements.read_text())
    other = [text for name, version in pinned if (text := _difference(name, version))]
    if not other:
        return ok("packages", f"all {len(pinned)} of requirements.txt, in their versions")
    more = f", and {len(other) - NAMED} more" if len(other) > NAMED else ""
    return warning(
        "packages",
        f"{', '.join(other[:NAMED])}{more}",
        "the versions of requirements.txt",
        "make setup",
    )


def _difference(name: str, version: str) -> str | None:
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed ({version} is expected)"
    return None if found == version else f"{name} is {found} ({version} is expected)"


def check_jars() -> Finding:
    """Check that the jars of broker and Spark are there."""
    try:
        return ok("jars", f"{len(broker_jars())} of the broker, {len(spark_jars())} of Spark")
    except ShardpostError as problem:
        return refused("jars", problem)
