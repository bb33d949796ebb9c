"""The units of work of a rebuild: each is done as a whole, in an order that never changes.

What one has made is committed with the row of the rebuild: so a run that goes on after another one
was killed skips the units that are done.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardpost.delta import table_log
from shardpost.delta.table import Table
from shardpost.settings import Settings

# A unit has about so many records: some ten seconds of work.
RECORDS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Unit:
    """What it is called in the log, how many records it has, and what does it."""

    name: str
    records: int
    work: Callable[[], None]


def file_groups(settings: Settings, table: Table, version: int) -> Iterator[tuple[list[str], int]]:
    """Yield (paths, records) of groups of a version's files, always the same ones."""
    paths: list[str] = []
    records = 0
    for path, count in sorted(table_log.rows(settings, table, version).items()):
        paths.append(path)
        records += count
        if records >= RECORDS_AT_ONCE:
            yield paths, records
            paths, records = [], 0
    if paths:
        yield paths, records
