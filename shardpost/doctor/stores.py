"""The topics that nothing can replace: whether they are what they were (docs/stores.md)."""

from collections.abc import Collection, Iterator
from datetime import datetime

from shardpost.doctor.finding import Finding, ok, refused, unknown
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.topic_names import TopicName
from shardpost.topics.stores import inspect_stores
from shardpost.weekly_email.ledger_guard import require_ledger
from shardpost.weekly_email.model.week import IsoWeek

LEDGER: TopicName = "weekly-emails"
# Not the command that its error names: clients may be mailed twice by it, so a person decides.
DECIDE_LEDGER = "docs/weekly-email.md, The ledger was lost: a person decides"
STORES: tuple[TopicName, ...] = ("dead-letters", "parking-lot", "run-commands", LEDGER)


def check(settings: Settings, existing: Collection[str], now: datetime) -> Iterator[Finding]:
    """Check each store as the job that uses it does; the ledger for the last week that ended."""
    week = IsoWeek.last_ended(now)
    for name in STORES:
        topic = settings.topic(name)
        if topic not in existing:
            yield unknown(f"store {topic}", "not checked: the topic is missing")
        else:
            yield _check_store(settings, name, week)


def _check_store(settings: Settings, name: TopicName, week: IsoWeek) -> Finding:
    check_name = f"store {settings.topic(name)}"
    try:
        if name == LEDGER:
            require_ledger(settings, week)
        else:
            inspect_stores(settings, name)
    except ShardpostError as problem:
        return refused(check_name, problem, DECIDE_LEDGER if name == LEDGER else None)
    return ok(check_name, "is compacted, and has lost nothing that is known of")
