"""Which records of a history can go by their age: those that a later one superseded before it.

Of the records before a horizon, the latest of each key stays, a tombstone too. So what the history
tells as of the horizon, or of any later time, is what it told before. What stays besides: rejected
records and all retries, since letters and reconciliations ask for them; origins that retries may
name; and records that are not folded into the table of latest records yet.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.model.record_order import RETRIES_READ_TOGETHER

# What is asked of each record.
COLUMNS = (
    *("key", "partition", "offset", "timestamp", "seq", "snapshot", "kind"),
    *RETRIES_READ_TOGETHER,
)
# In the order of record_order.py, the latest record of a key first.
_NEWEST_FIRST = [
    ("key", "ascending"),
    ("seq", "descending"),
    ("is_reconciled", "descending"),
    ("is_original", "descending"),
    ("snapshot", "descending"),
    *((name, "descending") for name in RETRIES_READ_TOGETHER),
]
_OFFSET_BITS = 48

Origins = Collection[tuple[int, int]]


@dataclass(frozen=True)
class Horizon:
    """What is before `at`, and of a snapshot up to `folded`, may go.

    Not the `origins` (partition, offset) of letters.
    """

    at: datetime
    folded: int
    origins: Origins = ()

    def candidates(self, rows: pa.Table) -> pa.Table:
        """Return the decodable records before the horizon, of rows with COLUMNS and others."""
        is_decodable = pc.not_equal(rows["kind"], RecordKind.REJECTED.value)
        is_before = pc.less(rows["timestamp"], pa.scalar(self.at, rows["timestamp"].type))
        return rows.filter(pc.and_(is_decodable, is_before))

    def superseded(self, candidates: pa.Table) -> pa.Table:
        """Return those that can go; with a key, all of its candidates are among them."""
        both = candidates.append_column(
            "is_reconciled", pc.equal(candidates["kind"], RecordKind.RECONCILED.value)
        ).append_column("is_original", pc.is_null(candidates["retry_offset"]))
        ordered = both.sort_by(_NEWEST_FIRST)
        keys = pc.dictionary_encode(ordered["key"]).combine_chunks().indices.to_numpy()
        is_later = np.append(False, keys[1:] == keys[:-1])
        return ordered.filter(pc.and_(pa.array(is_later), self._may_go(ordered)))

    def _may_go(self, rows: pa.Table) -> Any:
        is_folded = pc.less_equal(rows["snapshot"], self.folded)
        places = [(partition << _OFFSET_BITS) | offset for partition, offset in self.origins]
        shifted = pc.shift_left(rows["partition"].cast(pa.int64()), _OFFSET_BITS)
        is_origin = pc.is_in(pc.bit_wise_or(shifted, rows["offset"]), pa.array(places, pa.int64()))
        return pc.and_(pc.and_(is_folded, rows["is_original"]), pc.invert(is_origin))
