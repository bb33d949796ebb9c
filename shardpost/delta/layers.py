"""Versions of tables, also of those whose files are folded up to an earlier snapshot."""

from collections.abc import Mapping
from dataclasses import dataclass

from shardpost.delta.table import Table


@dataclass(frozen=True)
class LayeredVersion:
    """A version of a table, folded up to the snapshot `folded`, and that of its layer's source.

    With `keys` (a SELECT) only the rows of these keys are meant.
    """

    version: int
    folded: int
    source: int
    keys: str | None = None


def layered(table: Table, versions: Mapping[str, int], folded: int) -> LayeredVersion:
    """Return the version of a table with a layer; `versions` are those of the tables, by name."""
    return LayeredVersion(versions[table.name], folded, versions[table.layer_source.name])


# None is the newest version, and has no layer.
Version = int | LayeredVersion | None


def stored_version(version: Version) -> int | None:
    """Return the version of the table's own files."""
    return version.version if isinstance(version, LayeredVersion) else version
