"""How Kafka compacts the inputs, and when it may have deleted tombstones before they were read.

Kafka keeps a tombstone readable for `min.compaction.lag.ms` and then `delete.retention.ms`, at
least. Who reads later than that may miss it, and nothing but a hole among the offsets says so: the
low watermark of a compacted topic does not move. A position that such a tombstone closed would stay
open for ever. Markers of transactions, and aborted records, leave holes too.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.kafka.offset_ranges import Offsets, Watermarks

RECONCILE = "`shardpost compact --reconcile`"
EMPTY_TABLES = (
    "compact into empty tables (another SHARDPOST_TABLES) and an empty topic share-holders"
    " (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
)


class TombstonesLostError(ShardpostError):
    """Kafka may have deleted tombstones that were not read: holders could be wrong."""

    exit_code = NEEDS_ATTENTION


@dataclass(frozen=True)
class Compaction:
    """How Kafka compacts a topic: its cleanup.policy, and for how long it keeps tombstones.

    `lag` is min.compaction.lag.ms, `retention` is delete.retention.ms.
    """

    policy: frozenset[str]
    lag: timedelta
    retention: timedelta

    @property
    def is_only_compacted(self) -> bool:
        """Whether the topic always has the last record of each key, but for old tombstones."""
        return self.policy == {"compact"}

    def may_have_lost(self, looked_at: datetime, now: datetime) -> bool:
        """Tell whether Kafka may have deleted a tombstone that was written after `looked_at`."""
        return "compact" in self.policy and now - looked_at > self.lag + self.retention

    @property
    def policy_text(self) -> str:
        """The cleanup.policy."""
        return ",".join(sorted(self.policy))


def compaction_of(config: Mapping[str, str | None]) -> Compaction:
    """Return how Kafka compacts a topic of that effective configuration.

    What a service does not say has Kafka's default.
    """
    policy = (config.get("cleanup.policy") or "").split(",")
    lag, retention = (
        timedelta(milliseconds=min(int(config.get(name) or default), _LONGEST_MS))
        for name, default in _DEFAULTS_MS.items()
    )
    return Compaction(frozenset(filter(None, map(str.strip, policy))), lag, retention)


_DEFAULTS_MS = {"min.compaction.lag.ms": "0", "delete.retention.ms": "86400000"}
# A hundred years: Kafka takes any number of 64 bits, and times of Python do not.
_LONGEST_MS = 100 * 365 * 86_400_000


@dataclass(frozen=True)
class ReadTopic:
    """What a run read of one input: so many offsets, with so many records."""

    topic: str
    offsets: int
    records: int


def require_tombstones_kept(
    read: Iterable[ReadTopic],
    compactions: Mapping[str, Compaction],
    looked_at: datetime,
    now: datetime,
) -> None:
    """Raise TombstonesLostError if tombstones after `looked_at`, the last look, may be missing."""
    suspect = [
        (one, compactions[one.topic])
        for one in read
        if one.records < one.offsets and compactions[one.topic].may_have_lost(looked_at, now)
    ]
    if suspect:
        found = "; ".join(_suspicion(one, compaction) for one, compaction in suspect)
        raise TombstonesLostError(
            f"tombstones may have been lost: {found}. The inputs were last read at"
            f" {looked_at:%Y-%m-%d %H:%M} UTC, {_words(now - looked_at)} ago. Positions that were"
            " closed since would stay open, so nothing was changed."
            f" {way_out({one.topic: compaction for one, compaction in suspect})}"
        )


def _suspicion(read: ReadTopic, compaction: Compaction) -> str:
    kept = _words(compaction.lag + compaction.retention)
    return (
        f"{read.topic} has records at {read.records} of the {read.offsets} offsets after the last"
        f" snapshot, and keeps tombstones for {kept}"
        " (min.compaction.lag.ms + delete.retention.ms)"
    )


def way_out(compactions: Mapping[str, Compaction]) -> str:
    """Return what to do where the tables cannot simply catch up with these topics."""
    others = _not_only_compacted(compactions)
    if not others:
        return (
            f"Run {RECONCILE}: it takes what the topics hold now, and closes what they do not hold"
            " (docs/compaction.md)"
        )
    return (
        f"{RECONCILE} needs topics that are compacted only, and {'; '.join(others)}: {EMPTY_TABLES}"
    )


def require_only_compacted(compactions: Mapping[str, Compaction]) -> None:
    """Raise ShardpostError, naming all, if one of the topics is not compacted only."""
    others = _not_only_compacted(compactions)
    if others:
        raise ShardpostError(
            f"a reconciliation closes what a topic does not hold any more: {'; '.join(others)}, so"
            " what it does not hold may be open; expected cleanup.policy=compact. Nothing was"
            f" changed. Correct the topic if its records are whole, else {EMPTY_TABLES}"
        )


def _not_only_compacted(compactions: Mapping[str, Compaction]) -> list[str]:
    return [
        f"{topic} has cleanup.policy={compaction.policy_text}"
        for topic, compaction in sorted(compactions.items())
        if not compaction.is_only_compacted
    ]


def require_all_partitions(absent: Mapping[str, Collection[str]], same: Collection[str]) -> None:
    """Raise ShardpostError if Kafka does not show all partitions of a topic that is the `same`.

    Kafka never removes partitions of a topic: so it has not told all of them, for now.
    """
    texts = [text for topic, found in absent.items() if topic in same for text in found]
    if texts:
        raise ShardpostError(
            f"Kafka does not show all partitions of the topics that were read: {'; '.join(texts)}."
            " Nothing was changed. Run `shardpost compact` again; if it stays so, look at the state"
            " of the brokers"
        )


def require_records(restarted: Collection[str], read: Offsets, watermarks: Watermarks) -> None:
    """Raise ShardpostError if an input that was recreated is empty, and the former one was not.

    A reconciliation would close all that the tables hold of it.
    """
    empty = [
        topic
        for topic in sorted(restarted)
        if any(read.get(topic, {}).values())
        and all(low >= end for low, end in watermarks[topic].values())
    ]
    if empty:
        raise ShardpostError(
            f"{', '.join(empty)}: another topic than the one that was read, and empty: a"
            " reconciliation would close all that the tables hold of it. Nothing was changed. Fill"
            f" it first, correct the setting that names it, or {EMPTY_TABLES}"
        )


def require_no_gaps(problems: Collection[str], compactions: Mapping[str, Compaction]) -> None:
    """Raise ShardpostError if there are problems; `compactions` are of the topics concerned."""
    if problems:
        raise ShardpostError(
            f"the tables cannot catch up with the input topics: {'; '.join(problems)}. Records were"
            " deleted, or the topic was deleted and recreated, or is that of another cluster:"
            f" nothing was changed. {way_out(compactions)}"
        )


def _words(span: timedelta) -> str:
    """Return a span in its largest unit: 45 days, 3 hours, 10 s."""
    seconds = span.total_seconds()
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"
