"""The files of a table by the lowest and highest number of their rows, as the table's log has it.

Without Parquet, for who only reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

# A file whose statistics are unknown may have any number.
LOWEST, HIGHEST = 0, 2**63 - 1


@dataclass(frozen=True)
class RowFile:
    """A file: its path within the table, its bytes, and the bounds of its rows' numbers."""

    path: str
    size: int
    lowest: int
    highest: int


def row_files(table: DeltaTable, key: str) -> list[RowFile]:
    """Return the files of an opened table, by a column of numbers."""
    actions = table.get_add_actions(flatten=True)
    count = actions.num_rows
    names = set(actions.schema.names)

    def column(name: str) -> Sequence[Any]:
        return (
            pa.chunked_array(actions.column(name)).to_pylist() if name in names else [None] * count
        )

    lows, highs = column(f"min.{key}"), column(f"max.{key}")
    return [
        RowFile(path, size, LOWEST if low is None else low, HIGHEST if high is None else high)
        for path, size, low, high in zip(
            *(column("path"), column("size_bytes"), lows, highs), strict=True
        )
    ]
