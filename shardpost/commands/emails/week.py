"""What the options of `shardpost emails` start from: a week's audience, and its ledger."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import click

from shardpost.errors import ShardpostError
from shardpost.printable import one_line
from shardpost.settings import Settings
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.closed_weeks import ClosedWeek
    from shardpost.weekly_email.delivery_status import WeekAudience


@dataclass(frozen=True)
class FoundWeek:
    """A week, its audience (None if no run has begun it), and the partitions of its ledger.

    `closed` says how it was closed, if it was: then the ledger has nothing of it.
    """

    settings: Settings
    week: IsoWeek
    audience: "WeekAudience"
    partitions: int
    closed: "ClosedWeek | None" = None

    def is_whole(self) -> bool:
        """Tell whether the ledger has all that was written of the week; else warn of what not."""
        from shardpost.weekly_email.ledger_guard import require_ledger

        try:
            require_ledger(self.settings, self.week)
        except ShardpostError as error:
            click.echo(one_line(f"shardpost: {error}"), err=True)
            return False
        return True


def find_week(settings: Settings, week: IsoWeek, now: datetime) -> FoundWeek:
    """Return the week as of now."""
    from shardpost.kafka.offsets import partition_counts
    from shardpost.weekly_email import closed_weeks
    from shardpost.weekly_email.delivery_status import audience_of

    topic = settings.topic("weekly-emails")
    partitions = partition_counts(settings, [topic])[topic]
    closed = closed_weeks.find(settings, week, now)
    audience = None if closed else audience_of(settings, week, now)
    return FoundWeek(settings, week, audience, partitions, closed)


def has_run(found: FoundWeek) -> bool:
    """Tell whether a run began the week: it has an audience, or somebody is in its ledger."""
    from shardpost.weekly_email.delivery_status import status_by_shard

    if found.audience is not None or found.closed is not None:
        return True
    shards = status_by_shard(found.settings, found.week, found.audience, found.partitions)
    return any(shard.counts.clients for shard in shards)


def no_run(week: IsoWeek) -> str:
    """Return what is said of a week that no run has begun."""
    return f"{week}: no run of this week: nobody was mailed"
