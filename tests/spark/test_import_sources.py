"""What is read of lists in files and databases: odd files, exact digits, errors in one line."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.errors import ShardpostError
from shardpost.imports.import_job import find_source
from shardpost.imports.model.list_format import TARGETS, Profile
from shardpost.imports.model.source import ImportRequest, Source
from shardpost.imports.spark import comparison, source_rows
from shardpost.imports.spark.source_rows import as_records, increment, next_watermark, read_source
from shardpost.settings import Settings
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.postgresql import PASSWORD, USER, Postgresql, postgresql

POSITIONS = TARGETS["positions"]
HEADER = "PositionId,Client,Ticker,Amount,Exchange\n"
GOOD = ("1", "c", "A", "1.5", "N")
MANY = "12345678901234567890.123456789"


def read(spark: SparkSession, source: Source, **more: Any) -> list[tuple[str | None, ...]]:
    """Return (id, client, ticker, amount, exchange) of each good row, (id, reason) of each bad."""
    source_rows, _ = read_source(spark, installed(Settings(**more)), source, POSITIONS)
    rows = as_records(source_rows, POSITIONS, 1_000_000).collect()
    return [
        (one.key, one.reason)
        if one.reason
        else (one.key, one.client, one.ticker, one.amount, one.exchange)
        for one in rows
    ]


def written(folder: Path, name: str, text: str | bytes) -> Source:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return find_source(str(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", HEADER + "1,c,A,1.5,N\n"),
        ("mark.csv", "\ufeff" + HEADER + "1,c,A,1.50,N\n"),
        ("lines.csv", (HEADER + "1,c,A,1.5,N\n").replace("\n", "\r\n")),
        ("names.csv", "exchange,AMOUNT,ticker,client,Note,positionid\nN,1.5,A,c,x,1\n"),
        ("equal.csv", HEADER + '"1","c","A","1.500","N"\n'),
        ("others.csv", ",note,Note," + HEADER.strip() + ",\n0,x,y,1,c,A,1.5,N,\n"),
        (
            "line.jsonl",
            '{"PositionId":1,"Client":"c","Ticker":"A","Amount":1.50,"Exchange":"N","More":{"a":[]},'
            '"note":1,"Note":2}\n',
        ),
        (
            "array.json",
            '\ufeff [\n{"PositionId": "1", "client": "c",\n "Ticker": "A", "Amount": "1.5",'
            ' "Exchange": "N"}]\n',
        ),
    ],
)
def test_one_row_in_many_forms(spark: SparkSession, tmp_path: Path, name: str, text: str) -> None:
    assert read(spark, written(tmp_path, name, text)) == [GOOD]


@pytest.mark.parametrize("row_end", ["\n", "\r\n"])
@pytest.mark.parametrize("line_break", drawn(["\r\n", "\n", "\r"]))
def test_quoted_commas_quotes_and_line_breaks(
    spark: SparkSession, tmp_path: Path, row_end: str, line_break: str
) -> None:
    rows = f'1,"a, b","line{line_break}break",1,"say ""hi"""', "2,c,A,1,N", '3,c,"",1,""', ""
    text = row_end.join([HEADER.strip(), *rows])
    assert read(spark, written(tmp_path, "list.csv", text)) == [
        ("1", "a, b", f"line{line_break}break", "1", 'say "hi"'),
        ("2", "c", "A", "1", "N"),
        ("3", "c", "", "1", ""),
    ]


def test_bad_rows_of_csv_say_why(spark: SparkSession, tmp_path: Path) -> None:
    bad = {
        '3,c,A,"1,5",N': ("3", 'expected a number for Amount, found "1,5"'),
        ",c,A,1,N": (None, "expected a PositionId, found none"),
        '"",c,A,1,N': (None, "expected a PositionId, found none"),
        "4,,A,1,N": ("4", "expected text for Client, found nothing"),
        "5,c,A,,N": ("5", "expected a number for Amount, found nothing"),
        "6,c,A,007,N": ("6", 'expected a number for Amount, found "007"'),
        "7,c,A,NaN,N": ("7", 'expected a number for Amount, found "NaN"'),
    }
    text = HEADER + "\n".join(bad) + "\n"
    assert read(spark, written(tmp_path, "list.csv", text)) == list(bad.values())


