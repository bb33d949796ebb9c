"""The mode that only freezes: its result says which shards go into which task of the DAG."""

from typing import Any

from shardpost.settings import Settings
from shardpost.weekly_email.model import shard_ranges
from shardpost.weekly_email.model.prepared_week import PreparedWeek


def frozen_result(week: PreparedWeek, settings: Settings) -> dict[str, Any]:
    """Return the week, its number of clients (None if it is not frozen), and groups of shards."""
    groups = shard_ranges.groups(week.shards, settings.shards_per_task)
    return {
        "week": str(week.iso_week),
        "snapshot": week.snapshot_number,
        "as_of": week.as_of.isoformat(),
        "shards": week.partitions,
        "recipients": week.frozen.recipients if week.frozen else None,
        "groups": [shard_ranges.text_of(group) for group in groups],
        "skipped": None,
    }
