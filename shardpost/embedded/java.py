"""The Java that the broker and Spark run on."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from shardpost.errors import ShardpostError

# Of Spark 4.0, see its "Downloading" page; Kafka 4 runs on them as well. Java 25 does not: its slim
# builds lack the module jdk.incubator.vector, which Spark's launcher adds.
OLDEST, NEWEST = 17, 21
_REMEDY = (
    "install Java 17 or 21 (on Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`),"
    " or set JAVA_HOME to one"
)


def java() -> str:
    """Return the `java` to run, found as Spark finds it: in JAVA_HOME, else in PATH.

    Raises ShardpostError if there is none, or Spark does not run on its version.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise ShardpostError(f"there is no java in {where}: {_REMEDY}")
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = major(done.stderr)
    if version is None or not OLDEST <= version <= NEWEST:
        is_of = f"is Java {version}" if version else "does not run"
        raise ShardpostError(f"{found} {is_of}, expected Java {OLDEST} to {NEWEST}: {_REMEDY}")
    return str(Path(found).absolute())


def major(output: str) -> int | None:
    """Return the major version in the output of `java -version`; 1.8.0 is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None
