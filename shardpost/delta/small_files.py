"""Which small files of a table are merged into one: by tiers, as a log-structured merge tree does.

A tier that is full is merged with the tiers below it, into one file of a higher tier. So a table
that grows by small files keeps a few dozen of them, and each byte is written again once per tier.
"""

from collections import defaultdict
from collections.abc import Mapping

from shardpost.delta.table import Table

# Files of a tier are smaller than that; those of the last bound and more are never merged.
TIER_BYTES = (128 << 10, 2 << 20, 32 << 20)
FILES_PER_TIER = 16


def to_merge(table: Table, sizes: Mapping[str, int]) -> list[list[str]]:
    """Return the groups of files that are to become one each; `sizes` is {path: bytes}.

    A group has files of one folder of `Table.grouped_by`, in the order in which they were written.
    """
    folders: dict[str, dict[str, int]] = defaultdict(dict)
    for path, size in sizes.items():
        folders[group_folder(table, path)][path] = size
    groups = (_full_tiers(files) for files in folders.values())
    return [sorted(group) for group in groups if group]


def group_folder(table: Table, path: str) -> str:
    """Return the folder within a write's folder that has one group's files; "" without groups."""
    return path.split("/")[1] if table.grouped_by and path.count("/") > 1 else ""


def _full_tiers(sizes: Mapping[str, int]) -> list[str]:
    """Return the files of the highest tier that is full, and of all tiers below it."""
    for number in reversed(range(len(TIER_BYTES))):
        lower = TIER_BYTES[number - 1] if number else 0
        below = [path for path, size in sizes.items() if size < TIER_BYTES[number]]
        if sum(sizes[path] >= lower for path in below) >= FILES_PER_TIER:
            return below
    return []
