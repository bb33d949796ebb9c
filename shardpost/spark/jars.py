"""The jars that `make setup` installed: `share/shardpost/jars` of the virtual environment."""

import sys
from pathlib import Path

from shardpost.errors import ShardpostError


def jars_of(purpose: str) -> list[Path]:
    """Return the jars of a purpose (a file of `ivy/`), sorted; ShardpostError if there are none."""
    folder = Path(sys.prefix) / "share" / "shardpost" / "jars" / purpose
    found = sorted(folder.glob("*.jar"))
    if not found:
        raise ShardpostError(f"no jars in {folder}: run `make setup`")
    return found


def spark_jars() -> list[Path]:
    """Return what Spark needs beside itself: the Kafka source."""
    return jars_of("spark")


def broker_jars() -> list[Path]:
    """Return the embedded Kafka broker with all that it depends on."""
    return jars_of("broker")
