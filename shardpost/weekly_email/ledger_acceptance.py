"""A person's decision to mail a week by a ledger that has lost records, as it is now."""

from contextlib import closing
from datetime import datetime

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.kafka.records import Outgoing
from shardpost.kafka.transactions import Transactions
from shardpost.settings import Settings
from shardpost.topics.stores import describe_stores
from shardpost.weekly_email import closed_weeks, ledger_marks
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger_mark import LedgerMark
from shardpost.weekly_email.shard_locks import locked


def accept(settings: Settings, week: IsoWeek, who: str, why: str, now: datetime) -> None:
    """Take the ledger of a week as it is now, on record.

    LockedError beside a run; WeekClosedError for a week that is closed.
    """
    closed_weeks.require_open(settings, week, now)
    [ledger] = describe_stores(settings, [settings.topic("weekly-emails")])
    ledger.require_compacted()
    with locked(settings, week, range(ledger.partitions)):
        decision = Decision(str(week).encode(), Kind.RESOLVED, who, now, why)
        headers = {"as": b"ledger accepted", "topic-id": ledger.topic_id.encode()}
        _write(settings, decisions_topic.written(settings, decision, headers), week)
        mark = LedgerMark(str(week), ledger.name, ledger.topic_id, ledger.low, now, who)
        ledger_marks.add(settings, mark)


def _write(settings: Settings, record: Outgoing, week: IsoWeek) -> None:
    with closing(
        Transactions(
            settings,
            f"{settings.topic('weekly-emails')}/{week}/accept",
            fenced=f"{week}: somebody else accepts its ledger: nothing was changed",
            failed=f"{week}: the decision cannot be written ({{reason}}): nothing was changed",
        )
    ) as transactions:
        transactions.open()
        transactions.write([record])
