"""Decoding one record: what is taken, and the reason where it is not."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from spark_jobs.decode import CLIENT_FIELDS, EXCHANGE_FIELDS, POSITION_FIELDS, Field, decoded

RAW = (
    "key BINARY, value BINARY, `partition` INT, offset BIGINT, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
NOT_ONE_OBJECT = "expected one JSON object, found "


def judge(
    spark: SparkSession, fields: tuple[Field, ...], records: list[tuple[bytes | None, bytes | None]]
) -> list[tuple[str, str | None]]:
    at = datetime(2026, 11, 16, tzinfo=UTC)
    raw = [(key, value, 0, offset, at, None) for offset, (key, value) in enumerate(records)]
    frame = decoded(spark.createDataFrame(raw, RAW), fields).orderBy("offset")
    return [(row["kind"], row["reason"]) for row in frame.collect()]


def test_a_position_is_one_object_with_typed_fields(spark: SparkSession) -> None:
    whole = b'{"PositionId":%s,"Client":"c","Ticker":"T","Amount":%s,"Exchange":"LON","More":[{}]}'
    good = [whole % (b"{}", amount) for amount in (b"1", b"-1.50", b"1e400", b"9" * 60)]
    found = judge(spark, POSITION_FIELDS, [(b"k", value) for value in (*good, None)])
    assert found == [("upsert", None)] * 4 + [("tombstone", None)]


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
