"""From a request to a week that can be mailed: the checks, and the freeze of its audience."""

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import ShardpostError
from shardpost.kafka.offsets import partition_counts
from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.model import shard_ranges
from shardpost.weekly_email.model.email_context import Sender
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.spark.freeze_audience import freeze


def prepare(request: EmailRequest, settings: Settings) -> PreparedWeek:
    """Return the week with its audience, frozen by this run if the request says so.

    UsageError for settings that no mail can be written with, and for shards that do not exist;
    ShardpostError for a week that has not ended, or that the newest snapshot does not cover.
    """
    sender = Sender.of(mail_from=settings.mail_from, unsubscribe_url=settings.unsubscribe_url)
    as_of = request.week.as_of(request.now, early=request.early)
    topic = settings.topic("weekly-emails")
    partitions = partition_counts(settings, [topic])[topic]
    chosen = shard_ranges.parse(request.shards, partitions)
    snapshot = snapshots.current(settings)
    week = PreparedWeek(request.week, as_of, sender, snapshot, partitions, chosen)
    if frozen := frozen_weeks.find(settings, request.week):
        return week.with_frozen(frozen)
    if not request.early:
        _require_covered(snapshot, request.week)
    return week.with_frozen(freeze(settings, week, request.now)) if request.freezes else week


def _require_covered(snapshot: Snapshot, week: IsoWeek) -> None:
    if snapshot.looked_at < week.end:
        raise ShardpostError(
            f"week {week} ended {week.end:%Y-%m-%d %H:%M} UTC, and snapshot {snapshot.number} is of"
            f" {snapshot.looked_at:%Y-%m-%d %H:%M} UTC: run `shardpost compact` first"
        )
