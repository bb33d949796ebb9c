"""What new records change, and for whom positions count then, as SQL for Spark and DataFusion.

Changes are one row for each key whose latest record is new, with `old_…` for what the table of
latest records has of the key; null where it has no row.
"""

from collections.abc import Collection

from shardpost.delta.table import Table, text_literal
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import Numbering, newest_first

# By these it is judged what a new record changes; `offset` says which record it is.
JUDGED_BY = ("key", "partition", "seq", "retry_offset", "is_open", "client", "exchange")
# How many more keys are open, how many of the records are retries, and how many keys left the
# partition that Kafka puts them into, or came from one other to another.
COUNTS = ("opened", "retries", "moved")

_NEWEST = """
SELECT u.*, u.kind = {upsert} AS is_open FROM (
  SELECT r.*, ROW_NUMBER() OVER (PARTITION BY r.key ORDER BY {newest}) AS nth
  FROM {{records}} r WHERE {condition} AND r.kind <> {rejected}
) u WHERE u.nth = 1
"""
# In the order of a retry that the table has, only a later retry of that origin can come. That is a
# column: DataFusion would take a condition for one of the other side (view_tables.py says why).
_COMPARED = """
SELECT {own}, {old},
  COALESCE(o.seq IS NULL OR n.seq > o.seq
    OR (n.seq = o.seq AND o.retry_offset IS NOT NULL), false) AS is_newer,
  CAST(n.is_open AS INT) - COALESCE(CAST(o.is_open AS INT), 0) AS opened,
  CASE WHEN n.retry_offset IS NULL THEN 0 ELSE 1 END AS retries,
  CASE WHEN {moved} THEN 1 ELSE 0 END AS moved
FROM {{newest}} n LEFT JOIN {{known}} o ON n.key = o.key
"""
_HELD = """
SELECT * FROM (
  SELECT c.key AS position,
    CASE WHEN c.old_is_open AND c.old_exchange IN ({before}) THEN c.old_client END AS held_by,
    CASE WHEN c.is_open AND c.exchange IN ({now}) THEN c.client END AS holds
  FROM {{changed}} c
) h WHERE h.held_by IS DISTINCT FROM h.holds
"""
_MOVED = "o.partition <> n.partition AND n.seq >= {base} AND n.seq < {current}"


def newest_of_keys(condition: str = "true") -> str:
    """Return a SELECT of the latest decodable record of each key, with `is_open`.

    {records} in it is a history, of which the rows count that meet the condition, of r.
    """
    rejected, upsert = map(text_literal, (RecordKind.REJECTED, RecordKind.UPSERT))
    own = {"newest": newest_first("r"), "condition": condition}
    return _NEWEST.format(**own, rejected=rejected, upsert=upsert).strip()


def judged_by(table: Table) -> list[str]:
    """Return those of JUDGED_BY that a table of latest records has."""
    return [name for name in table.names if name in JUDGED_BY]


def compared(table: Table, numbering: Numbering | None = None) -> str:
    """Return a SELECT of latest records, {newest} in it, beside what is {known} of their keys.

    Columns: `offset` and those of JUDGED_BY that the table has, these as `old_…`, `is_newer` for
    those that change what is known, and COUNTS; nothing has moved without a numbering.
    """
    names, moved = judged_by(table), "false"
    if numbering is not None:
        moved = _MOVED.format(base=numbering.base, current=numbering.of_current)
    own = ", ".join(f"n.{name}" for name in ("offset", *names))
    old = ", ".join(f"o.{name} AS old_{name}" for name in names)
    return _COMPARED.format(own=own, old=old, moved=moved).strip()


def changed_holders(before: Collection[str], now: Collection[str]) -> str:
    """Return a SELECT of (position, held_by, holds), where that differs, of {changed} positions.

    Who held each, and who holds it; null for nobody. `before` and `now` are the exchanges whose
    stock counted, and counts.
    """
    return _HELD.format(before=_listed(before), now=_listed(now)).strip()


def _listed(codes: Collection[str]) -> str:
    literals = ", ".join(map(text_literal, sorted(codes)))
    # IN () is no SQL, and nothing is in NULL. What is left to be formatted is {changed} alone.
    return literals.replace("{", "{{").replace("}", "}}") or "NULL"
