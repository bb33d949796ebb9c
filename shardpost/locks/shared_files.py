"""Small text files that belong to the installation, whatever machine writes them.

They are in SHARDPOST_HOME, or beside the tables where these are on an object store: there every
machine has a home of its own. In the store each is a folder with an object for each version, named
by its number; the newest one counts. The next one is put under a name that must not be there yet
(`If-None-Match: *`), so of several who have read the same version one writes the next: a
compare-and-set from the one condition that all stores keep to. (`If-Match` let several win on
some.)
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shardpost.checkout import home_folder
from shardpost.delta.object_store import Objects, Tables, open_objects
from shardpost.errors import ShardpostError

FOLDER = "_home"
# More than the writers that change a file at the same moment.
MOST_CONFLICTS = 100


# A version that is listed may be gone when it is read: another one was written meanwhile.
MOST_READS = 50


@dataclass(frozen=True)
class Version:
    """A text and its number; 0 is the number before the first one."""

    number: int
    text: str | None = None


class VersionedText:
    """The text in one folder of the store."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects, self._folder = objects, folder

    def read(self) -> Version:
        """Return the newest version."""
        for _ in range(MOST_READS):
            if not (number := max(self._numbers(), default=0)):
                return Version(0)
            if found := self._objects.get(self._name(number)):
                return Version(number, found.content.decode())
        raise ShardpostError(f"{self._folder}: it changes faster than it can be read: try again")

    def replace(self, version: Version, text: str) -> Version | None:
        """Write the version after that one and return it; None if another writer did so first.

        Also if others wrote more before that was known. Of two who write the same text, both may be
        told that they did.
        """
        made = Version(version.number + 1, text)
        if not self._objects.put_if_absent(self._name(made.number), text.encode()):
            return None
        numbers = self._numbers()
        # Whoever has read an old version may write the one after it a second time: it was removed.
        if made.number != max(numbers, default=0):
            return None
        if version.number and version.number not in numbers:  # the whole text was
            self._objects.delete([self._name(made.number)])
            return None
        with suppress(ShardpostError):  # the next writer removes them
            self._objects.delete([self._name(one) for one in numbers if one < made.number])
        return made

    def remove(self, version: Version) -> None:
        """Remove a text for good, if that is still its newest version: numbers begin again."""
        self._objects.delete([self._name(version.number)])

    def _numbers(self) -> list[int]:
        names = (name.rpartition("/")[2] for name in self._objects.names(self._folder))
        return [int(name) for name in names if name.isdecimal()]

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:020}"


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
        root = f"{self._files.tables.root}/{FOLDER}"
        return f"{root if self._files.tables.is_on_store else self._files.home}/{self._name}"

    def read(self) -> str | None:
        """Return its text; None if there is no such file, or an empty one on a store."""
        if self._files.tables.is_on_store:
            return self._stored().read().text or None
        with suppress(FileNotFoundError):
            return self._path.read_text()
        return None

    def change(self, make: Callable[[str | None], str]) -> None:
        """Put what `make` returns of its text in its place, unless that is the same.

        On a store `make` is asked again where another writer was first, and may be given what it
        has made itself. In the home, whoever reads it meanwhile reads the one or the other.
        """
        if not self._files.tables.is_on_store:
            return self._write(make(self.read()))
        stored = self._stored()
        for _ in range(MOST_CONFLICTS):
            before = stored.read()
            text = make(before.text or None)
            if text == (before.text or "") or stored.replace(before, text):
                return None
        raise ShardpostError(f"{self}: other writers were first {MOST_CONFLICTS} times: try again")

    def remove(self) -> None:
        """Remove it, or empty it on a store; nothing if there is none."""
        if self._files.tables.is_on_store:
            self.change(lambda _: "")
        else:
            self._path.unlink(missing_ok=True)

    def _stored(self) -> VersionedText:
        return VersionedText(open_objects(self._files.tables), f"{FOLDER}/{self._name}")

    @property
    def _path(self) -> Path:
        return self._files.home / self._name

    def _write(self, text: str) -> None:
        if self._path.exists() and self._path.read_text() == text:
            return
        self._files.folder(*Path(self._name).parts[:-1])
        temporary = self._path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(self._path)
