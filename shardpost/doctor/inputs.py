"""What the next compaction would read, or why it would refuse."""

from datetime import datetime

from shardpost.doctor.finding import Finding, ok, refused, warning
from shardpost.errors import ShardpostError
from shardpost.holders import inputs
from shardpost.kafka.coordinates import total_size
from shardpost.settings import Settings


def check(settings: Settings, now: datetime) -> Finding:
    """Look for new records as a compaction does; nothing is read of them."""
    try:
        _, unread = inputs.look(settings, now=now)
    except ShardpostError as problem:
        return refused("inputs", problem)
    found = f"{total_size(unread.ranges)} offsets that no snapshot has yet"
    if unread.open_transactions:
        hidden = "; ".join(map(str, unread.open_transactions))
        found = f"{found}; and what is behind an open transaction: {hidden}"
        cure = "wait for it to end, or end it: docs/compaction.md, An open transaction"
        return warning("inputs", found, "transactions that end within seconds", cure)
    return ok("inputs", found)
