"""The Delta tables: names, columns and layout, once.

Columns that come from Kafka: `partition`, `offset`, `timestamp` (the record's, milliseconds). `seq`
orders the records of one key (partitioning.seq_of; with retries, record_order.py). `snapshot` is
the number of the run that wrote the row. Every table but `snapshots`, `audiences`, `frozen_weeks`
and `dead_letters` stands under the commit point in `snapshots`.
"""

from shardpost.delta.table import Columns, Table

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
