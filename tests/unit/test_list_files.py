"""A list that was cut or garbled is never read as a shorter one, whatever its format."""

import csv
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardpost.errors import ShardpostError, UsageError
from shardpost.imports.import_job import files_of
from shardpost.imports.list_files import ListReader
from shardpost.imports.model.list_format import TARGETS, Profile
from shardpost.imports.model.source import FileSource, Format, format_of

POSITIONS = TARGETS["positions"]
COLUMNS = POSITIONS.columns
HEADER = ",".join(COLUMNS) + "\n"
CSV = HEADER + '1,c,A,1,N\n2,"a, ""b""","T\nU",1,N\n"3",ü,"A","1.5","N"\n'
ROWS = [dict(zip(COLUMNS, (str(n), "ü", "A", "1.5", "N"), strict=True)) for n in (1, 2, 3)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def parquet() -> bytes:
    file = BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), file)
    return file.getvalue()


# {name: its bytes, and after how many of them a row ends of which a text can say no more}
WHOLE: dict[str, tuple[bytes, set[int]]] = {
    name: (text.encode(), {len(text[: text.rindex(last)].encode())})
    for name, text, last in [
        ("list.csv", CSV, '"3"'),
        ("crlf.csv", CSV.replace("\n", "\r\n"), '"3"'),
        ("list.jsonl", LINES, '{"PositionId": "3"'),
    ]
} | {
    "list.csv.gz": (gzip.compress(CSV.encode()), set()),
    "list.jsonl.gz": (gzip.compress(LINES.encode()), set()),
    "list.json": (json.dumps(ROWS, ensure_ascii=False, indent=1).encode(), set()),
    "list.parquet": (parquet(), set()),
}


def whole(path: Path, *more: str) -> ListReader:
    """Read the list that is these files, all in one folder, or the one file."""
    format_ = format_of(path.name)
    assert format_ is not None
    return read(FileSource(str(path.parent if more else path), format_))


def read(source: FileSource) -> ListReader:
    reader = ListReader(source, POSITIONS)
    assert sum(part.num_rows for part in reader.parts()) == reader.rows
    return reader


def values(path: Path) -> list[tuple[bytes | None, ...]]:
    format_ = format_of(path.name)
    assert format_ is not None
    parts = ListReader(FileSource(str(path), format_), POSITIONS).parts()
    return [tuple(row.values()) for part in parts for row in part.to_pylist()]


