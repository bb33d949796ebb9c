"""What of a topic is not as declared, and what is repaired without loss of records.

More than declared is as declared: a topic may keep more, for longer, and larger records.
"""

import re

from shardpost.topics.model.cluster import IN_SYNC, UNCLEAN, Expected, FoundTopic
from shardpost.wording import counted

POLICY = "cleanup.policy"
TIMESTAMPS = "message.timestamp.type"
UNLIMITED = -1

_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# Less than declared loses records, or refuses them.
AT_LEAST = frozenset(
    {
        "delete.retention.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        IN_SYNC,
    }
)
# They say when a segment ends, and when and how the log cleaner compacts what it may compact. No
# value of them has records deleted sooner than the settings above allow.
FREE = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)


def is_as_declared(setting: str, expected: str, found: str) -> bool:
    """Tell whether a value is as declared, or better."""
    if setting == POLICY:
        return policies(found) == policies(expected)
    if setting in AT_LEAST and _WHOLE.fullmatch(expected) and _WHOLE.fullmatch(found):
        least = int(expected)
        return int(found) == UNLIMITED or (least != UNLIMITED and int(found) >= least)
    if setting not in AT_LEAST and _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(found):
        return float(expected) == float(found)
    return expected.lower() == found.lower()


def departures(expected: Expected, found: FoundTopic) -> dict[str, tuple[str, str]]:
    """Return {setting: (found, expected)} of what is not as declared; unknown values are not."""
    return {
        setting: (value, wanted)
        for setting, wanted in expected.config.items()
        if (value := found.value(setting)) is not None
        and not is_as_declared(setting, wanted, value)
    }


def why_not_changed(setting: str, expected: Expected, found: FoundTopic) -> str | None:
    """Return why a departure is not repaired; None if nothing can be lost."""
    wanted = expected.config[setting]
    if setting == POLICY:
        now, then = policies(str(found.value(setting))), policies(wanted)
        # One way less in which records go; or what can be compacted at any time.
        if then < now or (then == {"compact"} and expected.is_own_store):
            return None
        if then == {"compact"}:
            return (
                "Kafka would remove records without a key, and all but the last record of each"
                " key: other readers may need them"
            )
        return "Kafka would begin to delete records by their age and size"
    if setting == IN_SYNC:
        return _why_not_in_sync(int(wanted), found)
    if setting == UNCLEAN:
        return None if wanted == "false" else "an unclean election loses records"
    if setting == TIMESTAMPS:
        return None if wanted == "LogAppendTime" else "retention would count from producers' clocks"
    if setting in AT_LEAST | FREE:
        return None
    return "it is unknown whether records can be lost"


def policies(text: str) -> frozenset[str]:
    """Return the policies of a list; Kafka takes them in any order."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _why_not_in_sync(wanted: int, found: FoundTopic) -> str | None:
    if found.replicas <= wanted:
        return (
            f"with {counted(found.replicas, 'replica')}, nothing could be written while a broker"
            " is down: add replicas first"
        )
    in_sync = min((len(one.in_sync) for one in found.partitions), default=0)
    if in_sync < wanted:
        only = counted(in_sync, "replica is", "replicas are")
        return f"only {only} in sync, so nothing could be written: wait for more"
    return None
