"""The Delta tables of one view: names, columns and layout, declared once.

The files of the tables of latest records and of holders may be folded up to an earlier snapshot
than the one that is read (layers.py).

Columns that come from Kafka: `partition`, `offset`, `timestamp` (the record's, in milliseconds).
`seq` orders the records of one key (record_order.py). `snapshot` is the number of the snapshot
whose run wrote the row. All tables of VIEW have their commit point in the table `snapshots`.
"""

from dataclasses import dataclass

from shardpost.delta.table import Columns, Table
from shardpost.holders.model.fields import (
    CLIENT_FIELDS,
    EXCHANGE_FIELDS,
    POSITION_FIELDS,
    Field,
    columns_of,
)
from shardpost.holders.model.layers import appended_layer, history_layer
from shardpost.topic_names import TopicName

# The coordinates of a retry; null of an original, whose coordinates are partition and offset.
RETRY_OFFSET = ("retry_offset", "BIGINT")
RETRY: Columns = (("retry_topic", "STRING"), ("retry_partition", "INT"), RETRY_OFFSET)
RETRY_NAMES = tuple(name for name, _ in RETRY)

_COORDINATES: Columns = (("`partition`", "INT"), ("offset", "BIGINT"), ("timestamp", "TIMESTAMP"))
_RECORD: Columns = (
    ("key", "STRING"),
    *_COORDINATES,
    ("seq", "BIGINT"),
    ("snapshot", "BIGINT"),
)
_HEADERS = ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>")
# `kind` is a RecordKind, `value` the raw value. Only a rejected record has a reason, its raw key
# and its headers. A retry has the coordinates of its origin, and its own in RETRY.
_HISTORY: Columns = (
    *_RECORD,
    ("kind", "STRING"),
    ("value", "BINARY"),
    ("reason", "STRING"),
    ("raw_key", "BINARY"),
    _HEADERS,
    *RETRY,
)
# A tombstone keeps its row, with is_open false and null columns.
_LATEST: Columns = (*_RECORD, RETRY_OFFSET, ("is_open", "BOOLEAN"))
_CONTACT = ("name", "email")
# What a rejected record has, and the reason may quote.
_REJECTED = ("value", "headers", "reason")
_SELDOM_REPEATED = ("key", "offset", "seq", "timestamp", "client", "amount", "name", "email")


@dataclass(frozen=True)
class InputTables:
    """What a topic becomes.

    `history` has every record ever read, `latest` the latest decodable record of each key.
    """

    history: Table
    latest: Table
    fields: tuple[Field, ...]


def _ddl(columns: Columns) -> str:
    return ", ".join(" ".join(column) for column in columns)


def _history(name: str, fields: tuple[Field, ...], contacts: tuple[str, ...] = ()) -> Table:
    ddl = _ddl((*_HISTORY, *columns_of(fields)))
    not_in_dictionaries = (*_SELDOM_REPEATED, "value")
    return Table(name, ddl, None, not_in_dictionaries, RETRY, contacts=contacts, sorted_by="key")


def _latest(
    name: str,
    history: Table,
    fields: tuple[Field, ...],
    not_in_dictionaries: tuple[str, ...],
    contacts: tuple[str, ...] = (),
) -> Table:
    columns = (*_LATEST, *columns_of(fields))
    layer = history_layer(history, _names(columns))
    return Table(name, _ddl(columns), None, not_in_dictionaries, (RETRY_OFFSET,), layer, contacts)


def _names(columns: Columns) -> list[str]:
    return [name.strip("`") for name, _ in columns]


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

# client -> ids of its positions that count, in the order of position_id_order.py; a client that
# holds none any more keeps an empty list. `shard` is the client's partition in the topic
# share-holders.
_HOLDER: Columns = (
    ("client", "STRING"),
    ("positions", "ARRAY<STRING>"),
    ("snapshot", "BIGINT"),
    ("shard", "INT"),
)
SHARE_HOLDERS = Table(
    "share_holders", _ddl(_HOLDER), "shard", layer=appended_layer(_names(_HOLDER))
)

# Undecodable records, whole; a retry with its own coordinates.
REJECTED_RECORDS = Table(
    "rejected_records",
    _ddl(
        (
            ("topic", "STRING"),
            *_COORDINATES,
            ("key", "BINARY"),
            ("value", "BINARY"),
            _HEADERS,
            ("reason", "STRING"),
            ("snapshot", "BIGINT"),
        )
    ),
    contacts=_REJECTED,
)

VIEW = (
    POSITION_EVENTS,
    CLIENT_EVENTS,
    EXCHANGE_EVENTS,
    POSITIONS,
    CLIENTS,
    EXCHANGES,
    SHARE_HOLDERS,
    REJECTED_RECORDS,
)
# Those that have contacts of clients.
OF_CONTACTS = tuple(table for table in VIEW if table.contacts)
