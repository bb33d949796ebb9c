"""A file in the folder of a table, as the file system has it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class StoredFile:
    """`path` is within the table's folder; `at` is when it was written, `size` in bytes."""

    path: str
    size: int
    at: datetime
