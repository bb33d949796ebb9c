"""The table of rebuilds."""

from shardpost.delta.table import Table

# One row per rebuild: the commit point of the tables beside those in use. `tables`, `progress` and
# `missing` are JSON; `candidate` and `former` are rows of the table `snapshots`, as JSON.
REBUILDS = Table(
    "rebuilds",
    "rebuild BIGINT, started_at TIMESTAMP, changed_at TIMESTAMP, started_by STRING,"
    " source STRING, country STRING, tables STRING, pinned BIGINT, state STRING, progress STRING,"
    " missing STRING, candidate STRING, former STRING, swaps INT",
)
