"""A client is erased while a week is mailed early: whoever began before does not mail it after."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.kafka.records import partition_of
from shardpost.maintenance import erasure
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email.email_job import EmailRequest, Mode, ResendPolicy
from shardpost.weekly_email.email_run import prepare, send
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, erased_id
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.prepared_week import PreparedWeek
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.week_state import WeekState
from tests.support import decisions
from tests.support.at_step import at_step
from tests.support.contact_tables import AT, WHO, erased, write
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.plain_ledger import fold
from tests.support.written_weeks import record

WEEK = IsoWeek(2026, 47)
NOW = AT + timedelta(minutes=1)
REQUEST = EmailRequest(WEEK, NOW, Mode.SEND, early=True)
SHARD = partition_of(WHO, 2)


KAFKA = {"partitions": 2, "kafka_timeout": 1, "lock_wait": 0.1}


@pytest.fixture
def at(kafka: MemoryKafka) -> Settings:
    """Give a home with a contact of the client, and nothing of it in the ledger."""
    write(kafka.settings, folded=True)
    return kafka.settings


@pytest.fixture
def begun(at: Settings) -> PreparedWeek:
    """Give the week as a run has prepared it that mails nobody yet."""
    return prepare(installed(at), REQUEST, WeekState(installed(at), WEEK))


def test_a_run_that_read_the_contact_before_refuses_behind_its_locks(
    at: Settings, begun: PreparedWeek
) -> None:
    assert begun.frozen is None
    assert erased(at).postponed == {}
    options = SendOptions(begun.context, ResendPolicy(), NOW, time.time())
    with pytest.raises(ShardpostError, match="a client was erased since this run began"):
        send(installed(at), begun, options, REQUEST)
    assert prepare(installed(at), REQUEST, WeekState(installed(at), WEEK)).snapshot.has_contacts


def test_a_run_that_began_before_a_swap_mails_nobody_of_the_tables_before_it(
    at: Settings, begun: PreparedWeek
) -> None:
    last = snapshots.current(installed(at).tables)
    number = last.number + 1
    swapped = replace(last, number=number, rule=Rule("GB"), rebuilt_in=number)
    snapshots.commit(installed(at).tables, replace(swapped, set_country=at.country))
    options = SendOptions(begun.context, ResendPolicy(), NOW, time.time())
    with pytest.raises(ShardpostError, match="tables were swapped, or who holds was changed"):
        send(installed(at), begun, options, REQUEST)
    assert prepare(installed(at), REQUEST, WeekState(installed(at), WEEK)).context.country == "GB"


@pytest.mark.usefixtures("begun")
def test_while_the_week_is_mailed_nothing_is_on_record(at: Settings) -> None:
    with WeekState(installed(at), WEEK).locked([0]):
        result = erased(at)
    assert "is already running" in result.postponed[str(WEEK)]
    assert list(decisions.list_all(at)) == []
    assert erased(at).postponed == {}
    assert len(list(decisions.list_all(at))) == 1


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize("step", ["tables", "letters"])
def test_a_mail_that_was_sent_meanwhile_is_put_under_the_hash(
    at: Settings, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    record(at, WEEK, WHO, DeliveryState.FAILED)
    hook = at_step(monkeypatch, erasure)
    hook(step, lambda: record(at, WEEK, WHO, DeliveryState.SENT, f"to {WHO}"))
    assert erased(at).ledger == [str(WEEK)]
    [(client, entry)] = fold(ShardLedger(installed(at).kafka, WEEK, SHARD).entries()).items()
    assert (client, entry.state) == (erased_id(WHO), DeliveryState.SENT)
    assert WHO not in (entry.reason or "")
