"""How Kafka compacts the inputs, and when it may have deleted tombstones before they were read.

Kafka keeps a tombstone readable for `min.compaction.lag.ms` and then `delete.retention.ms`, at
least. Who reads later than that may miss it, and nothing but a hole among the offsets says so: the
low watermark of a compacted topic does not move. A position that such a tombstone closed would stay
open for ever. Markers of transactions, and aborted records, leave holes too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shardpost.delta.snapshot import NEVER, Cleaning, Snapshot
from shardpost.errors import NEEDS_ATTENTION, ShardpostError, shown
from shardpost.kafka.records import OffsetRange, Offsets, Watermarks
from shardpost.wording import duration_text

RECONCILE = "`shardpost compact --reconcile`"
EMPTY_TABLES = (
    "compact into empty tables (another SHARDPOST_TABLES) and an empty topic share-holders"
    " (another SHARDPOST_TOPIC_SHARE_HOLDERS)"
)


# A segment is written to for a week by default. That one is closed, and cleaned, within so short a
# time of what came into it is possible, and rare; holes of transactions are there all the time.
SEGMENT_OPEN = timedelta(hours=1)


class TombstonesLostError(ShardpostError):
    """Kafka may have deleted tombstones that were not read: holders could be wrong."""

    exit_code = NEEDS_ATTENTION


def _last_read(last: Snapshot, now: datetime) -> str:
    """Return when the inputs were last read to their ends, and how long ago."""
    if last.looked_at == NEVER:
        return "It is not known when the inputs were last read to the end"
    return (
        f"The inputs were last read at {last.looked_at:%Y-%m-%d %H:%M} UTC,"
        f" {duration_text(now - last.looked_at)} ago"
    )


class UncertainKeysError(ShardpostError):
    """Kafka may have deleted good records of keys, of which only undecodable ones are left."""

    exit_code = NEEDS_ATTENTION


@dataclass(frozen=True)
class Compaction:
    """How Kafka compacts a topic: its cleanup.policy, and for how long it keeps tombstones.

    `lag` is min.compaction.lag.ms, `retention` is delete.retention.ms. `segment` is how long it
    writes to one segment: segment.ms, or max.compaction.lag.ms if that is shorter.
    """

    policy: frozenset[str]
    lag: timedelta
    retention: timedelta
    segment: timedelta

    def may_have_lost(self, last: Snapshot, now: datetime) -> bool:
        """Tell whether Kafka may have deleted a tombstone that was not read at the last look.

        Nothing after an open transaction is deleted before that has ended. After a look at an
        unknown time it may, however long it keeps them.
        """
        deletable = max(last.looked_at + self.lag, last.read_at)
        is_over = last.read_at == NEVER or now - deletable > self.retention
        return self.is_compacted and is_over

    def may_have_superseded(self, last: Snapshot, now: datetime) -> bool:
        """Tell whether Kafka may have deleted a record since the last look for a later one.

        That is a matter of `lag`, and of the segment that is written to, which the cleaner does not
        touch: what came within SEGMENT_OPEN is taken to be in that one. Behind an open transaction
        it may be over already.
        """
        kept = max(self.lag, min(self.segment, SEGMENT_OPEN))
        return self.is_compacted and now - last.looked_at > kept

    def stricter(self, before: Cleaning | None) -> "Compaction":
        """Return the strictest settings since an earlier look, at which `self` was in force.

        Whoever raises a setting afterwards brings nothing back that was deleted until then.
        """
        if before is None:
            return self
        stored = (before.lag_ms, before.retention_ms, before.segment_ms)
        lag, retention, segment = (timedelta(milliseconds=n) for n in stored)
        return replace(
            self,
            policy=self.policy | ({"compact"} & {*before.policy}),
            lag=min(self.lag, lag),
            retention=min(self.retention, retention),
            segment=min(self.segment, segment),
        )

    @property
    def cleaning(self) -> Cleaning:
        """The form in which a snapshot has it."""
        times = (self.lag, self.retention, self.segment)
        in_ms = (one // timedelta(milliseconds=1) for one in times)
        return Cleaning(tuple(sorted(self.policy)), *in_ms)

    @property
    def is_compacted(self) -> bool:
        """Whether Kafka deletes records that have a later one of their key."""
        return "compact" in self.policy


def compaction_of(config: Mapping[str, str | None]) -> Compaction:
    """Return how Kafka compacts a topic, by its effective configuration, else by defaults."""
    policy = (config.get("cleanup.policy") or "").split(",")
    lag, retention, *segment = (
        timedelta(milliseconds=min(int(config.get(name) or default), _LONGEST_MS))
        for name, default in _DEFAULTS_MS.items()
    )
    return Compaction(frozenset(filter(None, map(str.strip, policy))), lag, retention, min(segment))


_DEFAULTS_MS = {
    "min.compaction.lag.ms": 0,
    "delete.retention.ms": 86_400_000,
    "segment.ms": 7 * 86_400_000,
    "max.compaction.lag.ms": 2**63 - 1,
}
# A hundred years: Kafka takes any number of 64 bits, and times of Python do not.
_LONGEST_MS = 100 * 365 * 86_400_000


@dataclass(frozen=True)
class Reconciliation:
    """What a run needs that closes what the inputs do not hold any more.

    `visible` are all offsets of the inputs up to the ends of the run; `closes_at` is {input: the
    timestamp of the records that close}.
    """

    visible: list[OffsetRange]
    closes_at: Mapping[str, datetime]


def require_tombstones_kept(
    read: Mapping[str, tuple[int, int]],
    compactions: Mapping[str, Compaction],
    last: Snapshot,
    now: datetime,
) -> None:
    """Raise TombstonesLostError if tombstones after the last look may be missing.

    `read` is {input: (how many offsets a run read, how many records these have)}.
    """
    suspect: dict[str, Compaction] = {}
    suspicions = []
    for topic, (offsets, records) in read.items():
        compaction = compactions[topic]
        if records < offsets and compaction.may_have_lost(last, now):
            suspect[topic] = compaction
            kept = duration_text(compaction.lag + compaction.retention)
            suspicions.append(
                f"{topic} has records at {records} of the {offsets} offsets after the last"
                f" snapshot, and keeps tombstones for {kept}, or did so at that time"
                " (min.compaction.lag.ms + delete.retention.ms)"
            )
    if suspect:
        raise TombstonesLostError(
            f"tombstones may have been lost: {'; '.join(suspicions)}. {_last_read(last, now)}."
            " Positions closed since then would remain open, so nothing was changed."
            f" {way_out(suspect)}"
        )


# So many keys are named in an error; the log has more.
MAX_NAMED_KEYS = 10


@dataclass(frozen=True)
class NamedKeys:
    """Keys of one input: how many, and the first of them by name."""

    count: int = 0
    keys: Sequence[str] = ()

    def __str__(self) -> str:
        named = list(map(shown, self.keys[:MAX_NAMED_KEYS]))
        more = f" and {self.count - len(named)} more" if self.count > len(named) else ""
        return f"{', '.join(named)}{more}"


def require_certain(uncertain: Mapping[str, NamedKeys], last: Snapshot, now: datetime) -> None:
    """Raise UncertainKeysError if there are any; by topic."""
    suspect = {topic: keys for topic, keys in uncertain.items() if keys.count}
    if suspect:
        named = "; ".join(f"{topic}: {keys}" for topic, keys in sorted(suspect.items()))
        raise UncertainKeysError(
            "good records may have been lost: since the last snapshot, these keys have only"
            f" undecodable records, after offsets without a record: {named}."
            f" {_last_read(last, now)}; after min.compaction.lag.ms Kafka deletes a record, even a"
            " tombstone, once a later record of its key exists, even an undecodable one. Holders"
            " could be wrong, so nothing was changed. Write new records for these keys and compact"
            f" again, or run {RECONCILE}, which leaves these keys unchanged and names them"
            " (docs/compaction.md)"
        )


def way_out(compactions: Mapping[str, Compaction]) -> str:
    """Return what to do where the tables cannot simply catch up with these topics."""
    others = _not_only_compacted(compactions)
    if not others:
        return (
            f"Run {RECONCILE}: it keeps what the topics contain now, and closes all other keys "
            "(docs/compaction.md)"
        )
    return (
        f"{RECONCILE} needs topics with cleanup.policy=compact only, but {'; '.join(others)}:"
        f" {EMPTY_TABLES}"
    )


def require_only_compacted(compactions: Mapping[str, Compaction]) -> None:
    """Raise ShardpostError, naming all, if one of the topics is not compacted only."""
    others = _not_only_compacted(compactions)
    if others:
        raise ShardpostError(
            "a reconciliation closes keys that are no longer in a topic, but"
            f" {'; '.join(others)}, so a missing key may be open; expected cleanup.policy=compact."
            " Nothing was changed. Correct the topic if its records are complete, else"
            f" {EMPTY_TABLES}"
        )


def _not_only_compacted(compactions: Mapping[str, Compaction]) -> list[str]:
    return [
        f"{topic} has cleanup.policy={','.join(sorted(compaction.policy))}"
        for topic, compaction in sorted(compactions.items())
        if compaction.policy != {"compact"}
    ]


def require_all_partitions(absent: Mapping[str, Collection[str]], same: Collection[str]) -> None:
    """Raise ShardpostError if Kafka does not show all partitions of a topic that is the `same`.

    Kafka never removes partitions of a topic: so it has not told all of them, for now.
    """
    texts = [text for topic, found in absent.items() if topic in same for text in found]
    if texts:
        raise ShardpostError(
            f"Kafka does not show all partitions of the topics that were read: {'; '.join(texts)}."
            " Nothing was changed. Run `shardpost compact` again; if this persists, check the"
            " state of the brokers"
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
            f"{', '.join(empty)}: a different topic than before, and empty: a reconciliation"
            " would close all of its keys. Nothing was changed. Fill it first, correct the"
            f" setting that names it, or {EMPTY_TABLES}"
        )


def require_no_gaps(problems: Collection[str], compactions: Mapping[str, Compaction]) -> None:
    """Raise ShardpostError if there are problems; `compactions` are of the topics concerned."""
    if problems:
        raise ShardpostError(
            f"the tables cannot catch up with the input topics: {'; '.join(problems)}. Records"
            " were deleted, the topic was recreated, or it is on another cluster: nothing was"
            f" changed. {way_out(compactions)}"
        )