def test_ids_that_cannot_be_read_are_none(spark: SparkSession, tmp_path: Path) -> None:
    latin = (HEADER + "é,c,A,1,N\n2,ü,A,1,N\n").encode("latin-1")
    assert read(spark, written(tmp_path, "latin.csv", latin)) == [
        (None, "expected UTF-8, found other bytes"),
        ("2", "expected UTF-8, found other bytes"),
    ]
    replaced = HEADER + "\ufffd,M\ufffdller,A,1,N\n"
    assert read(spark, written(tmp_path, "replaced.csv", replaced)) == [
        ("\ufffd", "M\ufffdller", "A", "1", "N")
    ]


def test_numbers_keep_all_their_digits(spark: SparkSession, tmp_path: Path) -> None:
    exact = [("1", "c", "A", MANY, "N")]
    assert read(spark, written(tmp_path, "list.csv", f"{HEADER}1,c,A,{MANY},N\n")) == exact
    line = f'{{"PositionId":1,"Client":"c","Ticker":"A","Amount":{MANY},"Exchange":"N"}}\n'
    assert read(spark, written(tmp_path, "list.jsonl", line)) == exact
    assert read(spark, written(tmp_path, "list.json", f"[{line}]")) == exact
    path = parquet(tmp_path, PositionId=[1], Amount=pa.array([Decimal(MANY)]))
    assert read(spark, find_source(str(path))) == exact


def parquet(folder: Path, **columns: Any) -> Path:
    """Write a list with these columns, and others that are good."""
    texts = {"Client": "c", "Ticker": "A", "Exchange": "N"}
    rows = len(columns["PositionId"])
    all_columns = {name: [text] * rows for name, text in texts.items()} | columns
    path = folder / "list.parquet"
    pyarrow.parquet.write_table(pa.table(all_columns), path)
    return path


# {number: a value, and a type of Arrow that Spark does not read}
NOT_SPARKS = {
    1: (1, pa.timestamp("ns")),
    2: (b"0123456789abcdef", pa.uuid()),
    3: (1, pa.time64("ns")),
}


def test_parquet_of_plain_types(spark: SparkSession, tmp_path: Path) -> None:
    ids = pa.array([1, 2, 3], pa.int64())
    path = parquet(tmp_path, PositionId=ids, Amount=[1.5, float("nan"), 0.0])
    assert read(spark, find_source(str(path))) == [
        GOOD,
        ("2", 'expected a number for Amount, found "NaN"'),
        ("3", "c", "A", "0", "N"),
    ]
    widths = {f"Note{number}": pa.array([n], type_) for number, (n, type_) in NOT_SPARKS.items()}
    for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int8(), pa.int16()):
        path = parquet(tmp_path, PositionId=pa.array([100], type_), Amount=[1.5], **widths)
        assert read(spark, find_source(str(path))) == [("100", *GOOD[1:])]
    path = parquet(tmp_path, PositionId=["1"], Client=pa.nulls(1), Amount=[1])
    assert read(spark, find_source(str(path))) == [("1", "expected text for Client, found nothing")]
    zeros = pa.array([Decimal(0), Decimal("1.5")], pa.decimal128(38, 18))
    path = parquet(tmp_path, PositionId=["0", "1"], Amount=zeros)
    assert [row[3] for row in read(spark, find_source(str(path)))] == ["0", "1.5"]


