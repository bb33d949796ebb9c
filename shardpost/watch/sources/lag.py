"""Readers: how far they are behind, and when they lose data."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from shardpost.kafka.coordinates import TopicPartition
from shardpost.lag.measure import measure
from shardpost.lag.model.report import LagRow
from shardpost.measurements import history
from shardpost.settings import Settings
from shardpost.watch.model.found import Found
from shardpost.watch.model.rules import DATA_LOST, NOT_MEASURED, TIME_TO_LOSS

NAME = "lag"
CLEAR = "read_until_offset"


def look(settings: Settings, now: datetime) -> Found:
    """Measure all readers; what the last look found to be read counts as read."""
    clear = {
        (labels["group"], TopicPartition(labels["topic"], int(labels["partition"]))): int(value)
        for labels, value in history.last_values(settings, NAME, CLEAR, now)
    }
    lag = measure(settings, now, clear=clear)
    found = Found()
    for row in lag.rows:
        _of_partition(found, row)
    by_topic: dict[tuple[str, str], list[LagRow]] = defaultdict(list)
    for row in lag.rows:
        by_topic[row.group, row.topic].append(row)
    for (group, topic), rows in by_topic.items():
        _of_topic(found, group, topic, rows)
        _conditions(found, f"{group} {topic}", rows, settings.loss_warning)
    if lag.problems:
        found.unmeasured.add(NAME)
        found.conditions.append(NOT_MEASURED.broken(NAME, "; ".join(lag.problems)))
    return found


def _of_partition(found: Found, row: LagRow) -> None:
    place = {"group": row.group, "topic": row.topic, "partition": str(row.partition)}
    if row.seconds_to_loss is not None:
        found.measure("time_to_loss_seconds", row.seconds_to_loss, **place)
    if row.records_behind == 0 and row.end is not None and row.committed != row.end:
        found.measure(CLEAR, row.end, **place)


def _of_topic(found: Found, group: str, topic: str, rows: Iterable[LagRow]) -> None:
    of = {"group": group, "topic": topic}
    behind = [row.records_behind for row in rows if row.records_behind is not None]
    late = [row.seconds_behind for row in rows if row.seconds_behind is not None]
    left = [row.seconds_to_loss for row in rows if row.seconds_to_loss is not None]
    if behind:
        found.measure("records_behind", sum(behind), **of)
    if late:
        found.measure("behind_seconds", max(late), **of)
    if left:
        found.measure("least_time_to_loss_seconds", min(left), **of)


def _conditions(found: Found, subject: str, rows: Iterable[LagRow], warning: float) -> None:
    """Add what the worst partition of a group and topic has, if it loses data before long."""
    losing = [row for row in rows if row.loses_within(warning)]
    if not losing:
        return
    worst = min(losing, key=lambda row: (row.seconds_to_loss, row.partition))
    more = f", as {len(losing) - 1} more of its partitions" if len(losing) > 1 else ""
    text = f"partition {worst.partition}{more}: {worst.reason}"
    rule = TIME_TO_LOSS if worst.seconds_to_loss else DATA_LOST
    found.conditions.append(rule.broken(subject, text))
