"""What the rows of a table are where its files are folded up to an earlier snapshot only.

As SQL that Spark and DataFusion both read (shardpost/delta/table.py says what the names in braces
are). The layer over a table of latest records is its topic's history; that over the holders are the
rows that were appended since. Files of which the statistics say that they have nothing of the layer
are not read for it.

Unchanged rows are those of an anti join. Of an outer join, DataFusion (deltalake 1.6.6) pushes the
condition that its other side is null to a column of that name on the side that has rows.
"""

from collections.abc import Sequence

from shardpost.delta.sql import text_literal
from shardpost.delta.table import Layer, Table
from shardpost.holders.model.record_kind import RecordKind
from shardpost.holders.model.record_order import newest_first

_LAYER_OF_LATEST = "h.snapshot > {{folded}} AND h.kind <> {rejected}"
_LATEST_OF_KEYS = """
SELECT {x} FROM (
  SELECT u.*, ROW_NUMBER() OVER (PARTITION BY u.key ORDER BY {newest}) AS nth FROM (
    SELECT {{small}} {b}, '' AS kind, CAST(NULL AS STRING) AS retry_topic,
      CAST(NULL AS INT) AS retry_partition
    FROM {keys} k JOIN {{stored}} b ON k.key = b.key
    UNION ALL
    SELECT {{small}} {h}, h.kind, h.retry_topic, h.retry_partition
    FROM {keys} k JOIN {{layer}} h ON k.key = h.key WHERE {layer}
  ) u
) x WHERE x.nth = 1
"""
_LATEST = """
{changed}
UNION ALL
SELECT {{small}} {b} FROM {{stored}} b LEFT ANTI JOIN {keys} k ON b.key = k.key
"""

_CHANGED_HOLDERS = """(
  SELECT c.client, MAX(c.snapshot) AS snapshot FROM {layer} c
  WHERE c.snapshot > {folded} GROUP BY c.client
)"""
_HOLDERS = """
SELECT {{small}} {s} FROM {changed} k JOIN {{layer}} s
  ON k.client = s.client AND k.snapshot = s.snapshot
WHERE s.snapshot > {{folded}}
UNION ALL
SELECT {{small}} {s} FROM {{stored}} s LEFT ANTI JOIN {changed} k ON s.client = k.client
"""
_HOLDERS_OF_KEYS = """
SELECT {{small}} {p} FROM {{keys}} k JOIN ({view}) p ON k.client = p.client
"""


def history_layer(history: Table, columns: Sequence[str]) -> Layer:
    """Return the layer of a table of latest records with those columns.

    Of a key that the history has since, it is the newest of its records and the stored one.
    """
    is_open = f"h.kind = {text_literal(RecordKind.UPSERT)} AS is_open"
    own = {alias: ", ".join(f"{alias}.{name}" for name in columns) for alias in ("x", "b")}
    own["h"] = ", ".join(is_open if name == "is_open" else f"h.{name}" for name in columns)
    layer = _LAYER_OF_LATEST.format(rejected=text_literal(RecordKind.REJECTED))
    own |= {"newest": newest_first("u"), "layer": layer}
    changed = f"(SELECT DISTINCT h.key FROM {{layer}} h WHERE {layer})"  # noqa: S608 - constants
    view = _LATEST.format(
        **own, keys=changed, changed=_LATEST_OF_KEYS.format(**own, keys=changed).strip()
    )
    return Layer(view.strip(), _LATEST_OF_KEYS.format(**own, keys="{keys}").strip(), history)


def appended_layer(columns: Sequence[str]) -> Layer:
    """Return the layer of the table of holders: of each client, the row of the newest snapshot."""
    own = {alias: ", ".join(f"{alias}.{name}" for name in columns) for alias in ("s", "p")}
    view = _HOLDERS.format(**own, changed=_CHANGED_HOLDERS).strip()
    of_keys = _HOLDERS_OF_KEYS.format(**own, view="{view}").replace("{view}", view)
    return Layer(view, of_keys.strip())
