"""A client's contact leaves the tables beside those in use, too: no swap brings it back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

from shardpost.delta import rewritten_files, snapshots, storage, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.snapshot_retention import GRACE
from shardpost.delta.table import Table
from shardpost.holders import folding
from shardpost.holders.model.view_tables import (
    CLIENT_EVENTS,
    CLIENTS,
    OF_CONTACTS,
    REJECTED_RECORDS,
)
from shardpost.maintenance import erasure, removable_files
from shardpost.maintenance.maintain import maintain
from shardpost.rebuilds import drop as rebuilds_erasure
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.difference import question
from shardpost.rebuilds.model.rebuild import NAMES
from shardpost.rebuilds.registry import compare_open, rebuilding
from shardpost.rebuilds.swap import swap_tables
from shardpost.settings import Settings
from tests.support import decisions
from tests.support.aged_rebuilds import AgedRebuilds
from tests.support.aged_tables import AgedTables
from tests.support.at_step import at_step, killing
from tests.support.contact_tables import (
    AT,
    NAME_OF_WHO,
    ROWS_OF_WHO,
    erased,
    on_disk,
    rows_in,
    write,
)
from tests.support.how_far import drawn, some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

# The swaps after which it is erased: the new tables are beside, in use, beside again.
SWAPS = (0, 1, 2)
OF_BESIDE = [
    f"{verb} {table.name}.2"
    for table in (CLIENT_EVENTS, CLIENTS, REJECTED_RECORDS)
    for verb in ("write", "commit", "checkpoint")
]
STEPS = ["tables beside", *OF_BESIDE, "commit tables beside", "tables", "commit snapshot"]


KAFKA = {"partitions": 2, "kafka_timeout": 1, "lock_wait": 0.1}


@pytest.fixture
def at(kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: {1, 2})
    write(kafka.settings, folded=False)
    return kafka.settings


@pytest.fixture
def beside(at: Settings) -> AgedRebuilds:
    made = AgedRebuilds(AgedTables(at, Random(1)))  # noqa: S311
    made.begin(*NAMES)
    return made


def contacts(settings: Settings, view: Snapshot) -> str:
    """Return the rows of tables with contacts in a view, which are to be readable."""
    return str(rows_in(settings, view, *OF_CONTACTS))


def folders(*numbers: int) -> list[Table]:
    """Return the tables with contacts in the folders of rebuilds; 0 are the first."""
    return [
        table.located({table.name: f"{table.name}.{number}"} if number else {})
        for table in OF_CONTACTS
        for number in numbers
    ]


def require_gone(settings: Settings, beside: AgedRebuilds) -> None:
    """Hold that no swap brings it back, and that an hour later it is not on the disk."""
    for _ in range(2):
        newest = snapshots.current(installed(settings).tables)
        found = registry.require_current(installed(settings).tables).standby(newest)
        assert found is not None
        for view in (newest, found):
            said = contacts(settings, view)
            assert NAME_OF_WHO not in said
            assert "bob" in said
        beside.swap()
    maintain(installed(settings), after_an_hour())
    assert NAME_OF_WHO not in on_disk(settings, *folders(0, 2))
    assert "bob" in on_disk(settings, *folders(0))


@pytest.mark.parametrize("swaps", drawn(SWAPS))
def test_it_leaves_the_tables_in_use_and_those_beside(
    at: Settings, beside: AgedRebuilds, swaps: int
) -> None:
    beside.build()
    for _ in range(swaps):
        beside.swap()
    result = erased(at)
    beside_those = {f"{name}.2": count for name, count in ROWS_OF_WHO.items()}
    assert result.tables == ROWS_OF_WHO | beside_those
    assert (result.left, result.is_complete) == ({}, True)
    require_gone(at, beside)
    assert erased(at).tables == {}


@pytest.mark.parametrize("killed_at", some(STEPS))
def test_killed_at_any_step_the_next_run_finishes(
    at: Settings, beside: AgedRebuilds, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    beside.build()
    modules = (erasure, rewritten_files, folding, rebuilds_erasure)
    with killing(at_step(monkeypatch, *modules), killed_at):
        erased(at)
    maintain(installed(at), datetime.now(UTC))
    assert erased(at).is_complete
    require_gone(at, beside)
    assert len(list(decisions.list_all(at))) == 1


def after_an_hour() -> datetime:
    return datetime.now(UTC) + GRACE + timedelta(minutes=1)


@pytest.mark.parametrize("tables", drawn([NAMES, ("share_holders",)]))
def test_contacts_of_before_it_are_not_compared_with_those_after_a_swap_and_that_is_said(
    at: Settings, beside: AgedRebuilds, tables: tuple[str, ...]
) -> None:
    beside.drop()
    beside.begin(*tables)
    beside.build()
    beside.swap()
    assert (
        compare_open(installed(at).tables, installed(at).kafka, datetime.now(UTC)).not_compared
        == {}
    )
    assert erased(at).is_complete
    for _ in range(2):
        found = compare_open(installed(at).tables, installed(at).kafka, datetime.now(UTC))
        assert {*found.not_compared} == {"clients", "rejected"}
        assert (found.as_json()["clients"], found.is_none) == (None, True)
        why = (
            "a client was erased in snapshot 4: older contacts, as of snapshot 2, are no longer"
            " read"
        )
        assert f"contacts: not compared: {why}" in found.lines()
        assert f"- rejected records: not compared: {why}" in question(3, found)
        maintain(installed(at), after_an_hour())
    beside.swap()  # a rollback finds what it needs
    assert NAME_OF_WHO not in contacts(at, snapshots.current(installed(at).tables))


def test_tables_in_use_are_kept_as_they_were_swapped_until_the_rebuild_is_dropped(
    at: Settings, beside: AgedRebuilds
) -> None:
    beside.build()
    beside.swap()
    before, last = (
        compare_open(installed(at).tables, installed(at).kafka, datetime.now(UTC)),
        snapshots.current(installed(at).tables),
    )
    files = storage.sizes(installed(at).tables, last.located(CLIENTS), last.tables[CLIENTS.name])
    folding.commit_rewritten(
        installed(at).tables, last, {CLIENTS: dict.fromkeys(files, as_it_is)}, AT
    )
    snapshots.drop(installed(at).tables, [last.number])
    maintain(installed(at), after_an_hour())
    assert compare_open(installed(at).tables, installed(at).kafka, datetime.now(UTC)) == before
    assert before.not_compared == {}


def as_it_is(part: pa.Table) -> pa.Table:
    return part


def test_while_they_are_built_it_is_postponed(at: Settings, beside: AgedRebuilds) -> None:
    beside.build(crash="tables")
    result = erased(at)
    assert (
        "rebuild 2 is being built from snapshot 2, which may contain its"
        in result.postponed["tables"]
    )
    assert list(decisions.list_all(at)) == []
    assert NAME_OF_WHO in contacts(at, snapshots.current(installed(at).tables))
    beside.build()
    assert erased(at).is_complete
    require_gone(at, beside)


def test_what_has_no_contacts_is_built_meanwhile(at: Settings, beside: AgedRebuilds) -> None:
    beside.drop()
    beside.begin("share_holders")
    assert erased(at).is_complete
    assert NAME_OF_WHO not in contacts(at, snapshots.current(installed(at).tables))


def test_beside_a_run_of_a_rebuild_it_is_postponed(at: Settings, beside: AgedRebuilds) -> None:
    beside.build()
    with rebuilding(installed(at).files):
        result = erased(at)
    assert "a run of the rebuild is already running" in result.postponed["tables"]
    assert erased(at).is_complete


def test_what_only_older_snapshots_have_in_other_folders_goes_too(
    at: Settings, beside: AgedRebuilds
) -> None:
    """As after a rebuild from a topic that has the client no more."""
    beside.build()
    found = registry.require_current(installed(at).tables)
    versions = dict(found.candidate.tables)
    for table in OF_CONTACTS:
        there, version = found.candidate.located(table), versions[table.name]
        files = storage.sizes(installed(at).tables, there, version)
        versions[table.name] = table_log.commit(installed(at).tables, there, version, [], files)
    registry.update(
        installed(at).tables, replace(found, candidate=replace(found.candidate, tables=versions))
    )
    newest = snapshots.current(installed(at).tables)
    swap_tables(
        installed(at),
        registry.require_current(installed(at).tables),
        newest,
        replace(found.candidate, tables=versions),
    )
    beside.drop()
    result = erased(at)
    assert result.tables == ROWS_OF_WHO
    assert result.is_complete
    maintain(installed(at), after_an_hour())
    assert NAME_OF_WHO not in on_disk(at, *folders(0, 2))
