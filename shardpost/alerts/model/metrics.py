"""Every metric, declared once: its name, unit, labels and meaning; and the table of the values.

Names and units by the conventions of OpenMetrics; all are gauges.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardpost.delta.table import Json, Table, columns

PREFIX = "shardpost_"
UNITS = ("seconds", "bytes")
GROUP_TOPIC = ("group", "topic")
GROUP_PARTITION = (*GROUP_TOPIC, "partition")


@dataclass(frozen=True)
class Metric:
    """One metric; the history has those that are kept."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    is_kept: bool = True

    @property
    def unit(self) -> str:
        """The last word of its name, "" where it counts things."""
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")


_DECLARED = (
    Metric(
        "time_to_loss_seconds",
        "Seconds until the next unread record can be deleted; absent where none can be",
        GROUP_PARTITION,
        is_kept=False,
    ),
    Metric(
        "least_time_to_loss_seconds",
        "The least time to loss of all partitions of a topic",
        GROUP_TOPIC,
    ),
    Metric("records_behind", "Records that a group has not read", GROUP_TOPIC),
    Metric("behind_seconds", "Age of the oldest record that a group has not read", GROUP_TOPIC),
    Metric(
        "read_until_offset",
        "End offset of a partition that a group has read completely, although it has"
        " committed a lower offset",
        GROUP_PARTITION,
    ),
    Metric("audit_findings", "Findings of the Kafka audit", ("severity",)),
    Metric(
        "snapshot_age_seconds", "Time since a compaction last read the input topics to their ends"
    ),
    Metric("snapshot_number", "Number of the newest snapshot"),
    Metric(
        "following_seconds", "Seconds since `compact --follow` began; absent if none is running"
    ),
    Metric(
        "last_turn_age_seconds", "Seconds since the last snapshot of the running `compact --follow`"
    ),
    Metric("last_turn_seconds", "Duration of the last turn of the running `compact --follow`"),
    Metric("positions", "Open positions in the newest snapshot"),
    Metric("holders", "Clients that hold US stock (of SHARDPOST_COUNTRY), newest snapshot"),
    Metric("rejected_records", "Records rejected so far, up to the newest snapshot"),
    Metric("letters", "Dead letters that are waiting for a retry, or parked", ("state",)),
    Metric(
        "letter_age_seconds",
        "Seconds since the oldest dead letter in a state entered it",
        ("state",),
    ),
    Metric(
        "letter_overdue_seconds",
        "Seconds since the most overdue retry of a waiting dead letter was due",
    ),
    Metric(
        "emails",
        "Clients by week and state of their e-mail; the last two frozen weeks",
        ("week", "state"),
    ),
    Metric(
        "emails_late",
        "Clients with records read after the freeze of a week: not mailed, or with other "
        "positions; the last two frozen weeks",
        ("week",),
    ),
    Metric("runs", "Accepted run requests whose runs have not ended", ("state",)),
    Metric("run_age_seconds", "Age of the oldest command whose run has not ended"),
    Metric(
        "run_conflicts",
        "Run requests that did not run because of a conflict, in the last SHARDPOST_REQUEST_DAYS",
    ),
    Metric("table_rows", "Rows of a table", ("table",)),
    Metric("table_files", "Files of a table, in all kept versions", ("table",)),
    Metric("table_bytes", "Size of a table, with its log", ("table",)),
    Metric("disk_free_bytes", "Free space where the tables are"),
    Metric("source_up", "1 if this could be measured, else 0", ("source",)),
)
METRICS = {metric.name: metric for metric in _DECLARED}


@dataclass(frozen=True)
class Measure:
    """One value of a metric; its labels are those that the metric declares."""

    name: str
    value: float
    labels: Json[Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if tuple(self.labels) != METRICS[self.name].labels:
            raise ValueError(
                f"{self.name}: expected labels {METRICS[self.name].labels}, found {self.labels}"
            )


# A row for each value of each metric.
MEASUREMENTS = Table(
    "measurements",
    columns("run BIGINT, at TIMESTAMP, name STRING, labels STRING, value DOUBLE"),
    comments={
        "run": "when it was measured, in seconds since 1970",
        "name": "metric without `shardpost_`",
        "labels": "JSON",
    },
)
