"""The Delta tables of one view: names, columns, layout and layers, declared once.

Columns that come from Kafka: `partition`, `offset`, `timestamp` (the record's, in milliseconds).
`seq` orders the records of one key (record_order.py). `snapshot` is the number of the snapshot
whose run wrote the row. All tables of VIEW have their commit point in the table `snapshots`.

The files of the tables of latest records and of holders may be folded up to an earlier snapshot
than the one that is read: what the rows are then is SQL that Spark and DataFusion both read
(shardpost/delta/table.py says what the names in braces are). The layer over a table of latest
records is its topic's history; that over the holders is the table of their changes. Readers that
know no layer find these tables folded (holders/folding.py).

Unchanged rows are those of an anti join. Of an outer join, DataFusion (deltalake 1.6.6) pushes the
condition that its other side is null to a column of that name on the side that has rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardpost.delta.table import Array, Columns, Layer, Table, text_literal
from shardpost.holders.model.fields import (
    CLIENT_FIELDS,
    EXCHANGE_FIELDS,
    POSITION_FIELDS,
    Field,
    RecordKind,
    columns_of,
)
from shardpost.holders.model.record_order import newest_first
from shardpost.values.topic_names import TopicName


@dataclass(frozen=True)
class FoldingRule:
    """Snapshots name a fold once the records of a layer are that share, or after so many runs.

    Below `least_records` their share does not count: a small table would be folded all the time.
    """

    share: float = 0.1
    least_records: int = 50_000
    runs: int = 500

    def is_due(self, *, records: int, rows: int, runs: int) -> bool:
        """Tell whether a layer of `records`, by `runs`, is due to be folded into `rows`."""
        is_large = records >= max(self.least_records, self.share * rows)
        return records > 0 and (is_large or runs >= self.runs)


_OF_KEYS = """
SELECT {x} FROM (
  SELECT u.*, ROW_NUMBER() OVER (PARTITION BY u.{key} ORDER BY {newest}) AS nth FROM (
    SELECT {{small}} {b} FROM {keys} k JOIN {{stored}} b ON k.{key} = b.{key}
    UNION ALL
    SELECT {{small}} {h} FROM {keys} k JOIN {{layer}} h ON k.{key} = h.{key} WHERE {which}
  ) u
) x WHERE x.nth = 1
"""
_ROWS = """
{changed}
UNION ALL
SELECT {{small}} {x} FROM {{stored}} x LEFT ANTI JOIN {keys} k ON x.{key} = k.{key}
"""
# Up to form 3 the holders were their own layer: until the next fold they have rows of it.
_CHANGED_HOLDERS = """(
  SELECT h.client FROM {layer} h WHERE h.snapshot > {folded}
  UNION SELECT b.client FROM {stored} b WHERE b.snapshot > {folded}
)"""


def _layer(source: Table, changed: str, **own: str) -> Layer:
    """Return a layer: of a key that `source` has since, the newest of its rows and the stored one.

    `own` are the parts of _OF_KEYS.
    """
    view = _ROWS.format(**own, keys=changed, changed=_OF_KEYS.format(**own, keys=changed).strip())
    return Layer(view.strip(), _OF_KEYS.format(**own, keys="{keys}").strip(), source)


def history_layer(history: Table, columns: Sequence[str]) -> Layer:
    """Return the layer of a table of latest records with those columns."""
    is_open = f"h.kind = {text_literal(RecordKind.UPSERT)} AS is_open"
    own = {alias: ", ".join(f"{alias}.{name}" for name in columns) for alias in ("x", "b")}
    own["b"] += ", '' AS kind, CAST(NULL AS STRING) AS retry_topic"
    own["b"] += ", CAST(NULL AS INT) AS retry_partition"
    of_history = (is_open if name == "is_open" else f"h.{name}" for name in columns)
    own["h"] = ", ".join((*of_history, "h.kind, h.retry_topic, h.retry_partition"))
    which = f"h.snapshot > {{folded}} AND h.kind <> {text_literal(RecordKind.REJECTED)}"
    changed = f"(SELECT DISTINCT h.key FROM {{layer}} h WHERE {which})"  # noqa: S608 - constants
    return _layer(history, changed, **own, key="key", newest=newest_first("u"), which=which)


def changes_layer(changes: Table) -> Layer:
    """Return the layer of the table of holders: of each client, the row of the newest snapshot."""
    columns = {a: ", ".join(f"{a}.{name}" for name in changes.names) for a in ("x", "b", "h")}
    which, newest = "h.snapshot > {folded}", "u.snapshot DESC"
    return _layer(changes, _CHANGED_HOLDERS, **columns, key="client", newest=newest, which=which)


# The coordinates of a retry; null of an original, whose coordinates are partition and offset.
RETRY_OFFSET = ("retry_offset", "BIGINT")
RETRY: Columns = (("retry_topic", "STRING"), ("retry_partition", "INT"), RETRY_OFFSET)
RETRY_NAMES = tuple(name for name, _ in RETRY)

_COORDINATES: Columns = (("partition", "INT"), ("offset", "BIGINT"), ("timestamp", "TIMESTAMP"))
_RECORD: Columns = (("key", "STRING"), *_COORDINATES, ("seq", "BIGINT"), ("snapshot", "BIGINT"))
_HEADERS = ("headers", Array((("key", "STRING"), ("value", "BINARY"))))
_HISTORY: Columns = (
    *_RECORD,
    ("kind", "STRING"),
    ("value", "BINARY"),
    ("reason", "STRING"),
    ("raw_key", "BINARY"),
    _HEADERS,
    *RETRY,
)
_COMMENTS = {
    "key": "position id (client id, exchange code); null if missing or not UTF-8",
    "kind": "`upsert`, `tombstone`, `rejected`, `reconciled`, `skipped`",
    "value": "byte for byte",
    "reason": "of a rejected record: expected and found",
    "raw_key": "of a rejected record, or where `key` is another text",
    "headers": "of a rejected record, or of an input with schemas",
    "retry_topic": "of a retry; null for an original",
    "retry_offset": "of a retry: its own; null for an original",
    "is_open": "false after a tombstone; the columns below are null",
    "client": "holder, in an upsert",
    "amount": "the exact JSON number; needless zeros are removed up to 38 digits, without exponent",
    "subscribed": "wants the weekly e-mail",
    "country": "null if unknown",
}
_LATEST: Columns = (*_RECORD, RETRY_OFFSET, ("is_open", "BOOLEAN"))
_CONTACT = ("name", "email")
# What a rejected record has, and the reason may quote.
_REJECTED = ("value", "headers", "reason")
_SELDOM_REPEATED = ("key", "offset", "seq", "timestamp", "client", "amount", "name", "email")


@dataclass(frozen=True)
class InputTables:
    """The `history` of a topic, every record ever read, and the `latest` decodable of each key."""

    history: Table
    latest: Table
    fields: tuple[Field, ...]


def _history(name: str, fields: tuple[Field, ...], contacts: tuple[str, ...] = ()) -> Table:
    columns = (*_HISTORY, *columns_of(fields))
    not_in_dictionaries = (*_SELDOM_REPEATED, "value")
    return Table(
        name,
        columns,
        None,
        not_in_dictionaries,
        RETRY,
        contacts=contacts,
        sorted_by="key",
        comments=_COMMENTS,
    )


def _latest(
    name: str,
    history: Table,
    fields: tuple[Field, ...],
    not_in_dictionaries: tuple[str, ...],
    contacts: tuple[str, ...] = (),
) -> Table:
    columns = (*_LATEST, *columns_of(fields))
    layer = history_layer(history, [column for column, _ in columns])
    optional = (RETRY_OFFSET,)
    return Table(
        name, columns, None, not_in_dictionaries, optional, layer, contacts, comments=_COMMENTS
    )


POSITION_EVENTS = _history("position_events", POSITION_FIELDS)
CLIENT_EVENTS = _history("client_events", CLIENT_FIELDS, (*_CONTACT, *_REJECTED))
EXCHANGE_EVENTS = _history("exchange_events", EXCHANGE_FIELDS)
POSITIONS = _latest("positions", POSITION_EVENTS, POSITION_FIELDS, _SELDOM_REPEATED)
CLIENTS = _latest("clients", CLIENT_EVENTS, CLIENT_FIELDS, _SELDOM_REPEATED, _CONTACT)
EXCHANGES = _latest("exchanges", EXCHANGE_EVENTS, EXCHANGE_FIELDS, ())

INPUTS: dict[TopicName, InputTables] = {
    "positions": InputTables(POSITION_EVENTS, POSITIONS, POSITION_FIELDS),
    "clients": InputTables(CLIENT_EVENTS, CLIENTS, CLIENT_FIELDS),
    "exchanges": InputTables(EXCHANGE_EVENTS, EXCHANGES, EXCHANGE_FIELDS),
}

_HOLDER: Columns = (
    ("client", "STRING"),
    ("positions", Array("STRING")),
    ("snapshot", "BIGINT"),
    ("shard", "INT"),
)
_HOLDER_COMMENTS = {
    "positions": "ids that count, numeric ids first; empty if there are none",
    "snapshot": "that changed the list",
    "shard": "partition in `share-holders`",
}
SHARE_HOLDERS_CHANGES = Table("share_holders_changes", _HOLDER, comments=_HOLDER_COMMENTS)
_CHANGES = changes_layer(SHARE_HOLDERS_CHANGES)
SHARE_HOLDERS = Table("share_holders", _HOLDER, "shard", layer=_CHANGES, comments=_HOLDER_COMMENTS)

REJECTED_RECORDS = Table(
    "rejected_records",
    (
        ("topic", "STRING"),
        *_COORDINATES,
        ("key", "BINARY"),
        ("value", "BINARY"),
        _HEADERS,
        ("reason", "STRING"),
        ("snapshot", "BIGINT"),
    ),
    contacts=_REJECTED,
    comments={
        "topic": "of a retry: the retry topic, with its coordinates there",
        "key": "byte for byte",
        "value": "byte for byte",
        "reason": "expected, found",
        "snapshot": "that rejected it, or swapped in the rebuilt tables that do",
    },
)

VIEW = (
    POSITION_EVENTS,
    CLIENT_EVENTS,
    EXCHANGE_EVENTS,
    POSITIONS,
    CLIENTS,
    EXCHANGES,
    SHARE_HOLDERS,
    SHARE_HOLDERS_CHANGES,
    REJECTED_RECORDS,
)
LAYERED = tuple(table for table in VIEW if table.layer)
# Those that have contacts of clients.
OF_CONTACTS = tuple(table for table in VIEW if table.contacts)