def refused(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ShardpostError) as raised:
        whole(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_is_cut_anywhere_in_its_last_two_rows_is_refused(
    tmp_path: Path, name: str
) -> None:
    content, row_ends = WHOLE[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert whole(path).rows == 3
    # In a packed file, an array and a Parquet file nobody knows where rows are.
    begins = content.index(b'2,"a') if name.endswith(".csv") else 0
    begins = content.index(b'{"PositionId": "2"') if name.endswith(".jsonl") else begins
    accepted = set()
    for size in range(begins + 1, len(content)):
        path.write_bytes(content[:size])
        try:
            found = whole(path)
        except ShardpostError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
        else:
            assert found.rows == 2
            accepted.add(size)
    assert accepted == row_ends


@pytest.mark.parametrize("unwanted", ['"', "\n", "\r", "\0", ","])
def test_no_character_too_many_makes_csv_a_shorter_list(tmp_path: Path, unwanted: str) -> None:
    path = tmp_path / "list.csv"
    for at in range(len(HEADER), len(CSV)):
        path.write_bytes((CSV[:at] + unwanted + CSV[at:]).encode())
        try:
            assert whole(path).rows == 3
        except ShardpostError as error:
            assert "line " in str(error)  # noqa: PT017
        else:
            assert unwanted not in '"\0'


@pytest.mark.parametrize("lost", ['"', "\n", ","])
def test_a_character_of_csv_that_is_lost_is_noticed(tmp_path: Path, lost: str) -> None:
    ends = HEADER + '1,c,A,1,N\n2,"a","b""",1,N\n3,c,A,1,N\n'
    for at in (at for at, one in enumerate(ends) if one == lost and at >= len(HEADER)):
        assert "line " in refused(tmp_path / "list.csv", ends[:at] + ends[at + 1 :])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1,c,A,1,N\n2,c,A,1\n", "line 3: expected 5 values, as in the header, found 4: 2,c,A,1:"),
        ("1,c,A,1,5,N\n", "line 2: expected 5 values, as in the header, found 6: 1,c,A,1,5,N:"),
        ("1,c,A,1,N", "line 2: expected a line break at the end of the last row, found none: 1,c"),
        ('1,"c,A,1,N\n2,c,A,1,N\n', "line 2: expected a closing quote, found none up to li"),
        ('1,6" pipe,8" pipe,1,N\n', "line 2: expected quotes and line breaks only where RFC 4180"),
        ('1, "c",A,1,N\n', "line 2: expected quotes and line breaks only where RFC 4180"),
        ('1,"c"A,A,1,N\n', "line 2: expected quotes and line breaks only where RFC 4180"),
        ('1,c,A,1,"N\n2,c,A,1,N\n3,c,A,1,N"\n', "line 2: expected one row, found whole rows in q"),
        ('1,"c,A,1,N\n2,c",A,1,N\n', "line 2: expected one row, found whole rows in quotes, up to"),
        (
            "1,c,A,1,N\r\n",
            r"line 2: expected a line that ends with '\n', like the header, found '\r",
        ),
        ("1,c,A,1,N\r2,c,A,1,N\n", "line 2: expected quotes and line breaks only where RFC 4180"),
        ("1,c,A,1,N\0\n", "line 2: expected text without NUL characters, found one"),
        (
            '1,"' + "\n" * 20_000,
            "line 2: expected a closing quote, found none up to line 10",
        ),
    ],
)
def test_rows_of_csv_that_may_have_swallowed_others_are_refused(
    tmp_path: Path, text: str, error: str
) -> None:
    said = refused(tmp_path / "list.csv", HEADER + text)
    assert error in said
    assert "the list may have been cut or garbled, so nothing is imported: export it again" in said


@pytest.mark.parametrize(
    ("mark", "what"), [(";", "semicolons"), ('";"', "semicolons"), ("\t", "tabs"), ("|", "bars")]
)
def test_columns_that_are_separated_otherwise_are_named(
    tmp_path: Path, mark: str, what: str
) -> None:
    rows = [[*reversed(COLUMNS), "Note"], ["N", "1,5", "A", "c", "1", "x"]]
    quote = mark.strip(";")[:1]
    text = "".join(f"{quote}{mark.join(row)}{quote}\r\n" for row in rows)
    said = refused(tmp_path / "list.csv", f"\ufeff{text}")
    assert (
        f"line 1: expected commas between the columns, found {what}: export it with commas" in said
    )


@given(st.lists(st.lists(st.text('a",\n', max_size=3), min_size=5, max_size=5), max_size=4))
@example([["a", "b\nc", "", '"', ","]])
def test_all_that_is_written_as_csv_is_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    text = StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_text(text.getvalue(), newline="")
    try:
        assert whole(path).rows == len(rows)
    except ShardpostError as error:  # rare, and then one cannot tell
        assert "whole rows in quotes" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '{"PositionId":"1","Client":"c","PositionId":"2"}\n',
            "the same name twice in one object: 'Po",
        ),
        ('[{"a":1},{"a":1,"b":{"c":1,"c":2}}]', "the same name twice in one object: 'c'"),
        ('{"a":1}\nnonsense\n', "line 2: expected JSON objects, one in each line or all in one"),
        ('{"a":1}\n[1]\n', "line 2: expected JSON objects"),
        ('{"a":1}{"a":2}\n', "line 1: expected JSON objects"),
        ('[{"a":1}\n,5]', "line 1: expected JSON objects"),
        ('[{"a":1},\n\n{"a:2}]', "line 3: expected JSON objects"),
        ('[{"a":1}]\n[{"a":2}]\n', "line 2: expected JSON objects"),
        ('{"a":NaN}\n', "NaN, which is not JSON"),
        ('{"a":"\\ud800"}\n', "a lone surrogate"),
        ('{"a":' + "[" * 100_000 + "\n", "recursion"),
    ],
)
def test_json_that_may_have_lost_rows_is_refused(tmp_path: Path, text: str, error: str) -> None:
    assert error in refused(tmp_path / "list.json", text)


