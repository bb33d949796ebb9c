"""Which files any of some versions of a table has, found in one pass over its log."""

from bisect import bisect_left
from collections.abc import Collection, Iterable


class NeededFiles:
    """What is replayed, in the order of the log, and `needed`, the paths that were found so far.

    A file that was added at version a and removed at version r is needed if there is a version v
    with a <= v < r among those of interest.
    """

    def __init__(self, versions: Collection[int]) -> None:
        self._versions = sorted(versions)
        self._added_at: dict[str, int] = {}
        self._at = -1
        self.needed: set[str] = set()

    @property
    def live(self) -> set[str]:
        """The files of the version that was replayed last."""
        return {*self._added_at}

    def commit(self, version: int, added: Iterable[str], removed: Iterable[str]) -> None:
        """Go on by the commit of the next version."""
        for path in removed:
            self._remove(path, version)
        for path in added:
            self._added_at.setdefault(path, version)
        self._at = version

    def jump(self, version: int, paths: Iterable[str]) -> None:
        """Go on from a later version with these files; none of those between is of interest."""
        self.end()
        self._added_at = dict.fromkeys(paths, version)
        self._at = version

    def end(self) -> set[str]:
        """Return all that is needed, once the last version of interest was replayed."""
        for path in [*self._added_at]:
            self._remove(path, self._at + 1)
        return self.needed

    def _remove(self, path: str, version: int) -> None:
        added_at = self._added_at.pop(path, None)
        if added_at is None:
            return
        number = bisect_left(self._versions, added_at)
        if number < len(self._versions) and self._versions[number] < version:
            self.needed.add(path)
