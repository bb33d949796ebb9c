"""What is taken as the source of an import, before anything is started."""

from pathlib import Path

import pytest

from shardpost.errors import ShardpostError, UsageError
from shardpost.position_import.import_job import find_source
from shardpost.position_import.model.plan import find_columns
from shardpost.position_import.model.source import FileSource, Format, JdbcSource, format_of

POSTGRESQL = "jdbc:postgresql://db:5432/book"


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("list.csv", Format.CSV),
        ("LIST.CSV", Format.CSV),
        ("list.csv.gz", Format.CSV),
        ("list.jsonl", Format.JSON),
        ("list.ndjson.zst", Format.JSON),
        ("part-0.snappy.parquet", Format.PARQUET),
        ("list.txt", None),
        ("list", None),
    ],
)
def test_the_format_is_that_of_the_name(name: str, format_: Format | None) -> None:
    assert format_of(name) == format_


def test_a_file_and_a_folder_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.csv").touch()
    Path("days").mkdir()
    Path("days/part.parquet").touch()
    Path("days/_SUCCESS").touch()
    assert find_source("list.csv") == FileSource(f"{tmp_path}/list.csv", Format.CSV)
    assert find_source("days") == FileSource(f"{tmp_path}/days", Format.PARQUET)
    Path("days/part.csv").touch()
    with pytest.raises(UsageError, match="all of one kind: say --format"):
        find_source("days")
    assert find_source("s3a://bucket/list", "json") == FileSource("s3a://bucket/list", Format.JSON)


@pytest.mark.parametrize("name", ["_list.csv", ".list.csv", "list*.csv", "list.txt", "empty/"])
def test_files_that_spark_would_not_read_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    with pytest.raises(UsageError, match=str(tmp_path)):
        find_source(str(path))


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    for text in ("", " ", str(tmp_path / "none.csv")):
        with pytest.raises(UsageError):
            find_source(text)
    (tmp_path / "list.csv").touch()
    with pytest.raises(UsageError, match="for a JDBC URL"):
        find_source(str(tmp_path / "list.csv"), table="list")


def test_a_jdbc_url_needs_a_table_or_a_query() -> None:
    assert find_source(POSTGRESQL, table="list") == JdbcSource(POSTGRESQL, "list")
    assert find_source(POSTGRESQL, query="SELECT 1") == JdbcSource(POSTGRESQL, None, "SELECT 1")
    for more in ({}, {"table": "a", "query": "b"}):
        with pytest.raises(UsageError, match="either --table or --query"):
            find_source(POSTGRESQL, **more)
    with pytest.raises(UsageError, match="expected jdbc:postgresql:…, jdbc:mysql:…"):
        find_source("jdbc:sqlite:list.db", table="list")


def test_a_driver_that_is_not_installed_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"com\.mysql:mysql-connector-j is not installed: add it to"
    ):
        find_source("jdbc:mysql://db/book", table="list")


@pytest.mark.parametrize(
    "url",
    [
        f"{POSTGRESQL}?user=me&password=hush",
        f"{POSTGRESQL}?sslPassword=hush",
        "jdbc:postgresql://me:hush@db/book",
        "jdbc:oracle:thin:me/hush@db:1521/book",
        "jdbc:sqlserver://db;user=me;password=hush",
    ],
)
def test_a_login_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="SHARDPOST_IMPORT_JDBC_PASSWORD") as raised:
        find_source(url, table="list")
    assert "hush" not in str(raised.value)


def test_columns_are_found_in_any_case_and_order() -> None:
    found = find_columns("list", ["note", "EXCHANGE", "amount", "Ticker", "client", " positionid "])
    assert found.names["PositionId"] == " positionid "
    assert found.names["Exchange"] == "EXCHANGE"
    assert found.ignored == ("note",)


def test_all_columns_that_are_wrong_are_named() -> None:
    # Spark numbers the columns of a header that has a name twice.
    with pytest.raises(ShardpostError) as raised:
        find_columns("list", ["PositionId", "Client1", "client2", "Ticker", "Exchange", "exchange"])
    assert str(raised.value) == (
        "list: expected the columns PositionId, Client, Ticker, Amount, Exchange, each once: Client"
        " is there more than once; Amount is missing; Exchange is there more than once; found"
        " PositionId, Client1, client2, Ticker, Exchange, exchange"
    )
