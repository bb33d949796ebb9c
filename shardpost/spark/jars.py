"""What Spark is given beside itself: jars, and our own package as a .zip.

`make setup` installed the jars in `share/shardpost/jars` of the virtual environment. The .zip is
for executors that do not have the package (--py-files).
"""

import os
import sys
import zipfile
from pathlib import Path

from shardpost.checkout import CHECKOUT
from shardpost.errors import ShardpostError


def jars_of(purpose: str) -> list[Path]:
    """Return the jars of a purpose (a file of `ivy/`), sorted; ShardpostError if there are none.

    Those of `spark` are what Spark needs beside itself, the Kafka source, and those of `s3` what it
    needs for tables on S3; those of `broker` are the embedded Kafka broker, with all that it
    depends on.
    """
    folder = Path(sys.prefix) / "share" / "shardpost" / "jars" / purpose
    found = sorted(folder.glob("*.jar"))
    if not found:
        raise ShardpostError(f"no jars in {folder}: run `make setup`")
    return found


def packages_zip(folder: Path) -> Path:
    """Write the package as `shardpost.zip` into the folder, atomically; return its path."""
    path = folder / "shardpost.zip"
    temporary = folder / f".shardpost.{os.getpid()}.zip"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((CHECKOUT / "shardpost").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(CHECKOUT))
    temporary.replace(path)
    return path