def test_floating_point_numbers_are_plain(spark: SparkSession, tmp_path: Path) -> None:
    numbers = [1e7, -1.25e7, 12345678.9, 1.5e-4, 1e-7, -0.25, 1e22, 123456789012345680.0]
    plain = ["10000000", "-12500000", "12345678.9", "0.00015", "0.0000001", "-0.25"]
    plain += ["1" + "0" * 22, "123456789012345680"]
    for type_ in (pa.float64(), pa.float32()):
        amounts = pa.array(numbers[:4], type_) if type_ == pa.float32() else pa.array(numbers)
        ids = [str(n) for n in range(len(amounts))]
        path = parquet(tmp_path, PositionId=ids, Amount=amounts)
        found = [row[3] for row in read(spark, find_source(str(path)))]
        expected = [*plain[:2], "12345679", plain[3]] if type_ == pa.float32() else plain
        assert found == expected


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("dup.csv", "PositionId,Client,client,Ticker,Amount,Exchange\n", "Client is duplicated"),
        ("few.csv", "PositionId,Client,Ticker\n", "Amount is missing; Exchange is missing; found"),
        ("case.jsonl", '{"PositionId":1,"positionid":2}\n', "PositionId is duplicated"),
        ("text.json", "5\n", "expected JSON objects, one in each line or all in one array"),
        ("cut.json", '[{"PositionId":1},', "expected JSON objects, one in each line or all in one"),
        ("none.parquet", "", "cannot be read: .*none.parquet is not a complete Parquet file"),
        ("list.csv.gz", "no gzip", "cannot be read: list.csv.gz is not a complete .gz file"),
        ("2.csv", HEADER + "1,c,A,1\n", "line 2: expected 5 values, as in the header, found 4"),
        ("bad.jsonl", '{"PositionId":1}\nnonsense\n', "line 2: expected JSON objects, one in"),
    ],
)
def test_lists_that_cannot_be_read(
    spark: SparkSession, tmp_path: Path, name: str, text: str, error: str
) -> None:
    with pytest.raises(ShardpostError, match=rf"^{tmp_path}/{name}: .*{error}") as raised:
        read(spark, written(tmp_path, name, text))
    assert "\n" not in str(raised.value)


def test_types_that_are_no_text(spark: SparkSession, tmp_path: Path) -> None:
    whole = "expected text or whole numbers for PositionId, found "
    others = {"double": [1.0], "fixed_size_binary": pa.array([b"1" * 16], pa.binary(16))}
    others |= {"decimal": [Decimal("1.00")], "boolean": [True], "dictionary": pa.array([1.0])}
    others["dictionary"] = others["dictionary"].dictionary_encode()
    for found, ids in others.items():
        with pytest.raises(
            ShardpostError, match=whole + ("double" if found[:2] == "di" else found)
        ):
            read(spark, find_source(str(parquet(tmp_path, PositionId=ids, Amount=[1]))))
    with pytest.raises(ShardpostError, match="text or numbers for Amount, found list"):
        read(spark, find_source(str(parquet(tmp_path, PositionId=["1"], Amount=[[1]]))))


@pytest.mark.parametrize("text", ["", "\n\n", HEADER])
def test_csv_without_rows(spark: SparkSession, tmp_path: Path, text: str) -> None:
    assert read(spark, written(tmp_path, "list.csv", text)) == []


@pytest.mark.parametrize("text", ["", "\n", "[]", " [ ] "])
def test_json_without_rows(spark: SparkSession, tmp_path: Path, text: str) -> None:
    assert read(spark, written(tmp_path, "list.json", text)) == []


