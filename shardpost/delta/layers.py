"""Versions of tables, also of those whose files are folded up to an earlier snapshot."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LayeredVersion:
    """A version of a table, folded up to the snapshot `folded`, and that of its layer's source.

    With `keys` (a SELECT) only the rows of these keys are meant.
    """

    version: int
    folded: int
    source: int
    keys: str | None = None


# None is the newest version, and has no layer.
Version = int | LayeredVersion | None


def stored_version(version: Version) -> int | None:
    """Return the version of the table's own files."""
    return version.version if isinstance(version, LayeredVersion) else version
