"""What one maintenance removes, and in which words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardpost.delta.snapshot_retention import RETENTION_IN_WORDS
from shardpost.delta.table import StoredFile, Table
from shardpost.wording import counted, in_bytes, ranges_text


@dataclass(frozen=True)
class TablePlan:
    """What is removed of a table in one folder: data files, then entries of its log.

    `is_whole`: that is all, and the folder is removed. `error` is why nothing is: its versions
    could not be read, or somebody writes there.
    """

    table: Table
    files: Sequence[StoredFile] = ()
    entries: Sequence[StoredFile] = ()
    error: str | None = None
    is_whole: bool = False

    @property
    def name(self) -> str:
        """The folder."""
        return self.table.path

    @property
    def size(self) -> int:
        """Bytes of all that is removed."""
        return sum(file.size for file in (*self.files, *self.entries))

    def as_json(self) -> dict[str, Any]:
        """Return what is removed, by path."""
        return {
            "table": self.name,
            "files": [file.path for file in self.files],
            "log_entries": [file.path for file in self.entries],
            "bytes": self.size,
            "folder": self.is_whole,
            "error": self.error,
        }

    def line(self) -> str:
        """Return it as one line."""
        if self.error:
            return f"{self.name}: nothing removed: {self.error}"
        if self.is_whole:
            return f"{self.name}: the whole folder, unreferenced; {in_bytes(self.size)}"
        return (
            f"{self.name}: {counted(len(self.files), 'unreferenced file')},"
            f" {counted(len(self.entries), 'log entry', 'log entries')}; {in_bytes(self.size)}"
        )


@dataclass(frozen=True)
class Plan:
    """The snapshots that are kept and removed, by number, and what is removed of each table.

    `pinned` is {number: why} of those that are kept longer than by their age; `unknown` is why
    that could not be found out, or their rows could not be removed: then no snapshot is removed.
    """

    kept: Sequence[int]
    dropped: Sequence[int]
    pinned: Mapping[int, str] = field(default_factory=dict)
    unknown: str | None = None
    tables: Sequence[TablePlan] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not self.dropped and not any(table.files or table.entries for table in self.tables)

    @property
    def errors(self) -> list[str]:
        """What could not be found out."""
        lines = (table.error and table.line() for table in self.tables)
        return [*filter(None, (self.unknown, *lines))]

    def as_json(self) -> dict[str, Any]:
        """Return all that is removed, and why what is older is kept."""
        return {
            "snapshots": {
                "kept": len(self.kept),
                "dropped": list(self.dropped),
                "pinned": {str(number): why for number, why in sorted(self.pinned.items())},
                "unknown": self.unknown,
            },
            "tables": [table.as_json() for table in self.tables],
            "bytes": sum(table.size for table in self.tables),
        }

    def counts(self) -> dict[str, int]:
        """Return how much is removed: snapshots, files, entries of logs, bytes."""
        return {
            "snapshots": len(self.dropped),
            "files": sum(len(table.files) for table in self.tables),
            "log_entries": sum(len(table.entries) for table in self.tables),
            "bytes": sum(table.size for table in self.tables),
        }

    def lines(self, days: int) -> list[str]:
        """Return it as lines; `days` is SHARDPOST_SNAPSHOT_DAYS."""
        kept = counted(len(self.kept), "is", "are")
        lines = [f"snapshots: {kept} kept ({RETENTION_IN_WORDS}, for {counted(days, 'day')})"]
        if self.unknown:
            lines.append(f"snapshots: none removed: {self.unknown}")
        elif self.dropped:
            count, numbers = len(self.dropped), ranges_text(self.dropped)
            lines.append(f"snapshots: {count} no longer kept: {numbers}")
        lines += [f"snapshot {number}: {why}" for number, why in sorted(self.pinned.items())]
        lines += [
            table.line() for table in self.tables if table.files or table.entries or table.error
        ]
        size = in_bytes(sum(table.size for table in self.tables))
        return [*lines, f"files: {'nothing to remove' if self.is_empty else size}"]
