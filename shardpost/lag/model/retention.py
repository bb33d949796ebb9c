"""What Kafka deletes of a topic, by its effective configuration."""

from collections.abc import Mapping
from dataclasses import dataclass

from shardpost.holders.model.compacted_topics import Compaction, compaction_of


@dataclass(frozen=True)
class Retention:
    """How a topic is cleaned; `time_ms` and `size` (bytes) are None where there is no limit."""

    compaction: Compaction
    time_ms: int | None
    size: int | None

    @property
    def tombstones_ms(self) -> int:
        """For how long Kafka keeps a tombstone, at least."""
        kept = self.compaction.lag + self.compaction.retention
        return int(kept.total_seconds() * 1000)


def retention_of(config: Mapping[str, str | None]) -> Retention:
    """Return what is deleted of a topic of that configuration; what it does not say is no limit.

    `retention.ms` and `retention.bytes` are of no effect without the policy `delete`.
    """
    compaction = compaction_of(config)
    deletes = "delete" in compaction.policy
    time_ms, size = (
        _limit(config.get(name)) if deletes else None
        for name in ("retention.ms", "retention.bytes")
    )
    return Retention(compaction, time_ms, size)


def _limit(value: str | None) -> int | None:
    limit = int(value or -1)
    return None if limit < 0 else limit
