"""The declaration of a Delta table."""

from dataclasses import dataclass

# ((name, type of Spark SQL), …)
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """One Delta table: its folder's name, and its columns as Spark SQL DDL.

    Each of its files has rows of one value of `grouped_by`, so that reading one value skips the
    other files. Columns of `not_in_dictionaries` are written without Parquet's dictionaries, since
    their values seldom repeat. A table that was created before a column of `added` lacks it: it
    reads as null, until the next compaction adds it.
    """

    name: str
    columns: str
    grouped_by: str | None = None
    not_in_dictionaries: tuple[str, ...] = ()
    added: Columns = ()
