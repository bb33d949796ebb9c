"""`shardpost sql`: any query over all tables at one snapshot, and nothing but queries."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost import tables
from shardpost.commands import tables as table_commands
from shardpost.delta import snapshots, storage, table_log
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.table import text_literal
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import CLIENTS, REJECTED_RECORDS, SHARE_HOLDERS, VIEW
from shardpost.maintenance.stored_tables import table_sizes
from shardpost.settings import Settings
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES, LEDGER_MARKS, LedgerMark
from tests.support.command_line import CommandLine, CommandLineHere
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
from tests.support.installed import installed
from tests.support.object_store import folder_of
from tests.support.written_weeks import freeze

DOCUMENTED = Path("docs/tables.md").read_text()
MARK = LedgerMark("2026-W47", "weekly-emails", "id", (5,), datetime(2026, 11, 23, tzinfo=UTC))
ALL = frozenset(table.name for table in VIEW if table.layer)
STORY = [
    Batch(
        [put("1", "client1", "NASDAQ"), put("2", "client2", "NASDAQ"), put("10", "client1", "LON")],
        [country_of("NASDAQ", "US"), country_of("LON", "GB")],
    ),
    Batch([close("2", 30), put("3", 'of "two", or more', "NASDAQ", 31)], unfolded=ALL),
    Batch([put("1", "client3", "NASDAQ", 40)], [country_of("LON", "US", 50)], unfolded=ALL),
]
HELD = "SELECT client, positions FROM share_holders WHERE cardinality(positions) > 0 ORDER BY 1"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Give a home that is only read: its last snapshots are not folded."""
    settings = Settings(home=tmp_path_factory.mktemp("story"), snapshot_days=36_500)
    write(settings, STORY)
    newest = tables.snapshot(settings=settings)
    versions = dict(newest.tables)
    rejected = [rejected_row("positions", 7, 4, value=b"\xff{")]
    versions[REJECTED_RECORDS.name] = overwrite(settings, REJECTED_RECORDS, rejected)
    snapshots.commit(
        installed(settings).tables, replace(snapshot(4, versions), folded=newest.folded)
    )
    return settings


@pytest.fixture
def shardpost(story: Settings) -> CommandLine:
    return CommandLineHere(story.environ())


def test_at_each_snapshot_it_has_the_rows_that_the_tables_have(
    story: Settings, shardpost: CommandLine
) -> None:
    for number in (1, 2, 3):
        at = "--snapshot", str(number)
        rows = shardpost.json("sql", HELD, *at)
        assert {row["client"]: row["positions"] for row in rows} == tables.holders(
            snapshot=number, settings=story
        )
        [row] = shardpost.json("sql", "SELECT max(snapshot) AS n FROM snapshots", *at)
        assert row == {"n": number}
    joined = f"SELECT count(*) AS n FROM ({HELD}) h JOIN positions p ON p.client = h.client"  # noqa: S608
    assert shardpost.json("sql", f"WITH a AS ({joined}) SELECT n FROM a;") == [{"n": 3}]  # noqa: S608


def test_rows_are_printed_as_text_as_json_and_as_csv(shardpost: CommandLine) -> None:
    at = "--snapshot", "2"
    assert shardpost("sql", HELD, *at) == (
        'client             positions\nclient1            ["1"]\nof "two", or more  ["3"]\n'
    )
    printed = shardpost("sql", HELD, *at, "--csv")
    assert printed == (
        '"client","positions"\r\n"client1","[""1""]"\r\n"of ""two"", or more","[""3""]"\r\n'
    )
    assert [*csv.reader(io.StringIO(printed, newline=""))][2] == ['of "two", or more', '["3"]']
    nothing = HELD.replace("> 0", "> 99")
    assert shardpost("sql", nothing) == "client  positions\n"
    assert shardpost("sql", nothing, "--csv") == '"client","positions"\r\n'
    assert shardpost.json("sql", nothing) == []


def test_values_of_every_kind_have_one_form(shardpost: CommandLine) -> None:
    select = (
        "SELECT value, headers, \"offset\", timestamp, '' AS none, NULL AS missing, true AS yes,"
        " CAST('nan' AS DOUBLE) AS nan, CAST(1.50 AS DECIMAL(9, 2)) AS money,"
        " DATE '2026-11-16' AS day FROM rejected_records"
    )
    [row] = shardpost.json("sql", select)
    first = {"value": "/3s=", "headers": [], "offset": 7, "timestamp": "2026-11-16T00:00:00+00:00"}
    others = {"none": "", "missing": None, "yes": True, "nan": None}
    assert row == first | others | {"money": "1.50", "day": "2026-11-16"}
    printed = shardpost("sql", select, "--csv").splitlines()[1]
    assert printed == ('"/3s=","[]",7,"2026-11-16T00:00:00+00:00","",,true,,"1.50","2026-11-16"')


