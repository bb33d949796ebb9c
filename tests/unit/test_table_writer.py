"""What a run knows of a table's layer: up to which snapshot its files have all."""

from unittest.mock import Mock

from shardpost.delta import storage
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, VIEW
from shardpost.holders.spark.compaction_run import TableWriter
from shardpost.settings import Settings
from tests.support.histories import overwrite, put, snapshot
from tests.support.installed import installed


def test_a_table_folded_in_a_run_lacks_what_comes_after_it_in_that_run(settings: Settings) -> None:
    versions = {table.name: overwrite(settings, table, []) for table in VIEW}
    versions[POSITION_EVENTS.name] = overwrite(
        settings, POSITION_EVENTS, [put("1", "c", "LON").row()]
    )
    writer = TableWriter(Mock(), installed(settings).tables, versions, snapshot(1, versions))
    writer.share(POSITIONS, writer.number, moved=True)
    assert POSITIONS.name not in writer.folded
    paths = storage.sizes(
        installed(settings).tables, POSITION_EVENTS, versions[POSITION_EVENTS.name]
    )
    writer.copy(POSITION_EVENTS, POSITION_EVENTS, paths)
    assert writer.folded[POSITIONS.name] == 1
