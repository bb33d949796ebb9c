"""Records that only the tables which come into use reject: each becomes a dead letter, too.

Letters are made of what was rejected since the snapshot up to which they were sent
(holders/rejected_letters.py). So rows of such records get the number of the snapshot of the swap.
What a table rejected while it was in use has its letters already: they are sent before each swap.
"""

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, table_log
from shardpost.delta.query import query
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.snapshot import Snapshot
from shardpost.holders.model.view_tables import REJECTED_RECORDS
from shardpost.holders.table_commits import restore_table
from shardpost.rebuilds.comparison import both
from shardpost.rebuilds.model.rebuild import Rebuild
from shardpost.settings import Settings

_PLACE = ("topic", "partition", "offset")
_SEPARATOR = "/"  # partition and offset, which follow it, have none
_NEW = """
SELECT n.topic, n."partition", n."offset" FROM new_rejected_records n
WHERE n.snapshot > {since} AND NOT EXISTS (
  SELECT 1 FROM old_rejected_records o
  WHERE o.topic = n.topic AND o."partition" = n."partition" AND o."offset" = n."offset"
)
"""


def with_number_of_swap(
    settings: Settings, rebuild: Rebuild, last: Snapshot, beside: Snapshot, run: str
) -> tuple[int, int]:
    """Write rows of newly rejected records anew, as of the snapshot after `last`.

    Return the version of the rejected records beside, and how many these are. `run` is an id.
    """
    sql = _NEW.format(since=_last_in_use(rebuild, last))
    places = _places(query(settings, sql, both(last, beside, REJECTED_RECORDS)))
    if not len(places):
        return beside.tables[REJECTED_RECORDS.name], 0
    table = beside.located(REJECTED_RECORDS)
    version = restore_table(settings, REJECTED_RECORDS, beside)
    change = partial(_numbered, places, last.number + 1)
    files = {
        path: change
        for path in table_log.sizes(settings, table, version)
        if any(
            pc.any(_is_one_of(places, part)).as_py()
            for part in parquet_files.parts(settings, table, path, _PLACE)
        )
    }
    return commit_files(settings, table, version, files, run), len(places)


def _last_in_use(rebuild: Rebuild, last: Snapshot) -> int:
    """Return the number of the last snapshot that had the tables beside in use; 0 if none had."""
    swapped = last.rebuilt_in or 0  # maybe an earlier rebuild
    return swapped - 1 if swapped > rebuild.pinned else 0


def _numbered(places: pa.Array, number: int, rows: pa.Table) -> pa.Table:
    name = "snapshot"
    type_ = rows.schema.field(name).type
    changed = pc.if_else(_is_one_of(places, rows), pa.scalar(number, type_), rows[name])
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), changed)


def _is_one_of(places: pa.Array, rows: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(_places(rows), value_set=places)


def _places(rows: pa.Table) -> pa.Array:
    """Return the coordinates of each row as one text."""
    columns = (rows[name].cast(pa.string()) for name in _PLACE)
    found = pc.binary_join_element_wise(*columns, _SEPARATOR)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
