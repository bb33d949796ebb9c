"""The contact of an erased client leaves the tables of snapshots, and nothing else does."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shardpost.dead_letters import removal
from shardpost.dead_letters.model.letter_format import DEAD_LETTERS
from shardpost.delta import rewritten_files, snapshots, storage
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.table import Table
from shardpost.errors import ShardpostError
from shardpost.holders import folding, queries
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.view_tables import (
    CLIENT_EVENTS,
    CLIENTS,
    OF_CONTACTS,
    REJECTED_RECORDS,
)
from shardpost.locks.locks import exclusive
from shardpost.locks.refused_runs import refusals
from shardpost.maintenance import erasure, removable_files
from shardpost.maintenance.maintain import maintain, maintain_all
from shardpost.settings import Settings
from shardpost.tables import rejected
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email.model.week import FrozenWeek
from tests.support import decisions
from tests.support.at_step import at_step, killing
from tests.support.command_line import CommandLine
from tests.support.contact_tables import (
    AT,
    NAME_OF_WHO,
    OTHER,
    ROWS_OF_WHO,
    WHO,
    erased,
    on_disk,
    rejected_rows,
    rows_in,
    write,
)
from tests.support.how_far import drawn, some
from tests.support.installed import installed
from tests.support.letter_world import append, committed, failed, original, produce
from tests.support.memory_kafka import MemoryKafka
from tests.support.object_store import folder_of
from tests.support.written_weeks import commit_row

pytestmark = pytest.mark.also_on_store

STEPS = (
    "tables",
    "restore tables",
    *(
        f"{name} {table.name}"
        for table in (CLIENT_EVENTS, CLIENTS, REJECTED_RECORDS, DEAD_LETTERS)
        for name in ("write", "commit", "checkpoint")
    ),
    "commit snapshot",
    "letters",
    "decision",
)


KAFKA = {"partitions": 2, "kafka_timeout": 1, "lock_wait": 0.1}


@pytest.fixture(params=drawn(["layered", "folded"]))
def at(kafka: MemoryKafka, request: pytest.FixtureRequest) -> Settings:
    write(kafka.settings, folded=request.param == "folded", older=True)
    fail(kafka.settings)
    return kafka.settings


def fail(settings: Settings) -> None:
    """Have letters of the client, of another, and of a position with its id; one is not read."""
    topic = settings.topic("clients")
    told = f'ValueError: "{NAME_OF_WHO}" is no address'
    of_who = original(1, WHO.encode(), topic=topic)
    produce(settings, failed(settings, of_who, told))
    produce(settings, failed(settings, original(2, OTHER.encode(), topic=topic), "ValueError: bob"))
    produce(settings, failed(settings, original(3, WHO.encode()), "ValueError: bob"))
    append(settings)
    produce(settings, failed(settings, original(4, WHO.encode(), topic=topic), told))


def current(settings: Settings, *tables: Table) -> list[dict[str, Any]]:
    """Return all rows of tables at the newest snapshot."""
    return sorted(
        rows_in(settings, snapshots.current(installed(settings).tables), *tables), key=str
    )


def letters(settings: Settings) -> list[dict[str, Any]]:
    sql = "SELECT origin_topic, origin_offset, error FROM dead_letters"
    return rows(installed(settings).tables, sql, {DEAD_LETTERS: None})


def without(row: dict[str, Any], table: Table) -> str:
    return str({name: value for name, value in row.items() if name not in table.contacts})


def is_erased(settings: Settings) -> bool:
    assert NAME_OF_WHO not in str(current(settings, *OF_CONTACTS))
    assert NAME_OF_WHO not in str(letters(settings))
    assert snapshots.current(installed(settings).tables).erased_in is not None
    own = {"clients": {1, 3, 4}, "retries": {8}}
    for row in letters(settings):
        is_own = row["origin_offset"] in own.get(row["origin_topic"], ())
        assert row["error"] == "erased" if is_own else "bob" in row["error"], row
    return True


def test_its_contact_goes_and_all_else_stays(at: Settings) -> None:
    before = {table: current(at, table) for table in OF_CONTACTS}
    looked_at = snapshots.current(installed(at).tables).looked_at
    result = erased(at)
    folded = not snapshots.current(installed(at).tables).folded
    assert result.tables == ROWS_OF_WHO | {"dead_letters": 4}
    assert (result.left, result.is_complete) == ({}, True)
    assert is_erased(at)
    for table in OF_CONTACTS:
        own = [row for row in before[table] if NAME_OF_WHO in str(row)]
        others = [row for row in before[table] if NAME_OF_WHO not in str(row)]
        now = current(at, table)
        assert {str(row) for row in others} <= {str(row) for row in now}
        assert {without(row, table) for row in before[table]} == {
            without(row, table) for row in now
        }
        assert len(own) == len(now) - len(others)
    newest = snapshots.current(installed(at).tables)
    assert (newest.number, newest.looked_at) == (3, looked_at)
    assert newest.folded == ({} if folded else {"clients": 1})
    assert erased(at).tables == {}
    assert snapshots.current(installed(at).tables) == newest


def test_only_files_that_have_it_are_written_anew(at: Settings) -> None:
    before = {
        t: storage.sizes(
            installed(at).tables, t, snapshots.current(installed(at).tables).tables[t.name]
        )
        for t in OF_CONTACTS
    }
    erased(at)
    after = {
        t: storage.sizes(
            installed(at).tables, t, snapshots.current(installed(at).tables).tables[t.name]
        )
        for t in OF_CONTACTS
    }
    kept = {t.name: len({*before[t]} & {*after[t]}) for t in OF_CONTACTS}
    assert kept == {"client_events": 1, "clients": 0, "rejected_records": 0}


def test_what_is_not_contact_is_answered_as_before_and_older_contacts_are_refused(
    at: Settings,
) -> None:
    erased(at)
    newest = snapshots.current(installed(at).tables)
    assert queries.knows_client(installed(at).tables, newest, WHO)
    old = snapshots.get(installed(at).tables, 2, now=datetime.now(UTC))
    assert not queries.knows_client(
        installed(at).tables, old, WHO
    )  # by its positions, of which it has none
    for table in OF_CONTACTS:
        with pytest.raises(ShardpostError, match="a client was erased in snapshot 3"):
            at_snapshot(old, table)
    with pytest.raises(ShardpostError, match="ask for that snapshot or a newer one"):
        rejected(2, at)
    assert len(rejected(3, at)) == 4


def test_the_next_maintenance_after_an_hour_leaves_nothing_on_the_disk(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: {1, 2})
    commit_row(at, FrozenWeek("2026-W46", "x", 2, AT, AT, 2, 2, Rule("US")))
    erased(at)
    maintain(installed(at), datetime.now(UTC) + GRACE / 2)
    old = snapshots.list_all(installed(at).tables)[1]
    assert NAME_OF_WHO in str(
        rows(installed(at).tables, "SELECT * FROM clients", at_snapshot(old, CLIENTS))
    )
    maintain(installed(at), datetime.now(UTC) + GRACE + timedelta(minutes=1))
    assert NAME_OF_WHO not in on_disk(at, *OF_CONTACTS)
    assert is_erased(at)
    # What Kafka names, and what a week is of, is there; all but the contacts can be read.
    assert [one.number for one in snapshots.list_all(installed(at).tables)] == [1, 2, 3]
    assert maintain(installed(at), datetime.now(UTC) + GRACE + timedelta(minutes=1)).errors == []


def test_what_the_maintenance_could_not_do_is_noted_until_the_next_one_can(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ShardpostError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(removal, "remove_old", fails)
        assert maintain_all(installed(at), AT).errors == ["letters: no room"]
    noted = refusals(installed(at).files, datetime.now(UTC))
    assert noted["maintain_tables"].why == "letters: no room"
    assert maintain_all(installed(at), AT).errors == []
    assert refusals(installed(at).files, datetime.now(UTC)) == {}


def test_a_clock_that_was_ahead_before_the_erasure_keeps_no_contact_longer(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: {1, 2})
    last, ahead = snapshots.current(installed(at).tables), datetime.now(UTC) + timedelta(days=366)
    snapshots.commit(
        installed(at).tables, replace(last, number=last.number + 1, committed_at=ahead)
    )
    erased(at)
    newest = snapshots.current(installed(at).tables)
    assert newest.committed_at >= ahead
    soon = datetime.now(UTC)
    snapshots.commit(
        installed(at).tables, replace(newest, number=newest.number + 1, committed_at=soon)
    )
    maintain(installed(at), soon + GRACE)
    assert NAME_OF_WHO not in on_disk(at, *OF_CONTACTS)


def test_the_logs_have_no_bounds_of_contacts(kafka: MemoryKafka) -> None:
    write(kafka.settings, folded=True)
    fail(kafka.settings)
    for table in (*OF_CONTACTS, DEAD_LETTERS):
        log = Path(folder_of(kafka.settings, table), "_delta_log")
        text = "".join(file.read_text() for file in log.glob("*.json"))
        assert "numRecords" in text
        assert NAME_OF_WHO not in text
        assert "bob" not in text


def test_a_dry_run_says_what_would_go_and_changes_nothing(at: Settings) -> None:
    before = on_disk(at, *OF_CONTACTS, DEAD_LETTERS)
    result = erased(at, dry_run=True)
    assert result.left == ROWS_OF_WHO | {"dead_letters": 1}
    assert on_disk(at, *OF_CONTACTS, DEAD_LETTERS) == before
    said = "would be erased from tables (name, address, values and errors of records): 3 rows of"
    assert any(line.startswith(said) for line in result.lines())


@pytest.mark.parametrize("killed_at", some(STEPS))
def test_killed_at_any_step_it_is_there_or_gone_and_the_next_run_finishes(
    at: Settings, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    before = str(current(at, *OF_CONTACTS))
    with killing(at_step(monkeypatch, erasure, rewritten_files, folding), killed_at):
        erased(at)
    is_done = snapshots.current(installed(at).tables).erased_in is not None
    if not is_done:
        assert str(current(at, *OF_CONTACTS)) == before
    erased(at)
    assert is_erased(at)
    assert snapshots.current(installed(at).tables).number == 3
    assert len(list(decisions.list_all(at))) == 1


def test_beside_a_compaction_that_goes_on_the_tables_are_postponed(at: Settings) -> None:
    with exclusive(installed(at).files, COMPACT_POSITIONS.name, "x"):
        result = erased(at)
    assert "is already running" in result.postponed["tables"]
    assert list(decisions.list_all(at)) == []
    assert snapshots.current(installed(at).tables).erased_in is None
    assert erased(at).postponed == {}
    assert is_erased(at)


def test_letters_of_what_was_rejected_are_sent_before_it_is_erased(at: Settings) -> None:
    erased(at)
    sent = [letter.value for letter in committed(at, "dead-letters")]
    assert len(sent) == 4 + len(rejected_rows(at))
    assert sum(NAME_OF_WHO in str(value) for value in sent) == 2


def test_the_command_ends_with_0_and_prints_what_went(at: Settings, shardpost: CommandLine) -> None:
    document = shardpost.json("erase", WHO, "--why", "x")
    assert document["erased"]["tables"]["client_events"] == 3
    assert (document["not_erased"], document["complete"]) == ({}, True)
    [(_, headers)] = list(decisions.list_all(at))
    assert headers["tables"] == b"client_events,clients,rejected_records,dead_letters"
