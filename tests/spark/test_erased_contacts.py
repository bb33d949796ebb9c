"""Compactions before, beside and after an erasure; histories that are folded, and that are not."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event

import pytest
from pyspark.sql import SparkSession

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.holders import folding
from shardpost.holders.model.view_tables import (
    CLIENT_EVENTS,
    CLIENTS,
    OF_CONTACTS,
    REJECTED_RECORDS,
    FoldingRule,
)
from shardpost.holders.spark.held_positions import contacts
from shardpost.locks import locks
from shardpost.maintenance.erasure import ErasedClient, ErasureRequest, erase
from shardpost.maintenance.maintain import prune_old
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.registry import compare_open
from shardpost.settings import Settings
from tests.support import rebuilding
from tests.support.at_step import at_step
from tests.support.compacting import agree, run
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.record_streams import Stream
from tests.support.reference import Raw, client, position, produce


def bad(key: str, name: str) -> Raw:
    return Raw("clients", key.encode(), json.dumps([name]).encode())


@pytest.fixture(params=drawn([1, 100], every=1), ids={1: "folded", 100: "layered"}.get)
def home(stream: Stream, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Give a home of two snapshots, in which `c1` has a contact and a rejected record."""
    monkeypatch.setattr(folding, "FOLDING", FoldingRule(runs=request.param))
    stream.compact(client("c1", "quine"), position("1", "c1", "NASDAQ"))
    stream.compact(client("c1", "quine2"), bad("c1", "quine3"), client("c2", "bob"))
    return stream


def erased(settings: Settings) -> ErasedClient:
    request = ErasureRequest("c1", "anna", "it asked for it", datetime.now(UTC))
    return erase(installed(settings), request)


def told(settings: Settings) -> str:
    """Return all that the tables with contacts have at the newest snapshot."""
    newest = snapshots.current(installed(settings).tables)
    queries = {t: f"SELECT * FROM {t.name}" for t in OF_CONTACTS}  # noqa: S608
    return str(
        [
            rows(installed(settings).tables, sql, at_snapshot(newest, t))
            for t, sql in queries.items()
        ]
    )


def known(spark: SparkSession, settings: Settings) -> set[tuple[str, str | None]]:
    """Return (client, e-mail) as Spark reads them, and hold DataFusion against it."""
    newest = snapshots.current(installed(settings).tables)
    found = contacts(spark, installed(settings).tables, newest).select("client", "email").collect()
    sql = "SELECT key, email FROM clients WHERE is_open"
    ours = rows(installed(settings).tables, sql, at_snapshot(newest, CLIENTS))
    assert {(row["key"], row["email"]) for row in ours} == {tuple(row) for row in found}
    return {tuple(row) for row in found}


@pytest.mark.also_on_store
@pytest.mark.one_of("contacts that stay erased")
def test_compactions_reconciliations_and_rebuilds_go_on_after_an_erasure(
    spark: SparkSession, home: Stream
) -> None:
    settings = home.settings
    result = erased(settings)
    assert (result.left, result.postponed) == ({}, {})
    assert result.tables["client_events"] == 3
    assert "quine" not in told(settings)
    agree(settings, home.fold)
    assert known(spark, settings) == {("c1", None), ("c2", "bob@x.example")}

    produce(settings, [client("c2", "bobby")])
    run(settings)
    agree(settings, home.fold)
    newest = snapshots.current(installed(settings).tables)
    assert (newest.number, newest.erased_in) == (4, 3)
    assert "quine" not in told(settings)
    assert known(spark, settings) == {("c1", None), ("c2", "bobby@x.example")}

    home.compact(reconcile=True)
    require_erased(settings)
    before = rejected_and_history(settings)
    rebuilding.start(settings)
    rebuilding.swap(settings)
    require_erased(settings)
    agree(settings, home.fold)
    assert rejected_and_history(settings) == before

    home.compact(client("c1", "new"))  # it comes back by a record of its own
    assert known(spark, settings) == {("c1", "new@x.example"), ("c2", "bobby@x.example")}


@pytest.mark.one_of("contacts that stay erased")
def test_a_compaction_that_waits_for_an_erasure_goes_on_from_it(
    home: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = home.settings
    produce(settings, [client("c2", "bobby")])
    waits = Event()
    log = logging.getLogger(locks.__name__)
    monkeypatch.setattr(log, "info", lambda *_said: waits.set())
    with ThreadPoolExecutor(1) as pool:
        beside = []

        def compact_beside() -> None:
            beside.append(pool.submit(run, settings))
            assert waits.wait(60)

        at_step(monkeypatch, folding)("commit snapshot", compact_beside)
        erased(settings)
        beside[0].result(120)
    newest = snapshots.current(installed(settings).tables)
    assert (newest.number, newest.erased_in) == (4, 3)
    assert "quine" not in told(settings)
    agree(settings, home.fold)


@pytest.mark.also_on_store
@pytest.mark.one_of("contacts that stay erased")
def test_no_swap_and_no_rollback_brings_it_back(spark: SparkSession, home: Stream) -> None:
    settings = home.settings
    rebuilding.start(settings)
    # What the tables beside have not yet is decoded again after it was erased.
    home.compact(client("c1", "quine4"), bad("c1", "quine5"))
    assert erased(settings).is_complete
    require_erased(settings)
    for exchange in (rebuilding.swap, rebuilding.rollback, rebuilding.swap):
        exchange(settings)
        require_erased(settings)
        agree(settings, home.fold)


@pytest.mark.one_of("contacts that stay erased")
@pytest.mark.parametrize("home", [100], indirect=True)
def test_from_kafka_which_has_it_yet_it_does_not_come_back(
    spark: SparkSession, home: Stream
) -> None:
    settings = home.settings
    assert erased(settings).is_complete
    # The oldest of its records, which Kafka has yet, leaves the history: it was superseded.
    pruning = settings.model_copy(update={"history_days": 1})
    assert prune_old(installed(pruning), datetime.now(UTC)).rows == {CLIENT_EVENTS.name: 1}
    rebuilding.start(settings, source=Source.KAFKA)
    assert compare_open(
        installed(settings).tables, installed(settings).kafka, datetime.now(UTC)
    ).is_none
    for exchange in (rebuilding.swap, rebuilding.rollback, rebuilding.swap):
        exchange(settings)
        require_erased(settings)
        agree(settings, home.fold)
    home.compact(client("c2", "bob"), position("2", "c1", "NYSE"))
    require_erased(settings)


def require_erased(settings: Settings) -> None:
    """Hold that the newest snapshot's tables can be read, and have another's contact alone."""
    said = str(rejected_and_history(settings))
    newest = snapshots.current(installed(settings).tables)
    said += str(
        rows(installed(settings).tables, "SELECT * FROM clients", at_snapshot(newest, CLIENTS))
    )
    assert "quine" not in said
    assert "bob" in said


def rejected_and_history(settings: Settings) -> list[str]:
    """Return all rows of what the records of clients became."""
    newest = snapshots.current(installed(settings).tables)
    found = (
        rows(installed(settings).tables, f"SELECT * FROM {table.name}", at_snapshot(newest, table))  # noqa: S608
        for table in (CLIENT_EVENTS, REJECTED_RECORDS)
    )
    return sorted(str(row) for part in found for row in part)
