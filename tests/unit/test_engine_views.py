"""Views for other engines: DuckDB and Polars have by them what the tables have."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import sqlglot
from hypothesis import given
from hypothesis import settings as example_settings

from shardpost.delta import snapshots, storage
from shardpost.holders.engine_views import AGAIN, Engine
from shardpost.holders.model.view_tables import CLIENTS, POSITIONS, REJECTED_RECORDS, VIEW
from shardpost.maintenance.stored_tables import TABLES
from shardpost.settings import Settings
from tests.support.command_line import CommandLineHere
from tests.support.engines import by_duckdb, by_polars, deletion_vectors, expected, views
from tests.support.histories import (
    Batch,
    close,
    country_of,
    overwrite,
    put,
    rejected_row,
    snapshot,
    write,
)
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.random_histories import LAYERED_BATCHES

STORY = [
    Batch([put("1", "client1", "NASDAQ"), put("2", "it's", "LON")], [country_of("NASDAQ", "US")]),
    Batch([close("1")], [country_of("LON", "US")], frozenset({"positions", "share_holders"})),
]


def write_all(settings: Settings, batches: Sequence[Batch]) -> None:
    """Write tables of those snapshots, and in one more those that they do not have."""
    write(settings, batches)
    last = snapshots.current(installed(settings).tables)
    more = {CLIENTS: [], REJECTED_RECORDS: [rejected_row("positions", 7, len(batches))]}
    versions = {table.name: overwrite(settings, table, rows) for table, rows in more.items()}
    made = snapshot(last.number + 1, {**last.tables, **versions})
    snapshots.commit(installed(settings).tables, replace(made, folded=last.folded))


@example_settings(max_examples=up_to(20, 2))
@given(LAYERED_BATCHES)
def test_views_have_what_the_tables_have_whenever_they_were_printed(
    batches: Sequence[Batch],
) -> None:
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home), snapshot_days=36_500)
        write_all(settings, batches)
        now = expected(settings)
        for number in {1, len(batches)}:
            assert by_duckdb(views(settings, Engine.DUCKDB, number)) == now
            assert by_polars(views(settings, Engine.POLARS, number)) == now


def test_trino_parses_its_views_and_duckdb_has_by_them_what_the_tables_have(
    settings: Settings,
) -> None:
    """No Trino runs here: its grammar is that of a parser, its tables are views of DuckDB."""
    write_all(settings, STORY)
    text = views(settings, Engine.TRINO)
    statements = sqlglot.parse(text, dialect="trino", error_level=sqlglot.ErrorLevel.RAISE)
    assert [statement.key for statement in statements if statement][-11:] == ["create"] * 11
    assert text.count("CALL delta.system.register_table(") == 10
    root = settings.tables_root
    location = f"table_name => 'raw_positions', table_location => 'file://{root}/positions');"
    assert location in text
    folders = [table.path for table in (*VIEW, snapshots.SNAPSHOTS)]
    raw = [f"CREATE OR REPLACE VIEW raw_{f} AS FROM delta_scan('{root}/{f}');" for f in folders]
    own = text[text.index("CREATE OR REPLACE VIEW") :]
    assert by_duckdb("\n".join((*raw, own))) == expected(settings)


def test_after_a_swap_views_that_were_printed_before_raise_an_error(settings: Settings) -> None:
    write_all(settings, STORY)
    before = views(settings, Engine.DUCKDB), views(settings, Engine.POLARS)
    last, folders = snapshots.current(installed(settings).tables), {"positions": "positions.2"}
    versions = {**last.tables, "positions": overwrite(settings, POSITIONS.located(folders), [])}
    folded = {"share_holders": last.folded_up_to("share_holders")}
    swapped = replace(snapshot(last.number + 1, versions), folders=folders, folded=folded)
    snapshots.commit(installed(settings).tables, swapped)
    now = expected(settings)
    assert now["positions"] == []
    assert by_duckdb(views(settings, Engine.DUCKDB)) == now
    assert by_polars(views(settings, Engine.POLARS)) == now
    with pytest.raises(duckdb.InvalidInputException, match=AGAIN):
        by_duckdb(before[0])
    with pytest.raises(RuntimeError, match=AGAIN):
        by_polars(before[1])


@pytest.mark.parametrize("engine", Engine)
def test_the_command_prints_them_and_until_when_they_hold(
    engine: Engine, settings: Settings
) -> None:
    write_all(settings, STORY)
    shardpost = CommandLineHere(settings.environ())
    printed = shardpost("tables", "views", "--engine", str(engine))
    assert printed == views(settings, engine)
    mark = "#" if engine is Engine.POLARS else "--"
    assert printed.startswith(f"{mark} Tables of Shardpost, as of the newest snapshot (now 3, of ")
    assert f"{mark} They are valid until rebuilt tables are swapped" in printed
    assert "print them again with `shardpost tables views`" in printed


def test_before_the_first_snapshot_there_are_no_views(settings: Settings) -> None:
    shardpost = CommandLineHere(settings.environ())
    found = shardpost.refused("tables", "views", "--engine", "duckdb", code=1)
    assert found.endswith("yet: run `shardpost compact`")
    assert "'mysql' is not one of" in shardpost.answer("tables", "views", "--engine", "mysql")[2]


def test_a_path_with_a_quote_is_quoted(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "it's")
    write_all(settings, STORY)
    now = expected(settings)
    assert by_duckdb(views(settings, Engine.DUCKDB)) == now
    assert by_polars(views(settings, Engine.POLARS)) == now


def test_no_table_is_made_with_deletion_vectors(settings: Settings) -> None:
    for table in TABLES:
        opened = storage.writable(installed(settings).tables, table)
        features = opened.protocol().reader_features or [], opened.protocol().writer_features or []
        assert "deletionVectors" not in {*features[0], *features[1]}
        overwrite(settings, table, [])
    assert deletion_vectors(settings) == []
