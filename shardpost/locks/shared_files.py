"""Small text files that belong to the installation, whatever machine writes them.

They are in SHARDPOST_HOME, or objects beside the tables where these are on an object store: there
every machine has a home of its own. Of two who write one at once the last one stays: each is
written behind a lock, or says at its next write what this one said.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shardpost.checkout import home_folder
from shardpost.delta.storage import Tables

FOLDER = "_home"


@dataclass(frozen=True)
class Files:
    """The home of an installation; what machines share is beside its tables on a store.

    Who has a lock that is wanted is waited for, `lock_wait` seconds at most.
    """

    home: Path
    tables: Tables
    lock_wait: float

    def folder(self, *names: str) -> Path:
        """Make a folder of the home, if it is not there, and return its path."""
        return home_folder(self.home, *names)


class SharedFile:
    """One of them, by its path in the home."""

    def __init__(self, files: Files, name: str) -> None:
        self._files, self._name = files, name

    def __str__(self) -> str:
        """Return where it is."""
        tables = self._files.tables
        root = f"{tables.root}/{FOLDER}" if tables.is_on_store else self._files.home
        return f"{root}/{self._name}"

    def read(self) -> str | None:
        """Return its text; None if there is no such file."""
        if self._files.tables.is_on_store:
            stored = self._files.tables.objects().get(self._stored_name)
            return None if stored is None else stored.decode()
        with suppress(FileNotFoundError):
            return self._path.read_text()
        return None

    def write(self, text: str) -> None:
        """Replace its text atomically: readers see the old or the new text."""
        if self._files.tables.is_on_store:
            return self._files.tables.objects().put(self._stored_name, text.encode())
        self._files.folder(*Path(self._name).parts[:-1])
        temporary = self._path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        temporary.write_text(text)
        temporary.replace(self._path)
        return None

    def change(self, make: Callable[[str | None], str]) -> None:
        """Replace its text with what `make` returns, unless it is unchanged."""
        before = self.read()
        if (text := make(before)) != before:
            self.write(text)

    def remove(self) -> None:
        """Remove it; nothing if there is none."""
        if self._files.tables.is_on_store:
            return self._files.tables.objects().delete([self._stored_name])
        return self._path.unlink(missing_ok=True)

    @property
    def _stored_name(self) -> str:
        return f"{FOLDER}/{self._name}"

    @property
    def _path(self) -> Path:
        return self._files.home / self._name


def shared_files(files: Files, folder: str) -> Iterator[tuple[str, SharedFile]]:
    """Yield the shared files of a folder, each with its name in there."""
    if files.tables.is_on_store:
        stored = files.tables.objects().names(f"{FOLDER}/{folder}")
        names = [name.removeprefix(f"{FOLDER}/") for name in stored]
    else:
        names = sorted(f"{folder}/{path.name}" for path in (files.home / folder).glob("*.json"))
    for name in names:
        yield name.removeprefix(f"{folder}/"), SharedFile(files, name)
