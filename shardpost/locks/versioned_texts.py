"""Small texts in the object store, whose versions are written one after the other.

A text is a folder with an object for each version, named by its number; the newest one counts. The
next one is put under a name that must not be there yet (`If-None-Match: *`), so of several who have
read the same version one writes the next: a compare-and-set from the one condition that all stores
keep to. (`If-Match` let several win on some.)
"""

import contextlib
from dataclasses import dataclass

from shardpost.delta.object_store import Objects
from shardpost.errors import ShardpostError

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
        with contextlib.suppress(ShardpostError):  # the next writer removes them
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
