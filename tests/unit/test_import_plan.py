"""Imports: their sources, when a plan is refused, their ids, and how they are written."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError, UsageError, WrongArgumentError
from shardpost.imports import run
from shardpost.imports.import_job import find_source, read_profile
from shardpost.imports.model.list_format import (
    NO_PROFILE,
    TARGETS,
    InputName,
    Profile,
    SourceColumn,
)
from shardpost.imports.model.plan import Change, Plan, notes, summary
from shardpost.imports.model.source import (
    CONTENT_HEADER,
    STREAM_HEADER,
    WATERMARK_HEADER,
    AppliedImport,
    FileSource,
    Format,
    ImportRequest,
    JdbcSource,
    Lookup,
    choose_id,
    format_of,
    is_id_of,
    jdbc_source,
)
from shardpost.imports.run import ImportWriter, applied_import
from shardpost.imports.spark.comparison import find_base
from shardpost.imports.spark.source_rows import last_watermark
from shardpost.kafka import offsets, records
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import Outgoing, partition_of
from shardpost.kafka.topic_metadata import topic_config
from shardpost.kafka.transactions import FencedError, produce
from shardpost.spark.job import document_of, request_of
from shardpost.wording import parse_share, share
from tests.support.at_step import at_step
from tests.support.committed_snapshot import commit_snapshot
from tests.support.installed import installed
from tests.support.letter_world import committed
from tests.support.memory_kafka import MemoryKafka

POSITIONS = TARGETS["positions"]
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def plan(closed: int, of: int, *, rows: int = 10, without_id: int = 0) -> Plan:
    return Plan(rows, {Change.CLOSED: closed}, of, {}, without_id=without_id)


@pytest.mark.parametrize(
    ("closed", "of", "said"),
    [
        (0, 0, None),
        (5, 100, None),
        (6, 100, "(6%), more than 5%: if this is intended, allow it with --max-closed 6%"),
        (1, 5, "(20%), more than 5%: if this is intended, allow it with --max-closed 20%"),
        (1, 3, "(33.34%), more than 5%: if this is intended, allow it with --max-closed 33."),
    ],
)
def test_more_closings_than_a_share_are_refused(closed: int, of: int, said: str | None) -> None:
    refusal = plan(closed, of).refusal(0.05)
    assert refusal is None if said is None else said in str(refusal)


@pytest.mark.parametrize(("closed", "of"), [(1, 3), (2, 7), (1, 999), (100, 1001)])
def test_the_share_that_a_refusal_names_allows_it(closed: int, of: int) -> None:
    refused = str(plan(closed, of).refusal(0.0))
    assert plan(closed, of).refusal(share(refused.rsplit(" ", 1)[1])) is None


def test_a_list_that_may_lack_rows_closes_nothing_whatever_is_allowed() -> None:
    assert "the list has no rows" in str(plan(1, 100, rows=0).refusal(1.0))
    assert "3 rows have no readable PositionId" in str(plan(1, 100, without_id=3).refusal(1.0))
    assert plan(0, 100, rows=0).refusal(0.0) is None
    assert plan(0, 100, without_id=3).refusal(0.0) is None


def on_record(**contents: str) -> Lookup:
    """Return what finds these imports: {id: content}."""
    known = {name.replace("_", "-"): content for name, content in contents.items()}
    return lambda name: AppliedImport(name, known[name], "Ann", AT) if name in known else None


def test_a_content_that_is_applied_again_after_other_changes_has_another_id() -> None:
    def chosen(lookup: Lookup, *, differs: bool) -> tuple[str, bool]:
        found, before = choose_id(None, "c1", None, differs=differs, lookup=lookup)
        return found, before is not None

    assert chosen(on_record(), differs=True) == ("c1", False)
    assert chosen(on_record(), differs=False) == ("c1", False)
    assert chosen(on_record(c1="c1"), differs=False) == ("c1", True)
    assert chosen(on_record(c1="c1"), differs=True) == ("c1-2", False)
    assert chosen(on_record(c1="c1", c1_2="c1"), differs=False) == ("c1-2", True)


def test_what_was_broken_off_goes_on_under_its_id() -> None:
    found = choose_id(None, "c1", "c1-2", differs=True, lookup=on_record(c1="c1"))
    assert found == ("c1-2", None)
    assert is_id_of("c1-2", None, "c1")
    assert not is_id_of("c12", None, "c1")
    assert is_id_of("monday", "monday", "c1")
    assert not is_id_of("c1", "monday", "c1")


def test_a_given_id_is_of_one_content() -> None:
    lookup = on_record(monday="c1")
    _, before = choose_id("monday", "c1", None, differs=True, lookup=lookup)
    assert before
    with pytest.raises(ShardpostError, match=r"monday was applied by Ann at .* with other rows"):
        choose_id("monday", "c2", None, differs=True, lookup=lookup)


@pytest.mark.parametrize("given", ["", " ", "a\nb", "\x1b[1m", "x" * 201])
def test_an_id_that_cannot_be_printed_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="--id: expected up to 200 printable"):
        ImportRequest(FileSource("/list.csv", Format.CSV), "Ann", import_id=given)


@pytest.mark.parametrize("given", ["", "3", "3:", ":5f0c1d9e4b7a2c38", "3:5f0c1d9e4b7a2c38x"])
def test_a_plan_that_none_has_printed_is_refused(given: str) -> None:
    source = FileSource("/list.csv", Format.CSV)
    ImportRequest(source, "Ann", up_to="3:5f0c1d9e4b7a2c38")
    with pytest.raises(UsageError, match="--up-to: expected the value that a plan printed, found"):
        ImportRequest(source, "Ann", up_to=given)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5%", 0.05), ("0.05", 0.05), ("100 %", 1.0), ("0", 0.0), ("0.5%", 0.005), (1, 1.0)],
)
def test_a_share_is_given_in_two_forms(text: object, value: float) -> None:
    assert share(text) == parse_share(str(text)) == pytest.approx(value)


@pytest.mark.parametrize("text", ["20", "-1%", "101%", "nan", "5 percent", "1 %%", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a percentage such as 5%, or a share"):
        share(text)
    with pytest.raises(UsageError, match=f"^{text!r}: expected a percentage such as 5%"):
        parse_share(text)


def test_a_result_in_words() -> None:
    made = Plan(5, {Change.NEW: 1, Change.EQUAL: 2}, 2, {Change.NEW: ("7",)}, ignored=("Note",))
    made = replace(made, unknown_exchanges={"TSE": 2})
    result = {"import_id": "c1", "source": "list.csv", **made.as_json(), "refused": None}
    result["up_to"] = "3:5f0c1d9e4b7a2c38"
    result |= {"applied": False, "applied_before": None, "written": 0, "rejected_rows": 2}
    result["rejected"] = [{"reason": "why", "row": {"PositionId": "9", "Client": None}}]
    assert [*summary(result)] == [
        "import c1: 5 rows of list.csv",
        "new              1  such as 7",
        "changed          0",
        "closed           0",
        "equal            2",
        "rejected         2  of the rows; 0 open positions remain",
        "1 record would be written; to apply exactly this, add --apply --up-to 3:5f0c1d9e4b7a2c38",
    ]
    assert [*notes(result)] == [
        "ignored columns: Note",
        "2 open positions on exchanges without a country ('TSE' 2): they would count for nobody,"
        " unless SHARDPOST_HOLDS takes stock without a country",
        "rejected: PositionId 9: why",
        "and 1 more row is rejected",
    ]


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
    with pytest.raises(UsageError, match="all of one kind: use --format"):
        find_source("days")
    Path("my list.csv").touch()
    assert find_source((tmp_path / "my list.csv").as_uri()) == find_source("my list.csv")


@pytest.mark.parametrize("name", ["_list.csv", ".list.csv", "list.txt", "empty/"])
def test_files_that_are_no_list_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    with pytest.raises(UsageError, match=str(tmp_path)):
        find_source(str(path))


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    for text in ("", " ", "-", str(tmp_path / "none.csv")):
        with pytest.raises(UsageError):
            find_source(text)
    for url in ("s3a://bucket/list.csv", "https://host/list.csv", "hdfs://host/list.csv"):
        with pytest.raises(UsageError, match="a file or a folder of this machine, or a JDBC URL"):
            find_source(url, "csv")
    (tmp_path / "list.csv").touch()
    with pytest.raises(UsageError, match="for a JDBC URL"):
        find_source(str(tmp_path / "list.csv"), table="list")


def test_a_jdbc_url_needs_a_table_or_a_query() -> None:
    assert find_source(POSTGRESQL, table="list") == JdbcSource(POSTGRESQL, "list")
    assert find_source(POSTGRESQL, query="SELECT 1") == JdbcSource(POSTGRESQL, None, "SELECT 1")
    with pytest.raises(UsageError, match="--format and --profile are for files"):
        find_source(POSTGRESQL, "csv", table="list")
    for table, query in ((None, None), ("a", "b")):
        with pytest.raises(UsageError, match="either --table or --query"):
            find_source(POSTGRESQL, None, table, query)
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
        # By the manuals of the vendors: MySQL's and MariaDB's hosts with properties of their own,
        "jdbc:mysql://(host=db,port=3306,user=me,password=hush)/book",
        "jdbc:mysql://[(host=a,user=me,password=hush),(host=b)]/book",
        "jdbc:mysql://address=(host=db)(port=3306)(user=me)(password=hush)/book",
        "jdbc:mysql:replication://address=(type=source)(host=db)(password2=hush)/book",
        "jdbc:mysql://me:hush@[db1,db2]/book",
        "jdbc:mysql://me:h%2Fush@db/book?trustCertificateKeyStorePassword=hush",
        "jdbc:mysql+srv://db/book?PASSWORD=hush",
        "jdbc:mysql://(host=db,pass%77ord=hush)/book",
        "jdbc:mysql://(host=db,password%3Dhush)/book",
        "jdbc:mariadb://address=(host=db)(port=1)(type=primary)/book?user=me&password=hush",
        "jdbc:mariadb://db/book?keyStorePassword=hush",
        # PostgreSQL's,
        "jdbc:postgresql:book?user=me&password=hush",
        "jdbc:postgresql://a,b/book?loggerLevel=OFF&sslpassword=hush",
        # SQL Server's, whose names have any case, blanks around them, and synonyms,
        "jdbc:sqlserver://db\\one:1433;databaseName=book;Password = {hu;sh}hush",
        "jdbc:sqlserver://db;user=me;pwd=hush",
        "jdbc:sqlserver://db;keyStoreAuthentication=KeyVaultClientSecret;keyStoreSecret=hush",
        "jdbc:sqlserver://db;keyVaultProviderClientKey=hush",
        "jdbc:sqlserver://db;authentication=ActiveDirectoryServicePrincipal;accessToken=hush",
        # and Oracle's, where a password may be in quotes.
        "jdbc:oracle:thin:me/hush@//db:1521/book",
        'jdbc:oracle:thin:me/"a/b@c:hush"@//db:1521/book',
        "jdbc:oracle:oci:proxy[me]/hush@book",
        "jdbc:oracle:thin:me/hush",
        "jdbc:oracle:thin:@tcps://db:2484/book?oracle.net.wallet_password=hush",
        "jdbc:oracle:thin:@book?javax.net.ssl.keyStorePassword=hush",
        "JDBC:mysql://me:hush@db/book",
        "postgresql://me:hush@db/book",
    ],
)
def test_a_login_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    expected = "SHARDPOST_IMPORT_JDBC_PASSWORD" if url.lower().startswith("jdbc") else "JDBC URL"
    with pytest.raises(UsageError, match=expected) as raised:
        find_source(url, table="list")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("option", ["table", "query"])
def test_a_password_in_what_is_read_is_refused_and_not_repeated(option: str) -> None:
    sql = "(SELECT * FROM dblink('host=db password = hush', 'SELECT 1') AS t(n int)) AS list"
    with pytest.raises(UsageError, match=f"--{option} with a login") as raised:
        find_source(POSTGRESQL, None, *((sql, None) if option == "table" else (None, sql)))
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        f"{POSTGRESQL}?sslmode=verify-full&sslrootcert=/etc/ca.pem&user=me",
        "jdbc:mysql://address=(host=db)(port=3306)/book?sslMode=VERIFY_IDENTITY",
        "jdbc:sqlserver://db\\one:1433;databaseName=book;encrypt=true;user=me",
        "jdbc:oracle:thin:@tcps://db:2484/book?wallet_location=/etc/wallet",
        "jdbc:oracle:thin:@(description=(address=(protocol=tcps)(port=1522)(host=db)))",
    ],
)
def test_a_url_without_a_login_is_taken(url: str) -> None:
    assert jdbc_source(url, "list", None).url == url


def test_columns_are_found_in_any_case_and_order() -> None:
    names = ["note", "EXCHANGE", "amount", "", "Ticker", "client", "note", " positionid "]
    found, ignored = POSITIONS.find("list", [*map(SourceColumn, names)])
    assert found["PositionId"].name == " positionid "
    assert found["Exchange"].name == "EXCHANGE"
    assert ignored == ("note", "(without a name)", "note")


@pytest.mark.parametrize("column", ["PositionId", "Client"])
@pytest.mark.parametrize(
    "type_", ["string", "char(10)", "varchar(20)", "smallint", "bigint", "decimal(20,0)"]
)
def test_an_id_is_text_or_a_whole_number(column: str, type_: str) -> None:
    POSITIONS.require_type("list", column, type_)


@pytest.mark.parametrize("column", ["PositionId", "Client", "Ticker", "Exchange"])
@pytest.mark.parametrize(
    "type_", ["double", "float", "decimal(12,2)", "boolean", "binary", "date", "array<int>"]
)
def test_an_id_of_another_type_would_be_another_id(column: str, type_: str) -> None:
    columns = [
        SourceColumn(name, type_ if name == column else "string") for name in POSITIONS.columns
    ]
    with pytest.raises(ShardpostError) as raised:
        POSITIONS.find("list", columns)
    assert str(raised.value) == (
        f"list: expected text or whole numbers for {column}, found {type_}: write it as text:"
        " quoted in CSV, with a CAST in a query"
    )


def test_all_columns_that_are_wrong_are_named() -> None:
    names = ["PositionId", "Client", "client", "Ticker", "Exchange", "exchange"]
    with pytest.raises(ShardpostError) as raised:
        POSITIONS.find("list", [*map(SourceColumn, names)])
    assert str(raised.value) == (
        "list: expected the columns PositionId, Client, Ticker, Amount, Exchange, each once: Client"
        " is duplicated; Amount is missing; Exchange is duplicated; found"
        " PositionId, Client, client, Ticker, Exchange, exchange"
    )


PARTITIONS = 3
KEYS = [str(n) for n in range(7)]
APPLIED = AppliedImport("c1", "c1", "Ann", datetime(2026, 11, 21, 12, tzinfo=UTC))


KAFKA = {"partitions": PARTITIONS}


def record(key: str, *, imported: bool = True) -> Outgoing:
    headers: list[tuple[str, str | bytes | None]] = [("import-id", b"c1")] if imported else []
    return Outgoing("positions", key.encode(), key.encode(), headers, partition_of(key, PARTITIONS))


def ends(kafka: MemoryKafka) -> dict[int, int]:
    found = offsets.watermarks(
        installed(kafka.settings).kafka, {"positions": PARTITIONS}, committed=False
    )
    return {partition: high for partition, (_, high) in found["positions"].items()}


def record_of(kafka: Kafka, applied: AppliedImport, why: str, **more: str) -> Outgoing:
    about = applied.import_id.encode()
    decision = Decision(about, Kind.IMPORTED, applied.who, applied.when, why)
    headers = {name: text.encode() for name, text in more.items()}
    headers[CONTENT_HEADER] = applied.content.encode()
    return decisions_topic.written(kafka, decision, headers)


def write(kafka: MemoryKafka, keys: list[str], since: dict[int, int]) -> int:
    config = topic_config(installed(kafka.settings).kafka, "positions")
    with closing(ImportWriter(installed(kafka.settings), "positions", config)) as writer:
        writer.open()
        decided = record_of(installed(kafka.settings).kafka, APPLIED, "a list")
        return writer.write_all(map(record, keys), decided, since)


def test_all_is_written_once_and_then_on_record(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 2)
    seen: list[AppliedImport | None] = []

    def look() -> None:
        seen.append(applied_import(installed(kafka.settings).kafka, "c1"))

    monkeypatch.setattr(run, "step", lambda name: look() if "written" in name else None)
    assert write(kafka, KEYS, ends(kafka)) == 7
    assert (
        sorted((one.key or b"").decode() for one in committed(kafka.settings, "positions")) == KEYS
    )
    assert seen == [None, None, None, APPLIED]


def test_without_records_it_is_on_record_all_the_same(kafka: MemoryKafka) -> None:
    assert write(kafka, [], ends(kafka)) == 0
    assert applied_import(installed(kafka.settings).kafka, "c1") == APPLIED
    assert applied_import(installed(kafka.settings).kafka, "c2") is None


@pytest.mark.parametrize("key", KEYS)
def test_a_record_of_another_program_since_the_comparison_stops_it(
    kafka: MemoryKafka, key: str
) -> None:
    since = ends(kafka)
    at = produce(installed(kafka.settings).kafka, record(key, imported=False))
    with pytest.raises(ShardpostError, match="since the list was compared; 0 records are") as error:
        write(kafka, ["0"], since)
    assert str(at) in str(error.value)
    assert len([*committed(kafka.settings, "positions")]) == 1
    assert applied_import(installed(kafka.settings).kafka, "c1") is None


def test_between_two_transactions_it_stops_the_second(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    other = record("other", imported=False)
    at_step(monkeypatch, run)(
        "import batch written", lambda: produce(installed(kafka.settings).kafka, other)
    )
    with pytest.raises(ShardpostError, match="4 records are written, but not the rest"):
        write(kafka, KEYS, ends(kafka))
    assert len([*committed(kafka.settings, "positions")]) == 5
    assert applied_import(installed(kafka.settings).kafka, "c1") is None


def test_records_of_imports_that_were_aborted_stop_nothing(kafka: MemoryKafka) -> None:
    since = ends(kafka)
    produce(installed(kafka.settings).kafka, record("0"))  # as an aborted one stands in the log
    assert write(kafka, KEYS[1:], since) == 6


def test_a_newer_import_fences_an_older_one(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_BATCH_RECORDS", 4)
    at_step(monkeypatch, run)("import batch written", lambda: write(kafka, ["new"], ends(kafka)))
    with pytest.raises(FencedError, match="another import into positions has taken over"):
        write(kafka, KEYS, ends(kafka))
    assert len([*committed(kafka.settings, "positions")]) == 5


def test_of_all_retries_only_a_correction_of_a_position_stops_an_import(kafka: MemoryKafka) -> None:
    commit_snapshot(kafka)

    def retried(*headers: tuple[str, str | bytes | None]) -> object:
        return produce(
            installed(kafka.settings).kafka, Outgoing("retries", b"1", b"{}", [*headers], 0)
        )

    retried(("origin-topic", b"orders"))
    retried()
    retried(("origin-topic", b"clients"))
    assert find_base(installed(kafka.settings)).unread == []
    at = retried(("origin-topic", b"positions"))
    with pytest.raises(ShardpostError) as raised:
        find_base(installed(kafka.settings))
    assert str(raised.value) == (
        f"{at}: a correction that is not in the tables yet: a list cannot be compared with old"
        " tables; run `shardpost compact` first"
    )


def profile(home: Path, text: str) -> Path:
    folder = home / "profiles"
    folder.mkdir(exist_ok=True)
    path = folder / "bank.yml"
    path.write_text(text)
    return path


def test_a_profile_is_read_by_its_name_or_path(tmp_path: Path) -> None:
    text = 'delimiter: ";"\ndecimal: ","\nencoding: UTF-8\ncolumns:\n  PositionId: Nr.\n'
    path = profile(tmp_path, text)
    expected = Profile(delimiter=";", decimal=",", columns={"PositionId": "Nr."})
    assert read_profile(tmp_path, "bank") == read_profile(tmp_path, str(path)) == expected
    assert read_profile(tmp_path, None) == NO_PROFILE
    lists = tmp_path / "list.csv"
    lists.touch()
    request = ImportRequest(find_source(str(lists), profile=expected), "Ann")
    assert request.target.read["PositionId"] == "nr."
    assert request_of(ImportRequest, document_of(request)) == request
    with pytest.raises(UsageError, match="--profile is for CSV, found parquet"):
        find_source(str(lists), "parquet", profile=expected)
    with pytest.raises(UsageError, match="--profile are for files, found a JDBC URL"):
        find_source(POSTGRESQL, table="list", profile=expected)
    with pytest.raises(UsageError, match=r"there is no .*/profiles/bnk\.yml: did you mean bank\?"):
        read_profile(tmp_path, "bnk")
    with pytest.raises(UsageError, match=r"none\.yml: cannot be read"):
        read_profile(tmp_path, "./none.yml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("decimal: ','\ndelimeter: ';'\n", "line 2: delimeter: unknown name: did you mean delim"),
        (
            "columns:\n  Amount: x\n  Clients: y\n",
            "line 3: columns.Clients: .* mean Client",
        ),
        (
            "values:\n  Exchage: N\n",
            "line 2: values.Exchage: expected one of .* Exchange",
        ),
        ("delimiter: ;;\n", "line 1: delimiter: String should match"),
        ("encoding: rot13\n", "line 1: encoding: expected an encoding of text, such as utf-8"),
        ("encoding: latin-9999\n", "line 1: encoding: expected an encoding of text"),
        ("preamble: some\n", "line 1: preamble: expected a whole number, found 'some'"),
        ("quote: ','\n", "expected two characters as delimiter and quote"),
        ("decimal: ','\nthousands: ','\n", "expected two characters .* and as decimal marks"),
        ("- a\n", "expected a map of names"),
        ("decimal: [\n", "line 2: expected YAML"),
    ],
)
def test_a_wrong_profile_is_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    path = profile(tmp_path, text)
    with pytest.raises(UsageError, match=said) as raised:
        read_profile(tmp_path, "bank")
    assert str(raised.value).startswith(f"{path}, line ")


def test_lists_of_clients_and_exchanges_have_their_own_columns(tmp_path: Path) -> None:
    clients = TARGETS["clients"]
    assert clients.columns == ("Client", "Name", "Email", "Subscribed")
    clients.require_type("list", "Subscribed", "boolean")
    with pytest.raises(ShardpostError, match="expected text or true or false for Subscribed,"):
        clients.require_type("list", "Subscribed", "double")
    assert TARGETS["exchanges"].columns == ("Exchange", "Country")
    made = Plan(5, {Change.CLOSED: 2, Change.LEFT: 1}, 9, {}, target=clients, rejected_rows=1)
    assert str(made.refusal(0.05)).startswith("2 of 9 open clients would close (22.23%), more")
    result = {"import_id": "c1", "source": "list.csv", **made.as_json(), "refused": "2 of 9"}
    assert [*summary(result)][5:] == ["rejected         1  of the rows; 1 open client remains"]
    with pytest.raises(WrongArgumentError, match="into: Input should be"):
        request_of(
            ImportRequest, '{"source": {"location": "/l", "format": "csv"}, "into": "decisions"}'
        )


def test_an_increment_reads_a_column_more_which_may_be_one_of_the_list() -> None:
    source = FileSource("/list.csv", Format.CSV)
    own = ImportRequest(source, "Ann", watermark="Changed").target
    assert own.read == {column: column.lower() for column in POSITIONS.columns} | {
        "watermark": "changed"
    }
    assert ImportRequest(source, "Ann", watermark="PositionId").target.read["watermark"] == (
        "positionid"
    )
    with pytest.raises(ShardpostError, match=r"watermark \(changed\) is missing"):
        own.find("list", [*map(SourceColumn, POSITIONS.columns)])


def test_the_next_increment_begins_where_the_last_one_of_its_stream_ended(
    kafka: MemoryKafka,
) -> None:
    def applied(name: str, stream: str, watermark: str) -> Outgoing:
        kafka_, done = installed(kafka.settings).kafka, replace(APPLIED, import_id=name)
        return record_of(
            kafka_, done, "why", **{STREAM_HEADER: stream, WATERMARK_HEADER: watermark}
        )

    def last(stream: str) -> str | None:
        into, watermark, path = stream.split()
        source, name = FileSource(path, Format.CSV), cast("InputName", into)
        request = ImportRequest(source, "Ann", into=name, watermark=watermark)
        assert request.stream == stream
        return last_watermark(installed(kafka.settings).kafka, request)

    write(kafka, [], ends(kafka))
    assert last("positions n /a") is None
    for name, stream, watermark in (("c2", "positions n /a", "5"), ("c3", "clients n /a", "9")):
        produce(installed(kafka.settings).kafka, applied(name, stream, watermark))
    assert (last("positions n /a"), last("clients n /a"), last("positions m /a")) == (
        "5",
        "9",
        None,
    )
