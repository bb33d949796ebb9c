"""Our own package as a .zip, for Spark executors that do not have it (--py-files)."""

import os
import zipfile
from pathlib import Path

from shardpost.checkout import CHECKOUT


def packages_zip(folder: Path) -> Path:
    """Write the package as `shardpost.zip` into the folder, atomically; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shardpost.zip"
    temporary = folder / f".shardpost.{os.getpid()}.zip"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((CHECKOUT / "shardpost").rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(CHECKOUT))
    temporary.replace(path)
    return path
