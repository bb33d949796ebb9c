"""What Spark is given beside itself: jars, and our own package as a .zip.

`make setup`, or `shardpost jars fetch` where a wheel is installed, puts the jars into
`share/shardpost/jars` of the virtual environment. The .zip is for executors that do not have the
package (--py-files).
"""

import os
import sys
import zipfile
from pathlib import Path

from shardpost.checkout import IS_CHECKOUT, PACKAGE
from shardpost.errors import ShardpostError

JARS = Path(sys.prefix) / "share" / "shardpost" / "jars"
# Of the package, what no executor needs.
_LEFT_OUT = {"__pycache__", "shipped"}


def jars_of(purpose: str) -> list[Path]:
    """Return the jars of a purpose (a file of `ivy/`), sorted; ShardpostError if there are none.

    Those of `spark` are what Spark needs beside itself, the Kafka source, and those of `s3` what it
    needs for tables on S3; those of `broker` are the embedded Kafka broker, with all that it
    depends on.
    """
    folder = JARS / purpose
    found = sorted(folder.glob("*.jar"))
    if not found:
        cure = "make setup" if IS_CHECKOUT else f"shardpost jars fetch {purpose}"
        raise ShardpostError(f"no jars in {folder}: run `{cure}`")
    return found


def packages_zip(folder: Path) -> Path:
    """Write the package as `shardpost.zip` into the folder, atomically; return its path."""
    path = folder / "shardpost.zip"
    temporary = folder / f".shardpost.{os.getpid()}.zip"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and not _LEFT_OUT & set(file.relative_to(PACKAGE).parts):
                archive.write(file, file.relative_to(PACKAGE.parent))
    temporary.replace(path)
    return path