def test_json_is_taken_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text('\ufeff{"a":' + "9" * 5000 + '}\r\n\n{"a":"\\ud83d\\ude00"}\n')
    assert (whole(path).form, whole(path).rows) == ("objects in lines", 2)
    path.write_text(' [ {"a": 1},\n{"b": 2}]')
    assert (whole(path).form, whole(path).rows) == ("an array", 2)
    assert [*whole(path).names] == ["a", "b"]
    path.write_text("[]")
    assert (whole(path).form, whole(path).rows) == ("an array", 0)
    path.write_text("")
    assert (whole(path).form, whole(path).rows) == (None, 0)


@pytest.mark.parametrize("column", ["PositionId", " client", "TICKER", "Exchange"])
@pytest.mark.parametrize(
    ("value", "found"),
    [("1.0", "1.0"), ("1e0", "1e0"), ("true", "true"), ("[1]", '["1"]'), ('{"a":1}', '{"a": "1"}')],
)
def test_an_id_of_json_that_is_no_whole_number_is_refused(
    tmp_path: Path, column: str, value: str, found: str
) -> None:
    name = next(name for name in COLUMNS if name.lower() == column.strip().lower())
    said = f"expected text or whole numbers for {name}, found {found}: write it as text"
    lines = f'{{"{column}":1}}\n{{"{column}":{value}}}\n'
    assert f"line 2: {said}" in refused(tmp_path / "list.jsonl", lines)
    array = f"[{lines.strip().replace('}' + chr(10), '},')}]"
    assert f"line 1, object 2: {said}" in refused(tmp_path / "list.json", array)


@pytest.mark.parametrize("value", ["1", "-1", '"1.0"', "123456789012345678901234567890", "null"])
def test_an_id_of_json_is_text_or_a_whole_number(tmp_path: Path, value: str) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text(
        f'{{"PositionId":{value},"Amount":1.5,"Note":true,"More":{{"PositionId":1.0}}}}\n'
    )
    assert whole(path).rows == 1


@pytest.mark.parametrize("rounded", ["1.0", "10.00", "1.23457E+11"])
def test_an_id_of_csv_that_a_tool_has_made_a_fraction_is_refused_without_quotes(
    tmp_path: Path, rounded: str
) -> None:
    said = refused(tmp_path / "list.csv", f"{HEADER}1,c,A,1.0,N\n{rounded},c,A,1,N\n")
    assert f"line 3: expected text or whole numbers for PositionId, found {rounded}: write" in said
    path = tmp_path / "quoted.csv"
    path.write_text(f'{HEADER}"{rounded}",c,A,1.0,N\n1.5,1E7,3.1.0,{rounded},x1.0\n')
    assert whole(path).rows == 2


@pytest.mark.parametrize(
    "above", ["sep=,", "Positions of 28 November", '"Account, all"', "a,b,c,d,e"]
)
def test_a_line_above_the_header_is_named(tmp_path: Path, above: str) -> None:
    said = refused(tmp_path / "list.csv", f"{above}\n{CSV}")
    assert "line 1: expected a header with PositionId, Client, Ticker, Amount, Exchange" in said
    assert "and no title or `sep=` above it" in said


