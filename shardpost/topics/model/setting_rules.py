"""Which settings of a topic are as declared, and which may be changed to that.

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
    """Tell whether a value is the declared one, or is as good."""
    if setting == POLICY:
        return policies(found) == policies(expected)
    if setting not in AT_LEAST:
        return _same(expected, found)
    if not (_WHOLE.fullmatch(expected) and _WHOLE.fullmatch(found)):
        return expected == found
    return int(found) == UNLIMITED or (int(expected) != UNLIMITED and int(found) >= int(expected))


def departures(expected: Expected, found: FoundTopic) -> dict[str, tuple[str, str]]:
    """Return {setting: (found, expected)} of what is not as declared; unknown values are not."""
    return {
        setting: (value, wanted)
        for setting, wanted in expected.config.items()
        if (value := found.value(setting)) is not None
        and not is_as_declared(setting, wanted, value)
    }


def why_not_changed(setting: str, expected: Expected, found: FoundTopic) -> str | None:
    """Return why a setting is not changed to what is declared; None if nothing can be lost by it.

    The setting is not as declared.
    """
    value, wanted = str(found.value(setting)), expected.config[setting]
    if setting == POLICY:
        return _why_not_policy(
            policies(value), policies(wanted), is_own_store=expected.is_own_store
        )
    if setting == IN_SYNC:
        return _why_not_in_sync(int(wanted), found)
    if setting == UNCLEAN:
        return None if wanted == "false" else "an unclean election loses records"
    if setting == TIMESTAMPS:
        return None if wanted == "LogAppendTime" else "retention would count from producers' clocks"
    if setting in AT_LEAST | FREE:
        return None
    return "whether records can be lost by it is not known"


def policies(text: str) -> frozenset[str]:
    """Return the policies of a list; Kafka takes them in any order."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _why_not_policy(
    found: frozenset[str], wanted: frozenset[str], *, is_own_store: bool
) -> str | None:
    if wanted < found:  # one way less in which records go
        return None
    if wanted == {"compact"}:
        return (
            None
            if is_own_store
            else "Kafka would remove records without a key, and all but the last of each key: other"
            " readers may need them"
        )
    return "Kafka would begin to delete records by their age and size"


def _why_not_in_sync(wanted: int, found: FoundTopic) -> str | None:
    if found.replicas <= wanted:
        return (
            f"with {counted(found.replicas, 'replica')}, nothing could be written while one broker"
            " is away: add replicas first"
        )
    if found.in_sync < wanted:
        only = counted(found.in_sync, "replica is", "replicas are")
        return f"only {only} in sync, and nothing could be written: wait for more"
    return None


def _same(expected: str, found: str) -> bool:
    if _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(found):
        return float(expected) == float(found)
    return expected.lower() == found.lower()
