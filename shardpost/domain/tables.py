"""The Delta tables: names, columns and layout, once.

Columns that come from Kafka: `partition`, `offset`, `timestamp` (the record's, milliseconds). `seq`
orders the records of one key (partitioning.seq_of; with retries, record_order.py). `snapshot` is
the number of the run that wrote the row. Every table but `snapshots`, `audiences`, `frozen_weeks`
and `dead_letters` stands under the commit point in `snapshots`.
"""

from dataclasses import dataclass

# Names and types.
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """One Delta table: its folder's name, and its columns as Spark SQL DDL.

    Each of its files holds rows of one value of `grouped_by`, so that reading one value leaves the
    other files alone. Values of `not_in_dictionaries` seldom repeat:
    Parquet's dictionaries of them cost more time than they save space. Tables that were made before
    a column of `added` lack it: it is null there, and the next compaction adds it.
    """

    name: str
    columns: str
    grouped_by: str | None = None
    not_in_dictionaries: tuple[str, ...] = ()
    added: Columns = ()


_RECORD = "`partition` INT, offset BIGINT, timestamp TIMESTAMP, seq BIGINT, snapshot BIGINT"
_POSITION = "client STRING, ticker STRING, amount STRING, exchange STRING"
_CLIENT = "name STRING, email STRING, subscribed BOOLEAN"

# Histories: every record ever read. `kind` is upsert, tombstone or rejected; `value` is the raw
# value. A rejected record also has its reason, its raw key and its headers. A retry has the place
# of its origin, and `retry_…` say where itself is; they are null of an original.
_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
RETRY: Columns = (("retry_topic", "STRING"), ("retry_partition", "INT"), ("retry_offset", "BIGINT"))
_HISTORY = (
    f"key STRING, {_RECORD}, kind STRING, value BINARY, reason STRING, raw_key BINARY, {_HEADERS},"
    f" {', '.join(map(' '.join, RETRY))}"
)
_UNIQUE = ("key", "offset", "seq", "timestamp", "client", "amount", "name", "email")
_RAW = (*_UNIQUE, "value")
POSITION_EVENTS = Table("position_events", f"{_HISTORY}, {_POSITION}", None, _RAW, RETRY)
CLIENT_EVENTS = Table("client_events", f"{_HISTORY}, {_CLIENT}", None, _RAW, RETRY)
EXCHANGE_EVENTS = Table("exchange_events", f"{_HISTORY}, country STRING", None, _RAW, RETRY)

# The latest decodable record per key. A tombstone keeps its row, with is_open false and null
# columns. `retry_offset` is null of an original, as in the histories.
_LATEST = f"key STRING, {_RECORD}, retry_offset BIGINT, is_open BOOLEAN"
_OWN = (("retry_offset", "BIGINT"),)
POSITIONS = Table("positions", f"{_LATEST}, {_POSITION}", None, _UNIQUE, _OWN)
CLIENTS = Table("clients", f"{_LATEST}, {_CLIENT}", None, _UNIQUE, _OWN)
EXCHANGES = Table("exchanges", f"{_LATEST}, country STRING", None, (), _OWN)

# client -> ids of its US positions, in the order of position_ids.py; a client that holds none any
# more keeps an empty list. `shard` is the client's partition in the topic share-holders.
SHARE_HOLDERS = Table(
    "share_holders",
    "client STRING, positions ARRAY<STRING>, snapshot BIGINT, shard INT",
    "shard",
)

# What could not be decoded, whole: raw key, value and headers, and why.
REJECTED_RECORDS = Table(
    "rejected_records",
    "topic STRING, `partition` INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,"
    f" {_HEADERS}, reason STRING, snapshot BIGINT",
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

# The commit point: one row per snapshot. `tables` and `end_offsets` are JSON objects; `looked_at`
# is when the inputs were found to hold no more than end_offsets; the counts are of the whole view;
# `shards` is the number of partitions of share-holders.
SNAPSHOTS = Table(
    "snapshots",
    "snapshot BIGINT, committed_at TIMESTAMP, looked_at TIMESTAMP, end_offsets STRING,"
    " tables STRING, positions BIGINT, holders BIGINT, held BIGINT, rejected BIGINT,"
    " country STRING, shards INT, code_version STRING, run STRING",
)

# The audience of a week, frozen once: one row per client. `frozen_weeks` says which are complete.
AUDIENCES = Table(
    "audiences",
    "client STRING, name STRING, email STRING, has_contact BOOLEAN,"
    " positions ARRAY<STRUCT<position: STRING, ticker: STRING, amount: STRING, exchange: STRING>>,"
    " week STRING, shard INT",
    "shard",
)
FROZEN_WEEKS = Table(
    "frozen_weeks",
    "week STRING, snapshot BIGINT, as_of TIMESTAMP, frozen_at TIMESTAMP, audience_version BIGINT,"
    " shards INT, recipients BIGINT, country STRING",
)

# Every step in the life of every dead letter, as the records of dead-letters and parking-lot tell
# it; it is appended to by each sweep, and stands under no snapshot. How far the topics were read is
# kept in its commits.
DEAD_LETTERS = Table(
    "dead_letters",
    "id STRING, state STRING, attempt INT, at TIMESTAMP, origin_topic STRING, origin_partition INT,"
    " origin_offset BIGINT, origin_key BINARY, size BIGINT, error STRING, fingerprint STRING,"
    " failed_at TIMESTAMP, due TIMESTAMP, topic STRING, `partition` INT, offset BIGINT",
    None,
    ("id", "offset", "origin_offset"),
)
