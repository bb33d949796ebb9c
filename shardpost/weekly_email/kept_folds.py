"""Folds of the ledger that are kept in memory: who asks again waits only for what is new.

For the page, whose process goes on. A command, which ends, asks `delivery_status` alone; what both
say is the same. Of a week with 200,000 clients some 10 MB are kept.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from shardpost.delta.table_log import newest_version
from shardpost.errors import ShardpostError
from shardpost.instants import instant_of
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import first_offsets_since, watermarks
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import NO_TIMESTAMP
from shardpost.kafka.topic_metadata import topic_ids
from shardpost.weekly_email.delivery_status import (
    EarlyAudience,
    ListedClient,
    WeekStatus,
    status_of,
)
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import LedgerReasons, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, decode
from shardpost.weekly_email.model.ledger_index import (
    WHY_UNKNOWN,
    LedgerIndex,
    Members,
    sending_to_unknown,
)
from shardpost.weekly_email.model.week import FrozenWeek
from shardpost.weekly_email.model.week_report import EXPLAINED, ShardStatus
from shardpost.weekly_email.model.week_tables import audience_table
from shardpost.weekly_email.week_state import first_offsets

MOST_WEEKS = 6
# Threads that read: more would wait for each other's Python.
AT_ONCE = 3
Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The values that were asked for last, a few."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return what is kept under a key."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value, in place of the one that was not asked for for the longest time."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


@dataclass(frozen=True)
class ShardFold:
    """The ledger of one shard of a week, up to an offset; `reasons` of who was not mailed."""

    index: LedgerIndex
    reasons: LedgerReasons
    up_to: int


@dataclass(frozen=True)
class ShardMembers:
    """The audience of one shard; of an early week, also those who cannot be mailed yet."""

    clients: Members
    without_contact: Members


# Who asks for a page waits so long for a ledger that is read for the first time.
WAIT_SECONDS = 0.25


class KeptFolds:
    """Folds, audiences and counts of the weeks that were asked for last."""

    def __init__(self) -> None:
        self._folds: Kept[dict[int, ShardFold]] = Kept(MOST_WEEKS)
        self._members: Kept[dict[int, ShardMembers]] = Kept(MOST_WEEKS)
        self._statuses: Kept[dict[int, tuple[ShardFold, ShardMembers | None, ShardStatus]]] = Kept(
            MOST_WEEKS
        )
        self._reading: Kept[threading.Thread] = Kept(MOST_WEEKS)

    def is_read(self, status: WeekStatus) -> bool:
        """Tell whether `by_shard` is quick now; if not, its folds are being read meanwhile."""
        thread = self._reading.get(status.week)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(target=self._read, args=(status,), daemon=True)
            thread.start()
            self._reading.put(status.week, thread)
        thread.join(WAIT_SECONDS)
        return not thread.is_alive()

    def _read(self, status: WeekStatus) -> None:
        with suppress(ShardpostError):  # who asks is told then
            self.by_shard(status)

    def in_state(
        self, status: WeekStatus, state: str, shards: Sequence[int]
    ) -> Iterator[ListedClient]:
        """Yield what `status.in_state` does of those shards."""
        if state == DeliveryState.SENT:
            starts = first_offsets(status.installation, status.week, status.partitions)
            yield from status.in_state(state, shards, starts)
            return
        folds = self.folds_of(status)
        for shard in shards:
            fold = folds[shard]
            if state == "open":
                those = status.open_clients(shard, fold.index, fold.reasons)
            else:
                those = sorted(_listed(fold, state))
            for client, reason in those:
                yield ListedClient(client, shard, reason)

    def by_shard(self, status: WeekStatus) -> list[ShardStatus]:
        """Return what `status.by_shard()` does."""
        folds = self.folds_of(status)
        has_erased = any(fold.index.has_erased for fold in folds.values())
        members = self._members_of(status, with_erased=has_erased)
        kept = self._statuses.get(status.week) or {}
        found = {}
        for shard, fold in sorted(folds.items()):
            of = (fold, members.get(shard))
            before = kept.get(shard)
            is_same = before is not None and before[0] is of[0] and before[1] is of[1]
            found[shard] = before if before and is_same else (*of, _status(shard, *of))
        return [one for _, _, one in self._statuses.put(status.week, found).values()]

    def folds_of(self, status: WeekStatus) -> dict[int, ShardFold]:
        """Return the fold of each shard, up to the last stable offset as it is now."""
        installation, topic = status.installation, status.installation.kafka.topic("weekly-emails")
        topic_id = topic_ids(installation.kafka, [topic]).get(topic)
        key = (installation.kafka.bootstrap, topic, topic_id, str(status.week), status.partitions)
        known = self._folds.get(key) or {}
        ends = watermarks(installation.kafka, {topic: status.partitions}, committed=True)[topic]
        if any(fold.up_to > ends[shard][1] for shard, fold in known.items()):
            known = {}  # Kafka has lost records
        starts = {} if known else first_offsets(installation, status.week, status.partitions)

        def fold(shard: int) -> ShardFold:
            end, before = ends[shard][1], known.get(shard)
            if before is not None and before.up_to == end:
                return before
            return _fold(status, shard, before, starts.get(shard, 0), end)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return self._folds.put(key, dict(zip(ends, pool.map(fold, ends), strict=True)))

    def _members_of(self, status: WeekStatus, *, with_erased: bool) -> dict[int, ShardMembers]:
        match status.audience:
            case FrozenWeek(audience_erased_at=None) as frozen:
                frozen.require_shards(status.partitions)
                version = newest_version(status.installation.tables, audience_table(frozen.week))
                of: tuple[Hashable, ...] = (frozen.week, version, frozen.frozen_at)
            case EarlyAudience() as early:
                of = (str(status.week), early.snapshot, early.as_of)
            case _:
                return {}
        key = (status.installation.tables.root, *of, status.partitions, with_erased)
        if found := self._members.get(key):
            return found
        return self._members.put(key, _read_members(status, with_erased=with_erased))


def _listed(fold: ShardFold, state: str) -> Iterator[tuple[str, str | None]]:
    if state == DeliveryState.UNKNOWN:
        for entry in fold.index.delivery_unknown.values():
            is_sending = entry.state is DeliveryState.SENDING
            yield entry.client, WHY_UNKNOWN if is_sending else entry.reason
        return
    for (client, _), (own, reason) in fold.reasons.last.items():
        if own == state:
            yield client, reason


def _status(shard: int, fold: ShardFold, members: ShardMembers | None) -> ShardStatus:
    index = replace(fold.index, codes=fold.index.codes.copy())
    sending_to_unknown(index)
    open_clients = index.count_open(members.clients) if members else 0
    without = index.count_open(members.without_contact) if members else 0
    return status_of(shard, index, fold.reasons, open_clients, without)


def _fold(
    status: WeekStatus, shard: int, before: ShardFold | None, start: int, end: int
) -> ShardFold:
    """Read on from where `before` ends; what comes behind `end` is read once more next time."""
    reasons = LedgerReasons(frozenset({None, *EXPLAINED}))
    if before is not None:
        start, reasons.last = before.up_to, {**before.reasons.last}
    entries = ShardLedger(status.installation.kafka, status.week, shard).entries(start=start)
    index = LedgerIndex.fold(reasons.watch(entries), before.index if before else None)
    return ShardFold(index, reasons, end)


def _read_members(status: WeekStatus, *, with_erased: bool) -> dict[int, ShardMembers]:
    installation = status.installation
    if isinstance(status.audience, EarlyAudience):
        shards = status.audience.by_shard(installation.tables, status.partitions)
        pairs = {n: (one.clients, [*one.without_contact]) for n, one in shards.items()}
    else:
        assert status.audience is not None  # noqa: S101 - its caller has looked
        of_all = FrozenWeeks(installation.tables).clients_by_shard(status.audience)
        pairs = {shard: (clients, []) for shard, clients in of_all.items()}
    return {
        shard: ShardMembers(*(Members.of(part, with_erased=with_erased) for part in parts))
        for shard, parts in pairs.items()
    }


PACE_SECONDS = 120


@dataclass(frozen=True)
class Pace:
    """Mails of a week that were sent in the last `seconds`, and the newest record of it."""

    sent: int
    seconds: float
    newest: datetime | None

    @property
    def per_second(self) -> float:
        """Mails a second."""
        return self.sent / self.seconds


def pace_of(status: WeekStatus, now: datetime) -> Pace:
    """Return how quickly a week is being mailed, by the timestamps of the ledger's records."""
    installation, topic = status.installation, status.installation.kafka.topic("weekly-emails")
    since = now - timedelta(seconds=PACE_SECONDS)
    partitions = [TopicPartition(topic, shard) for shard in range(status.partitions)]
    starts = first_offsets_since(
        installation.kafka, partitions, int(since.timestamp() * 1000)
    ).offsets
    counts: dict[int, int] = defaultdict(int)
    newest = oldest = NO_TIMESTAMP
    for partition, start in starts.items():
        if start < 0:
            continue
        for message in read_to_end(installation.kafka, partition, start=start, committed=True):
            entry = decode(message.key(), message.value(), status.week)
            if entry is None:
                continue
            at = message.timestamp()[1]
            newest, oldest = max(newest, at), at if oldest == NO_TIMESTAMP else min(oldest, at)
            counts[partition.partition] += entry.state is DeliveryState.SENT
    if newest == NO_TIMESTAMP:
        return Pace(0, PACE_SECONDS, None)
    # A run that has just begun is as quick as it was since then.
    seconds = min(PACE_SECONDS, max(1.0, now.timestamp() - oldest / 1000))
    return Pace(sum(counts.values()), seconds, instant_of(newest))
