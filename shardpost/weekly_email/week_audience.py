"""Who is in a week's audience, without a JVM: as it was frozen, or of an early week as of now."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.kafka.partitioning import partition_of
from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks, ledger_marks
from shardpost.weekly_email.model.audience import why_no_mail_can_be_written
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek

# Why a client is open of which the ledger says nothing.
NOT_MAILED = "not mailed yet"


@dataclass(frozen=True)
class EarlyAudience:
    """The audience of a week that was begun early and is not frozen: who held as of an instant."""

    source: Snapshot
    as_of: datetime

    @property
    def snapshot(self) -> int:
        """The number of the snapshot that it is of, named as a frozen week names it."""
        return self.source.number


@dataclass(frozen=True)
class ShardAudience:
    """The clients of one shard, and of an early week why no mail can be written to some yet."""

    clients: list[str] = field(default_factory=list)
    without_contact: dict[str, str] = field(default_factory=dict)


WeekAudience = FrozenWeek | EarlyAudience | None


def audience_of(settings: Settings, week: IsoWeek, now: datetime) -> WeekAudience:
    """Return the audience of a week; None if no run has begun it.

    Of an early week it is the one that a run of now would have: as of now, of the week's end, or
    of the time up to which the newest snapshot has all records, whichever is first.
    """
    if frozen := frozen_weeks.find(settings, week):
        return frozen
    if not any(mark.week == str(week) for mark in ledger_marks.list_all(settings)):
        return None
    snapshot = snapshots.current(settings)
    return EarlyAudience(snapshot, min(now, week.end, snapshot.looked_at))


def by_shard(
    settings: Settings, audience: WeekAudience, partitions: int
) -> Callable[[int], ShardAudience]:
    """Return a function that returns the audience of a shard.

    Of an audience that was erased nobody is known any more. ShardpostError if it was frozen with
    another number of partitions.
    """
    match audience:
        case FrozenWeek():
            if audience.audience_erased_at is not None:
                return lambda _shard: ShardAudience()
            audience.require_shards(partitions)
            return lambda shard: ShardAudience(frozen_weeks.clients(settings, audience, shard))
        case EarlyAudience():
            found = _early(settings, audience, partitions)
            return lambda shard: found.get(shard, ShardAudience())
        case None:
            return lambda _shard: ShardAudience()


def _early(
    settings: Settings, audience: EarlyAudience, partitions: int
) -> dict[int, ShardAudience]:
    found: dict[int, ShardAudience] = defaultdict(ShardAudience)
    for client, email, has_contact in _holding(settings, audience):
        shard = found[partition_of(client, partitions)]
        shard.clients.append(client)
        if why := why_no_mail_can_be_written(email, has_contact=has_contact):
            shard.without_contact[client] = why
    return found


def _holding(
    settings: Settings, audience: EarlyAudience, client: str | None = None
) -> Iterable[tuple[str, str | None, bool]]:
    from shardpost.holders.spark.held_positions import holding_clients  # imports PySpark

    for batch in holding_clients(settings, audience.source, audience.as_of, client):
        columns = (batch.column(name).to_pylist() for name in ("client", "email", "has_contact"))
        yield from zip(*columns, strict=True)


def why_open(settings: Settings, audience: WeekAudience, client: str) -> str | None:
    """Return why a member of the audience is open yet; None if the client is no known member."""
    match audience:
        case FrozenWeek(audience_erased_at=None):
            return NOT_MAILED if frozen_weeks.member(settings, audience, client) else None
        case EarlyAudience():
            for _, email, has_contact in _holding(settings, audience, client):
                return why_no_mail_can_be_written(email, has_contact=has_contact) or NOT_MAILED
    return None
