"""What a partition of `share-holders` was published at, as it is committed with its records."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardpost.holders.model.snapshot_run import NONE, SnapshotRun


class Watermarks(NamedTuple):
    """The first offset of a partition, and the offset behind its last record."""

    low: int
    high: int


@dataclass(frozen=True)
class Published:
    """What a partition was published at.

    `largest` is how large a record could be, if a list was too large for one since all were
    published; else None. All that counts lies at `low` or above, and below `end`, where nobody but
    Shardpost had written then; None where an older version published it. `partly` is the snapshot
    of which some transactions were committed, but not the last one.
    """

    at: SnapshotRun = NONE
    largest: int | None = None
    low: int = 0
    end: int | None = None
    partly: SnapshotRun | None = None

    @classmethod
    def of(cls, metadata: str | None) -> "Published":
        """Return what was committed; of older versions too."""
        form = json.loads(metadata) if metadata else {}
        return cls(
            SnapshotRun(form.get("snapshot", 0), form.get("run")),
            form.get("largest"),
            form.get("low", 0),
            form.get("end"),
            SnapshotRun(*form["partly"]) if "partly" in form else None,
        )

    def as_metadata(self) -> str:
        """Return the form in which it is committed."""
        form: dict[str, Any] = {"snapshot": self.at.number, "run": self.at.run}
        form |= {"largest": self.largest, "low": self.low, "end": self.end, "partly": self.partly}
        return json.dumps({name: value for name, value in form.items() if value is not None})

    def what_is_wrong(self, runs: Mapping[int, str], now: Watermarks) -> str | None:
        """Return why its records are not those of {number: run}, the snapshots of the tables."""
        if not self.at.number:
            return None
        if not self.at.is_in(runs):
            return f"snapshot {self.at.number} was published, but is not in these tables"
        if self.partly is not None and not self.partly.is_in(runs):
            return (
                f"a part of snapshot {self.partly.number} was published, but is not in these tables"
            )
        if now.low > self.low:
            return f"the records from {self.low} to {now.low - 1} were deleted"
        if self.end is not None and now.high < self.end:
            return f"it ends at {now.high}, and ended at {self.end}"
        return None

    def since(self, largest: int) -> int:
        """Return the number of the snapshot whose later changes are to be published.

        0, for all holders, where a list was too large and larger ones are possible now.
        """
        return 0 if self.largest is not None and self.largest < largest else self.at.number

    def then_partly(self, at: SnapshotRun, end: int) -> "Published":
        """Return what it is at after a transaction that is not the last one."""
        return replace(self, end=end, partly=at)

    def then(self, at: SnapshotRun, end: int, largest: int | None) -> "Published":
        """Return what it is at after a publication; `largest` is None if no list was too large."""
        known = [size for size in (self.largest, largest) if size is not None]
        return Published(at, min(known, default=None), self.low, end)
