"""`shardpost erase` on a real broker, by the command line."""

from datetime import timedelta

import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.holders.model.view_tables import OF_CONTACTS
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.command_line import CommandLine
from tests.support.contact_tables import NAME_OF_WHO, OTHER, WHO, write
from tests.support.letter_world import failed, original, put
from tests.support.written_weeks import begin, freeze, record

WEEK = IsoWeek(2026, 46)


@pytest.fixture
def ready(settings: Settings) -> Settings:
    """Give a home with a client in tables, audience and ledger, and a letter of it."""
    apply_topics(settings)
    write(settings, folded=False)
    begin(settings, WEEK, WEEK.end)
    freeze(settings, WEEK, [WHO, OTHER], WEEK.end + timedelta(hours=8))
    record(settings, WEEK, WHO, DeliveryState.SENT)
    letter = original(1, WHO.encode(), topic=settings.topic("clients"))
    put(settings, [failed(settings, letter, f"ValueError: {NAME_OF_WHO}")])
    return settings


def told(settings: Settings) -> str:
    newest = snapshots.current(settings)
    queries = {t: f"SELECT * FROM {t.name}" for t in OF_CONTACTS}  # noqa: S608
    return str([rows(settings, sql, at_snapshot(newest, t)) for t, sql in queries.items()])


def test_a_client_is_erased_and_can_be_asked_for_under_its_id(
    ready: Settings, shardpost: CommandLine
) -> None:
    asked = ("erase", WHO, "--why", "it asked for it", "--by", "anna")
    planned = shardpost.json(*asked, "--dry-run")
    assert planned["not_erased"] == {"client_events": 3, "clients": 1, "rejected_records": 2}
    assert NAME_OF_WHO in told(ready)

    done = shardpost.json(*asked)
    assert done["complete"] is True
    assert done["erased"] == {
        "ledger": [str(WEEK)],
        "audiences": [str(WEEK)],
        "tables": {"client_events": 3, "clients": 1, "rejected_records": 2},
    }
    assert NAME_OF_WHO not in told(ready)
    frozen = FrozenWeeks(ready).find(WEEK)
    assert frozen is not None
    assert FrozenWeeks(ready).member(frozen, WHO) is None
    assert f"{WHO} got the e-mail of {WEEK}" in shardpost(
        "emails", "--week", str(WEEK), "--client", WHO
    )

    again = shardpost(*asked)
    assert "erased from tables (name, address, values and errors of records): nothing" in again
    assert [one["snapshot"] for one in shardpost.json("snapshots")] == [1, 2, 3]
