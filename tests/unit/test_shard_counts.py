"""The counts of a shard, and their form in the contract."""

from collections import Counter

from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardCounts, counts_document


def test_the_document_has_the_counts_of_each_shard_and_all_unknown_clients() -> None:
    states = Counter({DeliveryState.SENT: 5, DeliveryState.UNKNOWN: 2, DeliveryState.SENDING: 1})
    counts = ShardCounts.of(1, states, 4, ["b", "a"])
    none = {"sent": 0, "failed": 0, "unknown": 0, "suppressed": 0, "open": 0}
    assert counts_document(IsoWeek(2026, 47), [ShardCounts(0), counts]) == {
        "week": "2026-W47",
        "shards": [
            {"shard": 0, **none},
            {"shard": 1, **none, "sent": 5, "unknown": 2, "open": 4},
        ],
        "unknown": ["a", "b"],
    }
