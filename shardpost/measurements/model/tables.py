"""The table of what was measured."""

from shardpost.delta.table import Table

# A row for each value of each metric. `run` is when it was measured, in seconds since 1970;
# `labels` is a JSON object.
MEASUREMENTS = Table(
    "measurements", "run BIGINT, at TIMESTAMP, name STRING, labels STRING, value DOUBLE"
)
