"""Broken values: Spark's decoder says of each what a strict one in plain Python says."""

import random
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import SparkSession

from shardpost.holders.model.fields import CLIENT_FIELDS, EXCHANGE_FIELDS, POSITION_FIELDS, Field
from tests.support.decoding import decode
from tests.support.how_far import up_to
from tests.support.strict_decoder import Decoded
from tests.support.strict_decoder import decode as strictly

MUTATIONS, SEED = up_to(12_000, 2_000), 16

POSITIONS = [
    rb'{"PositionId":"1","Client":"client1","Ticker":"AAPL","Amount":100,"Exchange":"NASDAQ"}',
    rb'{"Client":"client1", "Ticker":"BRK.B", "Amount":-1.50, "Exchange":"NYSE", "PositionId":7}',
    rb'{"Client":"\u00e9\ud83d\ude00","Ticker":"a\"b\\c","Amount":1e2,"Exchange":"LON"}',
    '{"Client":"größe 😀","Ticker":"T","Amount":4503599627370496.2,"Exchange":"X"}'.encode(),
    rb'{"Client":"a","Client":"b","Ticker":"t","Amount":"x","Amount":0,"Exchange":"[]"}',
    rb'{"Client":"c","Ticker":"T","Amount":1,"Exchange":"X","More":[{"a":[1,true]},null,"x"]}',
    rb' {"Client":"1","Ticker":"true","Amount":0.00,"Exchange":"null","O":{"a":1,"a":{"b":""}}} ',
]
CLIENTS = [
    rb'{"Client":"c1","Name":"Ann Lee","Email":"ann@example.com","Subscribed":true}',
    rb'{"Name":null,"Email":"a\/b@example.com","Subscribed":false}',
    rb'{"Subscribed":true,"Name":"O\u0027Neil","Tags":["a","b"]}',
]
EXCHANGES = [
    rb'{"Exchange":"NASDAQ","Country":"US"}',
    rb'{"Exchange":"LON","Country":null}',
    rb'{"Country":"US","Exchange":{"Name":["LON"]}}',
]
MAX_EDITS = 3
# What JSON and UTF-8 are sensitive to: one byte each, but for escapes of surrogates and for
# characters of several bytes, whole, cut short or never allowed.
PIECES = (
    *(bytes([byte]) for byte in b'"""\\\\{}[]:,\'/#-+.0159eEutrfnb '),
    *(bytes([byte]) for byte in (0x00, 0x01, 0x08, 0x09, 0x0A, 0x0D, 0x1E, 0x1F, 0x7F)),
    *(rb"\ud83d", rb"\uDE00", rb"\ud83d\ude00", rb"\u0000", rb"\u00e9", rb"\n", rb"\x"),
    *("é".encode(), "€".encode(), "😀".encode(), "\ufeff".encode(), "\u00a0".encode()),
    *(b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xff"),
)


def mutations(values: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Yield so many mutations of the values, in turn."""
    source = random.Random(seed)  # noqa: S311 - to be the same again
    for number in range(count):
        value = values[number % len(values)]
        for _ in range(source.randint(1, MAX_EDITS)):
            value = _edited(value, source)
        yield value


def _edited(value: bytes, source: random.Random) -> bytes:
    at = source.randint(0, len(value))
    replaced, inserted = source.choice(((1, b""), (1, None), (0, None)))
    piece = source.choice(PIECES) if inserted is None else inserted
    return value[:at] + piece + value[at + replaced :]


@pytest.mark.parametrize("partial_results", ["true", "false"])
def test_a_quote_that_is_missing_does_not_make_a_country_unknown(
    spark: SparkSession, partial_results: str
) -> None:
    """Whatever the session says about partial results."""
    values = [b'{"Exchange":"NASDAQ","Country":"US\n}', b'{"Country":"US', b'{"Country":"US"']
    setting = "spark.sql.json.enablePartialResults"
    before = spark.conf.get(setting) or "false"
    try:
        spark.conf.set(setting, partial_results)
        found = decode(spark, EXCHANGE_FIELDS, [(b"NASDAQ", value) for value in values]).collect()
    finally:
        spark.conf.set(setting, before)
    assert [(row["kind"], row["reason"]) for row in found] == [
        ("rejected", f"expected one JSON object, found {value.decode()}") for value in values
    ]


def behind(value: bytes) -> Iterator[bytes]:
    """Yield what is no JSON object, though a parser that stops too early finds one in it."""
    closing = ("]", "}", "]}", '],"v":[', '],"v":[{}', '],"v":null', "]} {", '],"broken":[', "},{")
    for more in (*closing, *(f",{one}" for one in closing), "", ",", " x", "//", "/**/", "\0"):
        yield value + more.encode()
        yield more.encode() + value
    yield from (value[:end] for end in range(0, len(value), 7))
    text = value.decode()
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-8-sig"):
        yield text.encode(encoding)
        yield text.encode(encoding) + b"\0"
        yield b"\0" + text.encode(encoding)


@pytest.mark.parametrize(
    ("fields", "values"),
    [(POSITION_FIELDS, POSITIONS), (CLIENT_FIELDS, CLIENTS), (EXCHANGE_FIELDS, EXCHANGES)],
    ids=["positions", "clients", "exchanges"],
)
def test_of_broken_values_the_verdict_and_the_columns_are_those_of_a_strict_decoder(
    spark: SparkSession, fields: tuple[Field, ...], values: Sequence[bytes]
) -> None:
    broken = [*values, *(more for value in values for more in behind(value))]
    broken += mutations(values, MUTATIONS, SEED)
    rows = decode(spark, fields, [(b"k", value) for value in broken]).collect()
    found = [verdict(row, fields) for row in rows]
    expected = [strictly(value, fields) for value in broken]
    different = [
        (value, ours, theirs)
        for value, ours, theirs in zip(broken, found, expected, strict=True)
        if ours != theirs
    ]
    assert different[:20] == []
    assert {one.reason is None for one in found} == {True, False}


def verdict(row: object, fields: tuple[Field, ...]) -> Decoded:
    """Return what Spark found as the strict decoder says it."""
    named = row.asDict()  # type: ignore[attr-defined]
    columns = tuple(named[field.column] for field in fields)
    if named["kind"] == "upsert":
        return Decoded(columns, named["reason"])
    assert columns == (None,) * len(fields)
    return Decoded(reason=named["reason"].partition(", found ")[0])
