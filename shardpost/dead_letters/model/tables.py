"""The table of dead letters."""

from shardpost.delta.table import Table

# Every step in the life of every dead letter, made of the records of dead-letters and parking-lot.
# Each sweep appends to it, and it belongs to no snapshot. How far the topics were read, and which
# topic of a name that was (`generation`), is kept in its commits.
DEAD_LETTERS = Table(
    "dead_letters",
    "id STRING, state STRING, attempt INT, at TIMESTAMP, origin_topic STRING, origin_partition INT,"
    " origin_offset BIGINT, origin_key BINARY, size BIGINT, error STRING, fingerprint STRING,"
    " failed_at TIMESTAMP, due TIMESTAMP, topic STRING, `partition` INT, offset BIGINT,"
    " generation INT, key STRING",
    None,
    ("id", "offset", "origin_offset"),
    (("generation", "INT"), ("key", "STRING")),
    contacts=("error",),
)
