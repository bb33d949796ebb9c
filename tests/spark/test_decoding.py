"""Decoding one record: what is taken, and the reason where it is not."""

import json

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from shardpost.holders.model.fields import (
    CLIENT_FIELDS,
    EXCHANGE_FIELDS,
    POSITION_FIELDS,
    Field,
    first_problem,
)
from shardpost.holders.spark import decoding
from shardpost.holders.spark.history import analyzed_once
from tests.support.decoding import decode, raw_rows

NOT_ONE_OBJECT = "expected one JSON object, found "


def judge(
    spark: SparkSession, fields: tuple[Field, ...], records: list[tuple[bytes | None, bytes | None]]
) -> list[tuple[str, str | None]]:
    rows = decode(spark, fields, records).collect()
    return [(row["kind"], row["reason"]) for row in rows]


def columns(spark: SparkSession, records: list[tuple[bytes, str]], name: str) -> list[str]:
    raw = [(key, value.encode()) for key, value in records]
    return [row[name] for row in decode(spark, POSITION_FIELDS, raw).collect()]


def test_a_position_is_one_object_with_typed_fields(spark: SparkSession) -> None:
    whole = b'{"PositionId":%s,"Client":"c","Ticker":"T","Amount":%s,"Exchange":"LON","More":[{}]}'
    good = [whole % (b"{}", amount) for amount in (b"1", b"-1.50", b"1e400", b"9" * 60)]
    found = judge(spark, POSITION_FIELDS, [(b"k", value) for value in (*good, None)])
    assert found == [("upsert", None)] * 4 + [("tombstone", None)]


TEXTS = ["c1", "Z", "zoe", "true", "truer", "false", "null", "5", "-1", "{}", "[]", "é", " x"]


def test_texts_that_look_like_something_else_are_kept_as_they_are(spark: SparkSession) -> None:
    fields = {"Ticker": "T", "Amount": 1, "Exchange": "LON"}
    records = [(b"k", json.dumps({"Client": text, **fields}, ensure_ascii=False)) for text in TEXTS]
    assert columns(spark, records, "client") == TEXTS
    others = ["true", "false", "5", "-1.5", "{}", "[]", '["a"]', '{"Client":"c"}']
    values = [f'{{"Client":{one},"Ticker":"T","Amount":1,"Exchange":"LON"}}' for one in others]
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert found == [("rejected", f"expected text for Client, found {one}") for one in others]


WHOLE = ("0", "100", "-7", "9007199254740993", "-9223372036854775808", "9223372036854775808")
FRACTIONS = ("-1.5", "0.1", "1.000000000000000001", "4503599627370496.2", f"0.{'0' * 37}1")
LONG = ("9" * 38, "9" * 60, f"-0.{'0' * 38}1", "9" * decoding.MAX_NUMBER_LENGTH)
EXPONENTS = ("1e2", "-1E+400", "5e-324", "1e-999", "0.10e1")


def test_amounts_keep_their_value_to_the_last_digit(spark: SparkSession) -> None:
    amounts = {
        **{one: one for one in (*WHOLE, *FRACTIONS, *LONG, *EXPONENTS)},
        "1.50": "1.5",
        "-0": "0",
        "100.0": "100",
        "-0.00": "0",
        f"{'1' * 38}.0": f"{'1' * 38}.0",
    }
    values = [f'{{"Client":"c","Ticker":"T","Amount":{one},"Exchange":"X"}}' for one in amounts]
    assert columns(spark, [(b"k", value) for value in values], "amount") == [*amounts.values()]


def test_an_amount_is_its_own_whatever_else_looks_like_it(spark: SparkSession) -> None:
    more = r'"T\"":"\\\" : 5, -7 ","O":[{"Amount":4e4,"a":-1.5e-3},1e1,"2"],"9":9e9,"Amount":2e2'
    value = f'{{{more},"Client":"c 1e1","Ticker":"T","Amount":1e400,"Exchange":"1, 2"}}'
    [row] = decode(spark, POSITION_FIELDS, [(b"k", value.encode())]).collect()
    assert (row["client"], row["amount"], row["exchange"]) == ("c 1e1", "1e400", "1, 2")


