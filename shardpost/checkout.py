"""The checkout that Shardpost runs from, and its folders that are no part of the package.

A wheel has them in a folder of the package (hatch_build.py), which stands for the checkout then.
What is the user's own is not in there: it is in the checkout, or in a folder of the user's home.
"""

import os
import zlib
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from stat import S_ISVTX

PACKAGE = Path(__file__).resolve().parent
_SHIPPED = PACKAGE / "shipped"
IS_CHECKOUT = not _SHIPPED.is_dir()
CHECKOUT = PACKAGE.parent if IS_CHECKOUT else _SHIPPED
DAGS = CHECKOUT / "dags"
PLUGINS = CHECKOUT / "plugins"  # a wheel has them as modules, which Airflow finds by an entry point
SPARK_JOBS = CHECKOUT / "spark_jobs"
SCHEMAS = CHECKOUT / "docs" / "schemas"  # {topic}.json

# Of a user without a home folder it stays relative to `~`, and is refused as that.
_USERS = CHECKOUT if IS_CHECKOUT else Path(os.path.expanduser("~/.shardpost"))  # noqa: PTH111
HOME = CHECKOUT / ".shardpost" if IS_CHECKOUT else _USERS
DOT_ENV = _USERS / ".env"

# What everybody may do who is neither the owner of a file nor of its group.
OTHERS = 0o007


def home_folder(home: Path, *names: str) -> Path:
    """Make a folder of a home, if it is not there, and return its path.

    Nobody else gets into the home: it is made with mode 0700, and an own one that all can read is
    closed to them. A mode without access for others, such as 0750, stays what it is.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = home.stat()
    is_own = found.st_uid == os.geteuid() and not found.st_mode & S_ISVTX
    if is_own and found.st_mode & OTHERS and home != home.parent:
        home.chmod(0o700)
    path = home.joinpath(*names)
    path.mkdir(parents=True, exist_ok=True)
    return path


def code_stamp() -> int:
    """Return a number that changes when the package's code on disk does, or the file `.env`."""
    files = sorted([*PACKAGE.rglob("*.py"), DOT_ENV])
    if PACKAGE.parent.is_file():  # the .zip that executors have
        files.append(PACKAGE.parent)
    return zlib.crc32(repr([(str(file), _changed_at(file)) for file in files]).encode())


@cache
def code_digest() -> str:
    """Return what stands for the package's code, wherever it lies: in a folder, or in a .zip."""
    digest = blake2b(digest_size=16)

    def add(folder: Traversable, path: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            name = f"{path}/{entry.name}"
            if entry.is_dir():
                add(entry, name)
            elif name.endswith(".py"):
                digest.update(name.encode() + b"\0" + entry.read_bytes())

    add(files(__package__), "")
    return digest.hexdigest()


def _changed_at(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # there is none, or it is being replaced
        return None
