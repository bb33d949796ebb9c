"""The Java that the broker and Spark run on."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from shardpost.errors import ShardpostError

OLDEST, NEWEST = 17, 21  # of Spark 4.0, see its "Downloading" page; Kafka 4 runs on them too
_REMEDY = (
    "install Java 17 (on Debian and Ubuntu: `apt-get install openjdk-17-jre-headless`),"
    " or set JAVA_HOME to one"
)


def java() -> str:
    """Return the `java` to run, as Spark finds it too: that of JAVA_HOME, else of PATH.

    Raises ShardpostError if there is none, or it is of a version that Spark does not run on.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise ShardpostError(f"there is no java in {where}: {_REMEDY}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = major(said)
    if version is None or not OLDEST <= version <= NEWEST:
        is_of = f"is of version {version}" if version else "does not run"
        raise ShardpostError(f"{found} {is_of}, expected {OLDEST} to {NEWEST}: {_REMEDY}")
    return str(Path(found).absolute())


def major(said: str) -> int | None:
    """Return the major version out of what `java -version` says; 1.8.0 is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