VALUES = [
    *("5", "-1.5", "null", "true", '"1"', '"é"', "{}", '["a", 1.50]', '{"Client": "c"}'),
    *("", " ", "[]", "{", '{"Client": "c"', "oops", '"text"', "\\ud83d"),
]


def test_a_person_who_corrects_a_value_is_told_the_same_before(spark: SparkSession) -> None:
    whole = '{"Client":%s,"Ticker":"T","Amount":%s,"Exchange":"X"}'
    values = [*VALUES, *(whole % ('"c"', one) for one in VALUES), *(whole % (o, 1) for o in VALUES)]
    values += [whole % (json.dumps(one, ensure_ascii=False), 1) for one in BLANK[:-1]]
    values += ['{"client":"c","X":{"amount":1}}', '{"O":{"client":1},"CLIENT":2,"client":3}']
    values += [
        '{"Name":"n","Email":5,"Subscribed":true}',
        '{"Name":"n","subscribed":true}',
        '{"Subscribed":"yes"}',
        '{"Name":null}',
    ]
    for fields in (POSITION_FIELDS, CLIENT_FIELDS, EXCHANGE_FIELDS):
        found = judge(spark, fields, [(b"k", value.encode()) for value in values])
        told = [first_problem(value.encode(), fields) for value in values]
        assert told == [reason for _, reason in found]


def test_of_a_field_that_is_given_twice_the_last_counts(spark: SparkSession) -> None:
    values = [
        '{"Client":"a","Client":"b","Ticker":"T","Amount":1,"Exchange":"X"}',
        '{"Client":{"a":1,"a":[]},"Client":"b","Ticker":"T","Amount":{"a":1,"a":2},"Amount":1.5,'
        '"Exchange":"X","O":{"a":1,"a":[2]}}',
        '{"Client":"b","Ticker":"T","Amount":1,"Exchange":"X","Client":null}',
    ]
    found = decode(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values]).collect()
    assert [(row["client"], row["amount"], row["reason"]) for row in found] == [
        ("b", "1", None),
        ("b", "1.5", None),
        (None, None, "expected text for Client, found null"),
    ]


def test_half_of_a_surrogate_pair_is_no_character(spark: SparkSession) -> None:
    """Spark would make a question mark of each: two ids would be one."""
    text = r'{"Client":"%s","Ticker":"T","Amount":1,"Exchange":"X"}'
    good = {
        r"\ud83d\ude00": "😀",
        r"\uD83D\uDE00?": "😀?",
        r"\\ud800": r"\ud800",
        r"\u00e9 \u0064": "é d",
    }
    values = [text % one for one in good]
    assert columns(spark, [(b"k", value) for value in values], "client") == [*good.values()]
    halves = {
        r"\ud800": r"\ud800",
        r"a\uDfFf": r"\uDfFf",
        r"\ude00\ud83d": r"\ude00",
        r"\ud83d\ud83e\ude00": r"\ud83d",
        r"\\ud83d\ude00": r"\ude00",
        r"\\\ud83d": r"\ud83d",
    }
    values = [text % one for one in halves] + [r'{"Subscribed":true,"\ud800":1}']
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert found == [
        ("rejected", f"expected surrogates in pairs, found {half}")
        for half in (*halves.values(), r"\ud800")
    ]


def test_how_deep_a_value_may_nest_and_how_long_numbers_and_names_may_be(
    spark: SparkSession,
) -> None:
    good = '{"Client":"c","Ticker":"T","Amount":1,"Exchange":"X","More":%s}'

    def nested(levels: int) -> str:
        return "[" * levels + "]" * levels

    levels, length = decoding.MAX_DEPTH - 1, decoding.MAX_NUMBER_LENGTH
    taken = [good % more for more in (nested(levels), "9" * length)]
    beyond = [good % more for more in (nested(levels + 1), "9" * (length + 1), "[" * 100_000)]
    taken.append(good % f'{{"{"n" * 32_000}":1}}')
    beyond += [(good % 1).replace('"c"', nested(100_000)), good % f'{{"{"n" * 100_000}":1}}']
    wrong = (good % 1).replace('"c"', nested(levels))
    values = [value.encode() for value in (*taken, *beyond, wrong)]
    found = judge(spark, POSITION_FIELDS, [(b"k", value) for value in values])
    assert found == [
        *[("upsert", None)] * 3,
        *[("rejected", NOT_ONE_OBJECT + value[:100]) for value in beyond],
        ("rejected", f"expected text for Client, found {'[' * 100}"),
    ]


