"""A file in the folder of a table, as the file system has it."""

from dataclasses import dataclass
from datetime import datetime

# The folder of a table's log, within the table's.
LOG_FOLDER = "_delta_log"


@dataclass(frozen=True)
class StoredFile:
    """`path` is within the table's folder; `at` is when it was written, `size` in bytes."""

    path: str
    size: int
    at: datetime