def test_a_folder_is_one_list(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "at 8:00"
    folder.mkdir()
    written(folder, "a.csv", HEADER + "1,c,A,1.5,N\n")
    written(folder, "b.csv", HEADER + "2,c,A,1.5,N\n")
    (folder / "_SUCCESS").touch()
    found = read(spark, find_source(str(folder)))
    assert sorted(str(key) for key, *_ in found) == ["1", "2"]
    (folder / "c.csv").write_text("Client,PositionId,Ticker,Amount,Exchange\nc,2,A,1,N\n")
    with pytest.raises(
        ShardpostError, match=r"c\.csv: expected .*position.* as in .*a\.csv, found "
    ):
        read_source(spark, installed(Settings()), find_source(str(folder)), POSITIONS)


LIST = """
CREATE TABLE list (
    number integer, PositionId text, Client text, Ticker text, Amount numeric, Exchange char(10)
);
INSERT INTO list VALUES
    (1, '1', 'c', 'A', 12345678901234567890.123456789, 'NYSE'), (2, '2', 'ü', 'A', 0.00, 'NYSE'),
    (3, NULL, 'c', 'A', 1, 'NYSE'), (4, '4', 'c', 'A', 'NaN', 'NYSE');
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Postgresql]:
    """Give a PostgreSQL with a list in it."""
    with postgresql() as found:
        found.run(LIST)
        yield found


LOGIN = {"import_jdbc_user": USER, "import_jdbc_password": PASSWORD}
LISTED = [
    ("1", "c", "A", MANY, "NYSE"),
    ("2", "ü", "A", "0", "NYSE"),
    (None, "expected a PositionId, found none"),
    ("4", 'expected a number for Amount, found "NaN"'),
]


def test_a_table_of_a_database(spark: SparkSession, database: Postgresql) -> None:
    assert read(spark, find_source(database.url, table="list"), **LOGIN) == LISTED


def test_a_query_of_a_database(spark: SparkSession, database: Postgresql) -> None:
    sql = (
        'SELECT number AS "PositionId", client, ticker, amount * 2.0::float8 AS amount,'
        " exchange::text FROM list WHERE number IN (2, 4)"
        " UNION ALL SELECT 5, 'c', 'A', 1e7::float8, 'NYSE'"
    )
    assert read(spark, find_source(database.url, query=sql), **LOGIN) == [
        ("2", "ü", "A", "0", "NYSE"),
        ("4", 'expected a number for Amount, found "NaN"'),
        ("5", "c", "A", "10000000", "NYSE"),
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM list WHERE number = 1 ; \n",
        "SELECT * FROM list WHERE number = 1 -- a note",
        "SELECT * FROM list WHERE number = 1 /* a note */;",
    ],
)
def test_a_query_may_end_as_people_end_it(
    spark: SparkSession, database: Postgresql, query: str
) -> None:
    assert read(spark, find_source(database.url, query=query), **LOGIN) == LISTED[:1]


def test_a_number_has_one_text_however_a_source_writes_it(spark: SparkSession) -> None:
    expected = {
        "100": ["100", "100.0", "100.000", "1.0E2", "1e+02", "1.00E2"],
        "0.1": ["0.1", "0.10", "1.0E-1", "1e-01"],
        "-0": ["-0", "-0.0"],
        "0": ["0E-18", "0.000"],
        "-1020.5": ["-1020.50", "-1.0205E3", "-1.02050e+03"],
        "NaN": ["nan", "NaN"],
        "-Infinity": ["-inf", "-Infinity"],
        "1.": ["1."],
        "id": ["id"],
    }
    texts = {text: number for number, written in expected.items() for text in written}
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    found = frame.select("text", source_rows._plain(F.col("text"))).collect()
    assert {row[0]: row[1] for row in found} == texts


def test_a_list_has_one_content_in_a_file_and_in_a_database(
    spark: SparkSession, tmp_path: Path, database: Postgresql
) -> None:
    def content(source: Source) -> str:
        rows, _ = read_source(spark, installed(Settings(**LOGIN)), source, POSITIONS)
        return str(comparison._counted(as_records(rows, POSITIONS, 1_000_000))[2])

    values = "SELECT '1' AS \"PositionId\", 'c' AS client, 'A' AS ticker, 'N' AS exchange"
    contents = {
        content(find_source(database.url, query=f"{values}, {amount} AS amount"))
        for amount in ("100::float8", "100.0::numeric(9, 2)", "1e2::float4")
    }
    for amounts in ([100.0], pa.array([Decimal("100.00")]), pa.array([100.0], pa.float32())):
        columns = {"Exchange": ["N"], "Amount": amounts}
        contents.add(content(find_source(str(parquet(tmp_path, PositionId=["1"], **columns)))))
    contents.add(content(written(tmp_path, "list.csv", HEADER + "1,c,A,100,N\n")))
    assert len(contents) == 1


def test_databases_that_cannot_be_read(spark: SparkSession, database: Postgresql) -> None:
    def error(url: str, password: str = PASSWORD, **what: str) -> str:
        login = {"import_jdbc_user": USER, "import_jdbc_password": password}
        with pytest.raises(ShardpostError) as raised:
            read(spark, find_source(url, None, what.get("table"), what.get("query")), **login)
        assert PASSWORD not in str(raised.value)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert 'password authentication failed for user "shardpost"' in error(
        database.url, "wrong", table="list"
    )
    assert 'relation "lists" does not exist' in error(database.url, table="lists")
    assert "syntax error" in error(database.url, query="SELEC 1")
    assert "Client is missing" in error(database.url, query='SELECT 1 AS "PositionId"')
    ids = "SELECT number::numeric(12,2) AS positionid, client, ticker, amount, exchange FROM list"
    assert "for PositionId, found decimal(12,2): write" in error(database.url, query=ids)
    assert "refused" in error("jdbc:postgresql://127.0.0.1:1/postgres", table="list")
    assert "no_such" in error(database.url.replace("/postgres", "/no_such"), table="list")


def test_numbers_are_read_as_a_profile_says_and_no_other_number_is_guessed(
    spark: SparkSession, tmp_path: Path
) -> None:
    def amounts(profile: Profile, *texts: str) -> list[str | None]:
        path = tmp_path / "list.csv"
        rows = "".join(f'{at},c,A,"{text}",N\n' for at, text in enumerate(texts))
        path.write_text(HEADER + rows)
        source = find_source(str(path), profile=profile)
        target = ImportRequest(source, "Ann").target
        found, _ = read_source(spark, installed(Settings()), source, target)
        return [one.amount for one in as_records(found, target, 1_000_000).orderBy("key").collect()]

    continental = Profile(decimal=",", thousands=".")
    assert amounts(continental, "1.234.567,50", "-0,5", "1234", "1.234") == [
        "1234567.5",
        *("-0.5", "1234", "1234"),
    ]
    assert (
        amounts(continental, "1.5", "1.23,4", "1e5", "1,2,3", "007", "1,", ",5", "") == [None] * 8
    )
    assert amounts(Profile(thousands="'"), "1'234.5", "1234.5", "1'23") == ["1234.5"] * 2 + [None]
    assert amounts(Profile(decimal=","), "1,5", "1.5", "1.234") == ["1.5", None, None]
    assert amounts(Profile(thousands=" "), "1 234", "12 34") == ["1234", None]


def test_columns_have_the_values_of_a_profile(spark: SparkSession, tmp_path: Path) -> None:
    profile = Profile(columns={"PositionId": "Nr"}, values={"Exchange": "N", "Ticker": "A"})
    (tmp_path / "list.csv").write_text("Nr,client,Amount,Exchange\n1,c,1.5,elsewhere\n")
    source = find_source(str(tmp_path / "list.csv"), profile=profile)
    target = ImportRequest(source, "Ann").target
    rows, ignored = read_source(spark, installed(Settings()), source, target)
    [found] = as_records(rows, target, 1_000_000).collect()
    assert (found.key, found.client, found.ticker, found.amount, found.exchange) == GOOD
    assert ignored == ("Exchange",)


CLIENTS = TARGETS["clients"]
CLIENT_ROWS = [
    ("ann", "Ann", None, True, None),
    ("bob", None, "b@x.example", False, None),
    ("eve", None, None, None, "expected true or false for Subscribed, found nothing"),
]


def clients(spark: SparkSession, source: Source, **more: Any) -> list[tuple[Any, ...]]:
    rows, _ = read_source(spark, installed(Settings(**more)), source, CLIENTS)
    found = as_records(rows, CLIENTS, 1_000_000).orderBy("key").collect()
    return [(one.key, one.name, one.email, one.subscribed, one.reason) for one in found]


def test_clients_are_alike_in_all_sources(
    spark: SparkSession, tmp_path: Path, database: Postgresql
) -> None:
    names = "Client,Name,Email,Subscribed\n"
    lists = {
        "list.csv": f"{names}ann,Ann,,TRUE\nbob,,b@x.example,false\neve,,,\n",
        "list.jsonl": '{"Client":"ann","Name":"Ann","Subscribed":true}\n'
        '{"Client":"bob","Email":"b@x.example","Subscribed":"false"}\n'
        '{"Client":"eve","Name":null}\n',
    }
    for name, text in lists.items():
        assert clients(spark, written(tmp_path, name, text)) == CLIENT_ROWS
    columns = {"Client": ["ann", "bob", "eve"], "Name": ["Ann", None, None]}
    flags = {"Email": [None, "b@x.example", None], "Subscribed": [True, False, None]}
    pyarrow.parquet.write_table(pa.table(columns | flags), tmp_path / "list.parquet")
    assert clients(spark, find_source(str(tmp_path / "list.parquet"))) == CLIENT_ROWS
    sql = (
        "SELECT * FROM (VALUES ('ann', 'Ann', NULL, true), ('bob', NULL, 'b@x.example', false),"
        " ('eve', NULL, NULL, NULL)) AS list (client, name, email, subscribed)"
    )
    assert clients(spark, find_source(database.url, query=sql), **LOGIN) == CLIENT_ROWS


def test_what_is_no_client_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    text = 'Client,Name,Email,Subscribed\n" ",Ann,,true\nbob,,,yes\n'
    assert clients(spark, written(tmp_path, "list.csv", text)) == [
        (None, "Ann", None, True, "expected a Client, found none"),
        ("bob", None, None, None, 'expected true or false for Subscribed, found "yes"'),
    ]


def marked(spark: SparkSession, *rows: tuple[str | None, str | None]) -> DataFrame:
    """Return rows of records of (key, watermark)."""
    schema = "key STRING, row STRUCT<watermark: STRING>, reason STRING"
    return spark.createDataFrame([(key, (mark,), None) for key, mark in rows], schema)


@pytest.mark.parametrize(
    ("since", "marks", "taken", "following"),
    [
        (None, ["9", "10", "-1.5"], ["-1.5", "10", "9"], "10"),
        ("9", ["8", "9", "10", "9.5"], ["10", "9", "9.5"], "10"),
        ("2026-11-21", ["2026-11-20T23:59:59.999999Z", "2026-11-21T00:00:00Z"], None, None),
        ("2026-11-21 09:00:00+01", ["2026-11-21 07:59", "2026-11-21 08:00:00"], None, None),
        ("2026-11-21", ["2026-11-20", "9", "x", ""], ["", "9", "x"], "9"),
        ("9", ["2026-11-20", "8"], ["2026-11-20"], "2026-11-20"),
        ("9", ["8"], [], "9"),
        (None, [], [], None),
    ],
)
def test_an_increment_has_what_came_from_its_watermark_on(
    spark: SparkSession, since: str | None, marks: list[str], taken: list[str], following: str
) -> None:
    rows = marked(spark, *((f"{at}", mark) for at, mark in enumerate(marks)))
    found = increment(rows, since)
    texts = sorted(one.row.watermark for one in found.collect())
    assert texts == (marks[1:] if taken is None else taken)
    nothing = rows.where("false").select("reason", "row")
    assert next_watermark(found, nothing, since) == (marks[1] if taken is None else following)


def test_of_a_key_the_newest_rows_count_and_a_rejected_one_holds_the_watermark(
    spark: SparkSession,
) -> None:
    rows = marked(spark, ("a", "1"), ("a", "3"), ("a", "3.0"), ("b", "2"), (None, "1"), ("c", None))
    found = increment(rows, None)
    assert sorted((str(one.key), one.row.watermark) for one in found.collect()) == [
        *(("None", "1"), ("a", "3"), ("a", "3.0"), ("b", "2"), ("c", None))
    ]
    rejected = rows.where("row.watermark = '2' OR row.watermark IS NULL").select("reason", "row")
    assert next_watermark(found, rejected, "0") == "2"