def test_two_good_objects_are_not_one(spark: SparkSession) -> None:
    good = '{"Client":"c","Ticker":"T","Amount":1,"Exchange":"LON"}'
    values = [f"{good},{good}", f"{good} {good}", f"{good} x", f"{good},", f",{good}"]
    found = judge(spark, POSITION_FIELDS, [(b"k", value.encode()) for value in values])
    assert [kind for kind, _ in found] == ["rejected"] * 5
    spaced = f" \n{good}\t ".encode()
    assert judge(spark, POSITION_FIELDS, [(b"k", spaced)]) == [("upsert", None)]


BLANK = ["", " ", "\xa0", "\u3000", "\t \u2003", "\x1c"]


def test_the_id_of_a_client_is_not_blank(spark: SparkSession) -> None:
    fields = {"Ticker": "", "Amount": 1, "Exchange": " "}
    ids = [*BLANK, " x", "\u200b"]
    values = [json.dumps({"Client": one, **fields}, ensure_ascii=False).encode() for one in ids]
    found = judge(spark, POSITION_FIELDS, [(b" ", value) for value in values])
    assert [kind for kind, _ in found] == ["rejected"] * len(BLANK) + ["upsert"] * 2
    assert found[2] == ("rejected", 'expected non-blank text for Client, found "\xa0"')
    keys: list[tuple[bytes | None, bytes | None]] = [
        *((one.encode(), b'{"Subscribed":true}') for one in ids),
        (b" ", None),
    ]
    kinds = ["rejected"] * len(BLANK) + ["upsert"] * 2 + ["rejected"]
    found = judge(spark, CLIENT_FIELDS, keys)
    assert [kind for kind, _ in found] == kinds
    assert found[1] == ("rejected", "expected a non-blank key, found only blanks")


def test_a_record_needs_a_key(spark: SparkSession) -> None:
    assert judge(spark, POSITION_FIELDS, [(None, None), (b"", None), (b"\xff", None)]) == [
        ("rejected", "expected a key, found none"),
        ("rejected", "expected a key, found an empty one"),
        ("rejected", "expected a key in UTF-8, found other bytes"),
    ]


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
        "expected text for Client, found client: did you mean Client?",
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
        "expected text or nothing for Email, found 5",
    ]


def test_an_exchange_may_have_no_country_yet(spark: SparkSession) -> None:
    values = [b"{}", b'{"Country":null}', b'{"Country":"US"}', b'{"Country":1}']
    found = judge(spark, EXCHANGE_FIELDS, [(b"k", value) for value in values])
    assert [kind for kind, _ in found] == ["upsert", "upsert", "upsert", "rejected"]


def test_a_decoder_that_is_analyzed_once_decodes_all_rows_alike(spark: SparkSession) -> None:
    good = b'{"Client":"c","Ticker":"T","Amount":%d,"Exchange":"X"}'
    some = raw_rows(spark, [(b"k", good % 1)])
    # What can never be null may be null the next time, and come from elsewhere.
    others = [(None, good % 2), (b"", None), (b"k", b"{"), (b"k", good % 3)]
    never_null = [StructField(one.name, one.dataType, one.name == "headers") for one in some.schema]
    for rows in (
        spark.createDataFrame(some.rdd, StructType(never_null)),
        raw_rows(spark, others).union(some),
        some.where("offset < 0"),
    ):
        once = analyzed_once(decoding.decoded, rows, POSITION_FIELDS)
        assert once.collect() == decoding.decoded(rows, POSITION_FIELDS).collect()
    once = analyzed_once(decoding.decoded, some, EXCHANGE_FIELDS)
    assert once.collect() == decoding.decoded(some, EXCHANGE_FIELDS).collect()
