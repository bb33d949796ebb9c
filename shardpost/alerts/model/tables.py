"""The table of what needs a person."""

from shardpost.delta.table import Table

# What needed a person when it was looked at last, by the `run` that wrote it, in seconds since
# 1970. The other columns are those of Firing and its Condition (alerting.py).
ALERTS = Table(
    "alerts",
    "run BIGINT, rule STRING, subject STRING, severity STRING, text STRING, meaning STRING,"
    " source STRING, since TIMESTAMP, told_at TIMESTAMP, ended_at TIMESTAMP",
)