def test_bytes_that_are_no_characters_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    for encoding in ("utf-8", "latin-1"):
        path.write_text(CSV, encoding=encoding)
        assert values(path) == [
            (b"1", b"c", b"A", b"1", b"N"),
            (b"2", b'a, "b"', b"T\nU", b"1", b"N"),
            (b"3", "ü".encode(encoding), b"A", b"1.5", b"N"),
        ]


def test_an_empty_text_is_not_nothing(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(HEADER + '1,"",,"1",\n2,,"",1,""\n')
    assert values(path) == [(b"1", b"", None, b"1", None), (b"2", None, b"", b"1", b"")]


def test_a_list_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(CSV)
    for changed in (path, tmp_path / "late.csv"):
        reader = ListReader(FileSource(str(tmp_path), Format.CSV), POSITIONS)
        changed.write_text(CSV + "4,c,A,1,N\n")
        with pytest.raises(ShardpostError, match="changed while it was read: run it again"):
            [*reader.parts()]


def folder(path: Path) -> None:
    path.mkdir()
    (path / "part.csv").write_text(CSV)


def by_spark(path: Path) -> None:
    folder(path)
    (path / "_SUCCESS").touch()


@pytest.mark.parametrize(
    ("name", "make", "error"),
    [
        ("_b.csv", Path.touch, "names that begin with _ or a dot"),
        (".x", Path.touch, "names that begin with _ or a dot"),
        ("_SUCCESS", lambda path: path.write_text("no"), "names that begin with _ or a dot"),
        (".c.csv.crc", Path.touch, "names that begin with _ or a dot"),  # c.csv is lost
        ("_temporary", Path.mkdir, "names that begin with _ or a dot"),
        ("more", folder, "expected only files in the folder of a list, found a folder"),
        ("by-spark.csv", by_spark, "expected only files in the folder of a list, found a folder"),
        ("lost.csv", lambda path: path.symlink_to("nothing"), "a broken link"),
        ("b.csv.bz2", Path.touch, "expected no compression but .gz, found .bz2: unpack it"),
        (
            "b.csv.GZ",
            Path.touch,
            "expected no compression but .gz, found .GZ: rename it to b.csv.gz",
        ),
        (
            "pipe.csv",
            os.mkfifo,
            "a pipe or a device: write the list to a file",
        ),
        (
            "b.csv",
            lambda path: path.write_text(CSV.replace("\n", "\r\n")),
            "rows that end with '\\n'",
        ),
        ("b.csv", Path.touch, "expected rows, found an empty file: remove it"),
        ("b.csv", lambda path: path.write_text("PositionId\n1\n"), "as in"),
    ],
)
def test_nothing_in_a_folder_is_passed_over(
    tmp_path: Path, name: str, make: Callable[[Path], object], error: str
) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / ".a.csv.crc").touch()
    (tmp_path / "_SUCCESS").unlink(missing_ok=True)
    make(tmp_path / name)
    with pytest.raises(ShardpostError, match=rf"^{tmp_path}/") as raised:
        whole(tmp_path / "a.csv", name)
    assert error in str(raised.value)
    assert name in str(raised.value)


def test_a_folder_that_spark_wrote_is_a_list(tmp_path: Path) -> None:
    for name in ("part-0.csv", "part-1.csv"):
        (tmp_path / name).write_text(CSV)
        (tmp_path / f".{name}.crc").touch()
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "._SUCCESS.crc").touch()
    paths = [tmp_path / "part-0.csv", tmp_path / "part-1.csv"]
    assert files_of(tmp_path) == paths
    found = whole(paths[0], "all")
    assert (found.paths, found.rows) == (paths, 6)


