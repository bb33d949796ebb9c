"""Decoding one record: what is taken, and the reason where it is not."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from shardpost.holders.model.fields import (
    CLIENT_FIELDS,
    EXCHANGE_FIELDS,
    POSITION_FIELDS,
    Field,
)
from shardpost.holders.spark.decoding import decoded

RAW = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
NOT_ONE_OBJECT = "expected one JSON object, found "


def judge(
    spark: SparkSession, fields: tuple[Field, ...], records: list[tuple[bytes | None, bytes | None]]
) -> list[tuple[str, str | None]]:
    rows = decode(spark, fields, records).collect()
    return [(row["kind"], row["reason"]) for row in rows]


def columns(spark: SparkSession, records: list[tuple[bytes, str]], name: str) -> list[str]:
    raw = [(key, value.encode()) for key, value in records]
    return [row[name] for row in decode(spark, POSITION_FIELDS, raw).collect()]


def decode(
    spark: SparkSession,
    fields: tuple[Field, ...],
    records: Sequence[tuple[bytes | None, bytes | None]],
) -> DataFrame:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    raw = [(key, value, 0, offset, at, None) for offset, (key, value) in enumerate(records)]
    return decoded(spark.createDataFrame(raw, RAW), fields).orderBy("offset")


def test_a_position_is_one_object_with_typed_fields(spark: SparkSession) -> None:
    whole = b'{"PositionId":%s,"Client":"c","Ticker":"T","Amount":%s,"Exchange":"LON","More":[{}]}'
    good = [whole % (b"{}", amount) for amount in (b"1", b"-1.50", b"1e400", b"9" * 60)]
    found = judge(spark, POSITION_FIELDS, [(b"k", value) for value in (*good, None)])
    assert found == [("upsert", None)] * 4 + [("tombstone", None)]


TEXTS = ["c1", "Z", "zoe", "true", "truer", "false", "null", "5", "-1", "{}", "[]", "é", "", " x"]


def test_texts_that_look_like_something_else_are_kept_as_they_are(spark: SparkSession) -> None:
    fields = {"Ticker": "T", "Amount": 1, "Exchange": "LON"}
    records = [(b"k", json.dumps({"Client": text, **fields}, ensure_ascii=False)) for text in TEXTS]
    assert columns(spark, records, "client") == TEXTS
    others = ["true", "false", "5", "-1.5", "{}", "[]", '["a"]', '{"Client":"c"}']
    values = [f'{{"Client":{one},"Ticker":"T","Amount":1,"Exchange":"LON"}}' for one in others]
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert found == [("rejected", f"expected text for Client, found {one}") for one in others]


def test_amounts_keep_their_value_to_the_last_digit(spark: SparkSession) -> None:
    amounts = {
        **{one: one for one in ("0", "100", "-7", "-1.5", "0.1", "9007199254740991")},
        **{one: one for one in ("9007199254740993", "-9223372036854775808", "9" * 30)},
        "1.50": "1.5",
        "-0": "0",
        "100.0": "100",
        "1e2": "100",
    }
    values = [f'{{"Client":"c","Ticker":"T","Amount":{one},"Exchange":"X"}}' for one in amounts]
    assert columns(spark, [(b"k", value) for value in values], "amount") == [*amounts.values()]


def test_two_good_objects_are_not_one(spark: SparkSession) -> None:
    good = '{"Client":"c","Ticker":"T","Amount":1,"Exchange":"LON"}'
    values = [f"{good},{good}", f"{good} {good}", f"{good} x", f"{good},", f",{good}"]
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert [kind for kind, _ in found] == ["rejected"] * 5
    spaced = f" \n{good}\t ".encode()
    assert judge(spark, POSITION_FIELDS, [(b"k", spaced)]) == [("upsert", None)]


@pytest.mark.parametrize("key", [None, b"", b"\xff"])
def test_a_record_needs_a_key(spark: SparkSession, key: bytes | None) -> None:
    reason = {
        None: "expected a key, found none",
        b"": "expected a key, found an empty one",
        b"\xff": "expected a key in UTF-8, found other bytes",
    }[key]
    assert judge(spark, POSITION_FIELDS, [(key, None)]) == [("rejected", reason)]


def test_what_is_not_one_json_object_is_rejected_with_what_was_found(spark: SparkSession) -> None:
    values = ["", "{", "[]", "null", "5", "{} {}", "{},{}", "{'Client':'c'}", '{"Client":NaN}']
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert found[:3] == [("rejected", NOT_ONE_OBJECT + value) for value in values[:3]]
    assert {kind for kind, _ in found} == {"rejected"}
    long = judge(spark, POSITION_FIELDS, [(b"k", b"x" * 1_000_000)])
    assert long == [("rejected", NOT_ONE_OBJECT + "x" * 100)]


def test_a_value_cannot_close_the_array_that_it_is_parsed_in(spark: SparkSession) -> None:
    good = '{"Client":"c]","Ticker":"T","Amount":1,"Exchange":"LON","X":[[1],{"Y":[]}]}'
    values = [good, *(good + more for more in ("] rubbish", "]", "],", "] {}", "]}", '],"w":1'))]
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert [kind for kind, _ in found] == ["upsert"] + ["rejected"] * 6


def test_each_wrong_type_is_named(spark: SparkSession) -> None:
    positions = [
        b'{"Client":5,"Ticker":"T","Amount":1,"Exchange":"X"}',
        b'{"Client":"c","Ticker":null,"Amount":1,"Exchange":"X"}',
        b'{"Client":"c","Ticker":"T","Amount":"1,5","Exchange":"X"}',
        b'{"Client":"c","Ticker":"T","Amount":true,"Exchange":"X"}',
        b'{"Client":"c","Ticker":"T","Amount":1,"Exchange":["X"]}',
        b'{"client":"c","Ticker":"T","Amount":1,"Exchange":"X"}',
    ]
    assert [
        reason for _, reason in judge(spark, POSITION_FIELDS, [(b"k", v) for v in positions])
    ] == [
        "expected text for Client, found 5",
        "expected text for Ticker, found null",
        'expected a number for Amount, found "1,5"',
        "expected a number for Amount, found true",
        'expected text for Exchange, found ["X"]',
        "expected text for Client, found nothing",
    ]


def test_a_client_says_whether_it_is_subscribed_and_the_rest_may_be_missing(
    spark: SparkSession,
) -> None:
    values = [b'{"Subscribed":true}', b'{"Name":null,"Email":"a@b.test","Subscribed":false}']
    bad = [b'{"Name":"N"}', b'{"Subscribed":"true"}', b'{"Subscribed":true,"Email":5}']
    found = judge(spark, CLIENT_FIELDS, [(b"k", value) for value in (*values, *bad)])
    assert found[:2] == [("upsert", None)] * 2
    assert [reason for _, reason in found[2:]] == [
        "expected true or false for Subscribed, found nothing",
        'expected true or false for Subscribed, found "true"',
        "expected text, or nothing, for Email, found 5",
    ]


def test_an_exchange_may_have_no_country_yet(spark: SparkSession) -> None:
    values = [b"{}", b'{"Country":null}', b'{"Country":"US"}', b'{"Country":1}']
    found = judge(spark, EXCHANGE_FIELDS, [(b"k", value) for value in values])
    assert [kind for kind, _ in found] == ["upsert", "upsert", "upsert", "rejected"]
