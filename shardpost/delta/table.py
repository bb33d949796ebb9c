"""How a Delta table is declared."""

from dataclasses import dataclass

# Names and types.
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """One Delta table: its folder's name, and its columns as Spark SQL DDL.

    Each of its files holds rows of one value of `grouped_by`, so that reading one value leaves the
    other files alone. Values of `not_in_dictionaries` seldom repeat:
    Parquet's dictionaries of them cost more time than they save space. Tables that were made before
    a column of `added` lack it: it is null there, and the next compaction adds it.
    """

    name: str
    columns: str
    grouped_by: str | None = None
    not_in_dictionaries: tuple[str, ...] = ()
    added: Columns = ()
