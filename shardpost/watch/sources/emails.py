"""The weekly e-mail: what became of it in the weeks that were frozen last."""

from datetime import datetime

from shardpost.kafka.topic_metadata import partition_counts
from shardpost.settings import Settings
from shardpost.watch.model.found import Found
from shardpost.watch.model.rules import EMAILS_FAILED, EMAILS_UNKNOWN
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.delivery_status import status_by_shard
from shardpost.weekly_email.ledger_guard import is_being_sent
from shardpost.weekly_email.model.limits import too_many, totals
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import status_document

WEEKS = 2
MOST_NAMED = 5


def look(settings: Settings, _now: datetime) -> Found:
    """Measure the weeks that were frozen last and have their audience."""
    found = Found()
    frozen = [one for one in frozen_weeks.list_all(settings) if one.audience_erased_at is None]
    if not frozen:
        return found
    topic = settings.topic("weekly-emails")
    partitions = partition_counts(settings, [topic])[topic]
    for week in frozen[:WEEKS]:
        _look_at(found, settings, week, partitions)
    return found


def _look_at(found: Found, settings: Settings, frozen: FrozenWeek, partitions: int) -> None:
    week = IsoWeek.parse(frozen.week)
    is_sent = is_being_sent(settings, week)  # asked first: who is `sending` then is not unknown
    document = status_document(week, status_by_shard(settings, week, frozen, partitions))
    for state, clients in totals(document["shards"]).items():
        found.measure("emails", clients, week=str(week), state=state)
    if is_sent:
        found.unmeasured.add("emails")
        return
    if unknown := document["unknown"]:
        named = ", ".join([*unknown[:MOST_NAMED], *(["…"] if len(unknown) > MOST_NAMED else [])])
        text = f"it is not known whether {len(unknown)} clients got the e-mail: {named}"
        found.conditions.append(EMAILS_UNKNOWN.broken(str(week), text))
    for reason in too_many(settings, week, [document]):
        found.conditions.append(EMAILS_FAILED.broken(str(week), reason))