def test_files_of_other_kinds_are_no_one_list(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a":1}\n')
    (tmp_path / "b.json").write_text('[{"a":1}]')
    with pytest.raises(ShardpostError, match=r"b\.json: expected objects in lines as in .*a\.json"):
        read(FileSource(str(tmp_path), Format.JSON))
    for name, ids in (("c", ["1"]), ("d", [1])):
        columns = {"PositionId": ids} | {column: ["1"] for column in COLUMNS[1:]}
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    for name in ("a.json", "b.json"):
        (tmp_path / name).unlink()
    with pytest.raises(
        ShardpostError, match=r"d\.parquet: expected .* as in .* found PositionId int6"
    ):
        read(FileSource(str(tmp_path), Format.PARQUET))
    with pytest.raises(UsageError, match="no such file or folder"):
        files_of(tmp_path / "none")


BROKER = Profile(
    encoding="iso-8859-1",
    delimiter=";",
    quote="'",
    preamble=2,
    footer="Summe",
    decimal=",",
    thousands=".",
    columns={"PositionId": "Depot Nr.", "Client": "Kunde", "Amount": "Stück"},
    values={"Ticker": "T", "Exchange": ""},
)
EXPORT = (
    "Depotauszug;'vom\n28.11.2026\nKunde;depot nr. ;Stück;Exchange\n"
    "Müller;1;1.234,5;X\n'Meier; ''A''\nB';2;-0,5;Y\n\nSumme;;1.234,0;\n"
)


def exported(path: Path, text: str, profile: Profile = BROKER) -> list[tuple[bytes | None, ...]]:
    """Read an export; returns (PositionId, Client, Amount), or what the profile has."""
    path.write_bytes(text.encode(profile.encoding))
    source = FileSource(str(path), Format.CSV, profile=profile)
    reader = ListReader(source, replace(POSITIONS, profile=profile))
    return [tuple(row.values()) for part in reader.parts() for row in part.to_pylist()]


def test_a_broker_s_export_is_read_as_its_profile_says(tmp_path: Path) -> None:
    rows = [
        (b"1", "Müller".encode(), b"1.234,5"),
        (b"2", b"Meier; 'A'\nB", b"-0,5"),
    ]
    assert exported(tmp_path / "list.csv", EXPORT) == rows
    crlf = EXPORT.replace("\n", "\r\n")
    assert exported(tmp_path / "list.csv", crlf)[0] == rows[0]
    two = BROKER.model_copy(update={"footer_lines": 2, "encoding": "utf-16"})
    assert exported(tmp_path / "list.csv", EXPORT + "Seite 1", two) == rows


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (EXPORT[: EXPORT.index("Summe")], "line 7: expected 1 line at the end, the first of"),
        (EXPORT + "Summe;;1;\n", "line 8: expected 1 line at the end, .* found 2 such lines"),
        (EXPORT.replace("Meier", "Summe").replace("'S", "S"), "line 5: expected 1 line at the end"),
        (EXPORT + "3;x;1;X\n", "line 8: expected 1 line at the end, .* found 2 such lines"),
        ("", "line 0: expected 1 line at the end"),
        (EXPORT.replace("28.11.2026\n", ""), "line 3: expected a header with PositionId, Client,"),
        (
            EXPORT.replace("depot nr. ", "Depot"),
            r"PositionId \(depot nr\.\) is missing; found",
        ),
        (EXPORT.replace("Müller;1", "Müller;1;"), "line 4: expected 4 values, as in the header"),
        (EXPORT.replace("'Meier", "Meier"), "line 5: expected quotes and line breaks only where"),
    ],
)
def test_an_export_that_is_not_as_its_profile_says_is_refused_by_line(
    tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(ShardpostError, match=error):
        exported(tmp_path / "list.csv", text)


def test_an_export_without_a_profile_is_refused_with_advice(tmp_path: Path) -> None:
    text = HEADER.replace(",", ";") + "1;c;A;1;N\n"
    said = refused(tmp_path / "list.csv", text)
    assert "found semicolons: export it with commas" in said
    assert "or import it with a --profile" in said
    profile = Profile(encoding="utf-16")
    reader = ListReader(
        FileSource(str(tmp_path / "list.csv"), Format.CSV), replace(POSITIONS, profile=profile)
    )
    with pytest.raises(ShardpostError, match=r"list\.csv: cannot be read: .* is no text in utf-16"):
        [*reader.parts()]
