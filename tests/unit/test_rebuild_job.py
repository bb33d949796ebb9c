"""How much the job `rebuild_tables` is known to read before it starts; real Delta tables."""

import shutil
from dataclasses import replace

import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import path_of
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.rebuilds import store
from shardpost.rebuilds.model.rebuild import State
from shardpost.rebuilds.order import Action, Order, tables_of
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.spark import job_spec
from tests.support.histories import Batch, put, snapshot, write


def test_it_reads_all_records_of_the_histories_and_not_only_the_latest(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REBUILD_TABLES.unread_records(settings) == 0
    write(settings, [Batch(tuple(put("1", f"client{n}", "NASDAQ") for n in range(5)))])
    assert REBUILD_TABLES.unread_records(settings) == 5
    for least, is_long in ((5, True), (6, False)):
        monkeypatch.setattr(job_spec, "LONG_RUN_RECORDS", least)
        assert REBUILD_TABLES.is_long(settings) is is_long


def test_one_that_is_built_has_nothing_to_read(settings: Settings) -> None:
    write(settings, [Batch((put("1", "client1", "NASDAQ"),))])
    order = Order(Action.START, "me", tables=tables_of("share_holders"))
    rebuild = begun(settings, order)
    assert REBUILD_TABLES.unread_records(settings) == 1
    store.update(settings, replace(rebuild, state=State.BUILT))
    assert REBUILD_TABLES.unread_records(settings) == 0


def test_a_snapshot_without_histories_has_nothing_to_read(settings: Settings) -> None:
    snapshots.commit(settings, snapshot(1, {}))
    assert REBUILD_TABLES.unread_records(settings) == 0


def test_a_history_that_is_gone_is_left_to_the_job_to_report(settings: Settings) -> None:
    write(settings, [Batch((put("1", "client1", "NASDAQ"),))])
    shutil.rmtree(path_of(settings, POSITION_EVENTS))
    with pytest.raises(ShardpostError, match="the tables could not be read"):
        REBUILD_TABLES.unread_records(settings)
    assert not REBUILD_TABLES.is_long(settings)