SUM = (
    "the given name and argument types 'sum(Utf8View)'. You might need to add explicit type casts."
    " Candidate functions: sum(Decimal) sum(UInt64) sum(Int64) sum(Float64) sum(Duration)"
    " sum(Interval)"
)
AMOUNTS_ARE_TEXT = (
    "; amounts are text as written: use CAST(amount AS DOUBLE), or AS DECIMAL(38, 9) if each"
    " digit counts"
)
NOT_A_QUERY = (
    "expected one query that begins with SELECT, WITH or VALUES, since tables are read-only"
)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM holders", f"no table holders: expected one of {VIEW[0].name}, "),
        ("SELECT nothing FROM positions", "No field named nothing. Valid fields are positions.key"),
        ("SELEC 1", NOT_A_QUERY),
        ("COPY (SELECT 1) TO '{file}'", NOT_A_QUERY),
        ("\n-- SELECT\rCOPY (SELECT 1) TO '{file}'", NOT_A_QUERY),
        ("/* SELECT */ COPY (SELECT 1) TO '{file}'", NOT_A_QUERY),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'", NOT_A_QUERY),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{file}'", NOT_A_QUERY),
        ("INSERT INTO positions SELECT * FROM positions", NOT_A_QUERY),
        ("DROP TABLE positions", NOT_A_QUERY),
        ("SET datafusion.execution.batch_size = 1", NOT_A_QUERY),
        ("SELECT 1; COPY (SELECT 1) TO '{file}'", NOT_A_QUERY),
        ("SELECT * INTO x FROM positions", "expected a query that returns columns"),
        ("WITH x AS (SELECT 1) INSERT INTO positions SELECT * FROM positions", NOT_A_QUERY),
        ("SELECT * FROM '{home}/tables/snapshots'", "no table {home}/tables/snapshots: expected"),
        ("SELECT * FROM read_parquet('{file}')", "table function 'read_parquet' not found"),
        ("SELECT sum(amount) FROM positions", f"sql: No function matches {SUM}{AMOUNTS_ARE_TEXT}"),
        ("SELECT amount * 2 FROM positions", f"Utf8View * Int64 to valid types{AMOUNTS_ARE_TEXT}"),
        ("SELECT * FROM alerts", "no table alerts yet: nothing was written to it"),
        ("SELECT " + "(" * 9_000 + "1" + ")" * 9_000, "RecursionLimitExceeded"),
    ],
)
def test_what_is_no_query_is_refused_and_does_nothing(
    statement: str, said: str, story: Settings, shardpost: CommandLine, tmp_path: Path
) -> None:
    before = [
        storage.newest_version(installed(story).tables, table) for table in (*VIEW, SNAPSHOTS)
    ]
    file = tmp_path / "written.csv"
    places = {"file": str(file), "home": str(story.home)}
    found = shardpost.refused("sql", statement.format(**places), code=2)
    assert said.format(**places) in found
    assert not file.exists()
    assert before == [
        storage.newest_version(installed(story).tables, table) for table in (*VIEW, SNAPSHOTS)
    ]


def test_the_cast_that_it_names_gives_the_sum(shardpost: CommandLine) -> None:
    for type_ in ("DOUBLE", "DECIMAL(38, 9)"):
        sql = f"SELECT sum(CAST(amount AS {type_})) AS amount FROM positions WHERE is_open"  # noqa: S608
        [row] = shardpost.json("sql", sql)
        assert float(row["amount"]) == 300


