"""The tables of the weekly e-mail; no snapshot names them."""

from shardpost.delta.table import Table

# The audience of a week, frozen once: one row per client. `frozen_weeks` says which are complete.
AUDIENCES = Table(
    "audiences",
    "client STRING, name STRING, email STRING, has_contact BOOLEAN,"
    " positions ARRAY<STRUCT<position: STRING, ticker: STRING, amount: STRING, exchange: STRING>>,"
    " week STRING, shard INT",
    "shard",
)
# The columns whose bounds and nulls the log of `audiences` has: those of others would be names,
# addresses and clients, which outlive the files.
AUDIENCE_STATISTICS = frozenset({"week", "shard"})
FROZEN_WEEKS = Table(
    "frozen_weeks",
    "week STRING, snapshot BIGINT, as_of TIMESTAMP, frozen_at TIMESTAMP, audience_version BIGINT,"
    " shards INT, recipients BIGINT, country STRING, audience_erased_at TIMESTAMP",
)
# Weeks that can never be mailed again: a row when a week is closed, and another when its records
# were removed from the ledger. The counts are by partition of the ledger.
CLOSED_WEEKS = Table(
    "closed_weeks",
    "week STRING, closed_at TIMESTAMP, sent ARRAY<BIGINT>, failed ARRAY<BIGINT>,"
    " unknown ARRAY<BIGINT>, suppressed ARRAY<BIGINT>, emptied_at TIMESTAMP",
)
# Which topic held the ledger of a week at a time, and the high watermarks of its partitions;
# `accepted_by` is who accepted a ledger that had lost records.
LEDGER_MARKS = Table(
    "ledger_marks",
    "week STRING, topic STRING, topic_id STRING, ends ARRAY<BIGINT>, marked_at TIMESTAMP,"
    " accepted_by STRING",
)