def test_every_documented_table_is_asked_and_those_of_no_snapshot_are_as_they_are_now(
    settings: Settings,
) -> None:
    write(settings, STORY[:2])
    at = settings.model_copy(update={"snapshot_days": 36_500})
    assert len(VIEW) + len(tables.OTHERS) == len(re.findall(r"^## [a-z_]+$", DOCUMENTED, re.M))
    assert all(f"\n## {table.name}\n" in DOCUMENTED for table in (*VIEW, *tables.OTHERS))
    for table in tables.OTHERS:
        if table == AUDIENCES:
            freeze(settings, IsoWeek(2026, 47), ["client1"], MARK.marked_at)
        else:
            storage.writable(installed(settings).tables, table)
        found = tables.sql(f"SELECT * FROM {table.name}", 1, at).read_all()  # noqa: S608
        assert found.column_names == table.names
    table_log.append(installed(settings).tables, LEDGER_MARKS, lambda: MARK)
    row = f"SELECT week FROM ledger_marks WHERE week = {text_literal(MARK.week)}"  # noqa: S608
    assert tables.sql(row, 1, at).read_all().num_rows == 1


def test_the_audiences_of_all_frozen_weeks_are_one_table(settings: Settings) -> None:
    write(settings, STORY[:2])
    weeks = [IsoWeek(2026, number) for number in (45, 46, 47)]
    for week in weeks:
        freeze(settings, week, ["client1", "client2"], week.end)
    FrozenWeeks(installed(settings).tables).mark_erased(weeks[0], weeks[2].end)
    sql = "SELECT week, count(*) AS n FROM audiences GROUP BY week ORDER BY week"
    expected = [{"week": "2026-W46", "n": 2}, {"week": "2026-W47", "n": 2}]
    assert tables.sql(sql, settings=settings).read_all().to_pylist() == expected
    sizes = {size.table: size for size in table_sizes(installed(settings).tables)}
    found = sizes["audiences"]
    assert (found.rows, found.versions, found.kept_for) == (4, 2, "2 frozen weeks")


def test_what_fails_as_it_runs_is_one_line(shardpost: CommandLine) -> None:
    found = shardpost.refused("sql", "SELECT 1 / (snapshot - snapshot) FROM snapshots", code=1)
    assert found.startswith("shardpost: sql: the query failed: ")
    assert "ivide by zero" in found
    twice = "SELECT * FROM positions a JOIN positions b ON a.key = b.key"
    assert "name columns with AS" in shardpost.refused("sql", twice, "--json", code=2)
    both = shardpost.refused("sql", "SELECT 1", "--json", "--csv", code=2)
    assert both == "shardpost: --csv and --json: expected only one of them"


def test_of_a_query_that_fails_midway_no_half_of_a_document_is_printed(
    shardpost: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: object) -> Iterator[list[tuple[int, ...]]]:
        yield [(1,), (2,)]
        raise ShardpostError("sql: the query failed: midway")

    monkeypatch.setattr(table_commands, "_batches", failing)
    found = shardpost.run("sql", "SELECT snapshot FROM snapshots", "--json")
    assert (found.returncode, found.stdout) == (1, "")
    monkeypatch.setattr(table_commands, "_MOST_IN_MEMORY", 5)
    monkeypatch.setattr(table_commands, "_batches", lambda _: iter([[(1,)], [], [(2,), (3,)]]))
    assert shardpost.json("sql", "SELECT snapshot AS n FROM snapshots") == [
        {"n": number} for number in (1, 2, 3)
    ]


def test_only_tables_that_a_statement_names_have_to_be_there(settings: Settings) -> None:
    write(settings, STORY[:2])
    at = settings.model_copy(update={"snapshot_days": 36_500})
    for file in folder_of(at, SHARE_HOLDERS).rglob("*.parquet"):
        file.unlink()
    found = tables.sql("SELECT key FROM positions WHERE is_open ORDER BY seq", settings=at)
    assert found.read_all()["key"].to_pylist() == ["1", "10", "3"]
    with pytest.raises(ShardpostError, match=r"a file of .*share_holders@\d in .* is missing"):
        tables.sql(HELD, settings=at).read_all()


def test_of_contacts_that_were_erased_since_it_says_so(settings: Settings) -> None:
    write(settings, STORY[:1])
    versions = dict(tables.snapshot(settings=settings).tables)
    versions["clients"] = overwrite(settings, CLIENTS, [])
    snapshots.commit(installed(settings).tables, replace(snapshot(2, versions), erased_in=2))
    at = settings.model_copy(update={"snapshot_days": 36_500})
    assert tables.sql("SELECT * FROM clients", 2, at).read_all().num_rows == 0
    with pytest.raises(ShardpostError, match="a client was erased in snapshot 2"):
        tables.sql("SELECT * FROM client_events", 1, at)
    assert tables.sql("SELECT * FROM positions", 1, at).read_all().num_rows == 3
