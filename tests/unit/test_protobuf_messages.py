"""Messages of Protobuf as JSON: each value exactly, and bytes and schemas that mean harm."""

import json
import math
import sys
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from shardpost.errors import ShardpostError
from shardpost.kafka import protobuf_messages
from shardpost.kafka.protobuf_messages import OWN, messages
from tests.support.protobuf import PROTO2, PROTO3, files_of, message_class

Referenced = tuple[str, str]


def read(files: bytes, payload: bytes, indexes: bytes = b"\0") -> Any:
    return json.loads(messages(files).text(indexes + payload))


def written(text: str, name: str, /, **fields: Any) -> Any:
    """Return what a message with such fields is read as."""
    files = files_of(text)
    return read(files, message_class(files, name)(**fields).SerializeToString())


SCALARS = (
    PROTO3
    + """
enum Side { BUY = 0; SELL = 1; }
message All {
  string text = 1; bool flag = 2; int32 whole = 3; int64 long = 4; uint64 unsigned = 5;
  sfixed64 fixed = 6; float half = 7; double double = 8; bytes raw = 9; Side side = 10;
  repeated string list = 11; map<string, int32> map = 12; optional int64 optional = 13;
  oneof either { string name = 14; int64 number = 15; }
  All inner = 16; map<int64, All> inners = 17; map<bool, Side> sides = 18;
}"""
)
NOTHING = {
    "text": "",
    "flag": False,
    "whole": 0,
    "long": 0,
    "unsigned": 0,
    "fixed": 0,
    "half": 0.0,
    "double": 0.0,
    "raw": "",
    "side": "BUY",
    "list": [],
    "map": {},
    "inners": {},
    "sides": {},
}


def test_what_was_not_written_has_its_default_and_what_may_be_absent_is() -> None:
    assert written(SCALARS, "All") == NOTHING
    assert written(SCALARS, "All", optional=0, number=0, inner={}) == NOTHING | {
        "optional": 0,
        "number": 0,
        "inner": NOTHING,
    }


def test_all_types_are_json_exactly() -> None:
    value = {
        "text": 'größe "\0"',
        "flag": True,
        "whole": -(2**31),
        "long": -(2**63),
        "unsigned": 2**64 - 1,
        "fixed": 2**63 - 1,
        "half": 0.1,
        "double": 0.1,
        "list": ["a", ""],
        "map": {'k"': 1},
        "name": "x",
    }
    more: dict[str, Any] = {"raw": b"\0\xff", "side": 1, "inners": {-5: {"text": "y"}}}
    expected = {
        "raw": "AP8=",
        "side": "SELL",
        "inners": {"-5": NOTHING | {"text": "y"}},
        "sides": {"true": "SELL"},
    }
    found = written(SCALARS, "All", **value, **more, sides={True: 1})
    assert found == NOTHING | value | expected


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_numbers_that_json_has_not_are_texts(value: float, text: str) -> None:
    found = written(SCALARS, "All", half=value, double=value)
    assert (found["half"], found["double"]) == (text, text)


def test_a_number_that_an_enum_has_no_name_for_stays_a_number() -> None:
    assert written(SCALARS, "All", side=7)["side"] == 7


KNOWN = (
    PROTO3
    + """
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
import "google/type/money.proto";
import "confluent/meta.proto";
import "confluent/types/decimal.proto";
message Known {
  google.protobuf.Timestamp at = 1; google.protobuf.Duration lasts = 2;
  google.protobuf.Int64Value wrapped = 3; google.protobuf.StringValue empty = 4;
  google.protobuf.Struct any_form = 5; google.protobuf.Any any = 6; google.type.Money money = 7;
  confluent.type.Decimal amount = 8 [(confluent.field_meta).params = {key: "scale", value: "2"}];
}"""
)


def test_types_that_google_and_confluent_have_for_all_need_no_reference() -> None:
    found = written(
        KNOWN,
        "Known",
        at={"seconds": 1764000000, "nanos": 123456789},
        lasts={"seconds": 90},
        wrapped={"value": 2**62},
        empty={},
        any_form={"a": [None, 1.5, {"b": "c"}]},
        any={"type_url": "t/X", "value": b"\0"},
        money={"units": 5, "currency_code": "EUR"},
        amount={"value": (-125).to_bytes(2, signed=True), "scale": 2},
    )
    assert found == {
        "at": "2025-11-24T16:00:00.123456789Z",
        "lasts": "90s",
        "wrapped": 2**62,
        "empty": "",
        "any_form": {"a": [None, 1.5, {"b": "c"}]},
        "any": {"type_url": "t/X", "value": "AA=="},
        "money": {"currency_code": "EUR", "units": 5, "nanos": 0},
        "amount": "-1.25",
    }


@pytest.mark.parametrize(
    ("unscaled", "scale", "text"),
    [(125, 2, "1.25"), (10**38 - 1, 38, f"0.{'9' * 38}"), (5, -3, "5000"), (0, 0, "0")],
)
def test_a_decimal_has_all_its_digits(unscaled: int, scale: int, text: str) -> None:
    value = {"value": unscaled.to_bytes(17, signed=True), "scale": scale}
    assert written(KNOWN, "Known", amount=value) == {"amount": text}


def test_what_proto2_has_besides_is_read_too() -> None:
    text = (
        PROTO2
        + """message P {
      required int32 a = 1; optional int32 b = 2 [default = 7]; extensions 100 to 200;
      optional group Inner = 3 { optional string c = 4; }
    } extend P { optional string more = 100; }"""
    )
    files = files_of(text)
    payload = b"\x08\x05\x1b\x22\x01x\x1c" + b"\xa2\x06\x01y"
    assert read(files, payload) == {"a": 5, "inner": {"c": "x"}, "[more]": "y"}
    with pytest.raises(ValueError, match="nothing in a"):
        read(files, b"\x10\x01")


INDEXED = (
    PROTO3
    + """package bank;
message A { string a = 1; }
message B {
  message C { string c = 1; }
  map<string, string> m = 1;
  message D { string d = 1; }
}"""
)


@pytest.mark.parametrize(
    ("indexes", "found"),
    [
        (b"\0", {"a": "x"}),
        (b"\2\0", {"a": "x"}),
        (b"\4\2\0", {"c": "x"}),
    ],
)
def test_indexes_say_which_message_it_is(indexes: bytes, found: object) -> None:
    assert read(files_of(INDEXED), b"\x0a\x01x", indexes) == found


@pytest.mark.parametrize(
    ("indexes", "why"),
    [
        (b"\2\4", r"message \(2,\), which the schema has not"),
        (b"\4\0\0", r"message \(0, 0\), which the schema has not"),
        # Java's serializer means D by the first, Python's by the second.
        (b"\4\2\2", "behind a map, whose entries not all writers count"),
        (b"\4\2\4", "behind a map, whose entries not all writers count"),
        (b"\1\0", "no indexes of a message in bytes 01"),
        (b"\2\1", "no indexes of a message in bytes 0201"),
        (b"", "no indexes"),
        (b"\x80" * 1_000_000, "no indexes"),
        (b"\xfe\xff\xff\xff\x0f" + b"\0" * 9, "no indexes|has not"),
    ],
)
def test_indexes_of_no_message_are_errors(indexes: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        messages(files_of(INDEXED)).text(indexes)


def test_a_field_that_the_schema_has_not_is_an_error() -> None:
    """They were written by another schema: by this one all else would be a default."""
    text = PROTO3 + "message P { string a = 1; P inner = 2; map<string, P> m = 3; }"
    files = files_of(text)
    for payload in (b"\x28\x05", b"\x08\x05", b"\x12\x02\x28\x05", b"\x1a\x04\x12\x02\x28\x05"):
        with pytest.raises(ValueError, match=r"field [15], which P has not, or not of that type"):
            read(files, payload)


def test_a_schema_may_be_a_descriptor_and_refer_to_others() -> None:
    unit, money = (
        PROTO3 + "package u; message Unit { string name = 1; }",
        PROTO3 + ('package m; import "u/unit.proto"; message Money { u.Unit unit = 1; }'),
    )
    text = PROTO3 + 'import "m/money.proto"; message P { m.Money paid = 1; }'
    as_texts = (("u/unit.proto", unit), ("m/money.proto", money))
    files = FileDescriptorSet.FromString(files_of(text, *as_texts)).file
    as_bytes = {one.name: b64encode(one.SerializeToString()).decode() for one in files}
    mixed = (as_texts[0], ("m/money.proto", as_bytes["m/money.proto"]))
    for found in (
        files_of(text, *as_texts),
        files_of(text, *mixed),
        files_of(as_bytes[OWN], *mixed),
        files_of(as_bytes[OWN], *((name, as_bytes[name]) for name, _ in as_texts)),
    ):
        assert read(found, b"\x0a\x07\x0a\x05\x0a\x03USD") == {"paid": {"unit": {"name": "USD"}}}


@pytest.mark.parametrize(
    ("text", "referenced", "why"),
    [
        ("message", (), "line 1:"),
        ("{}", (), "line 1:"),
        (PROTO3 + "message P { int32 a = 1; int32 a = 2; }", (), '"a" is already defined in "P"'),
        (PROTO3 + 'import "no.proto"; message P {}', (), "no.proto: File not found"),
        (PROTO3 + "message P { Q q = 1; }", (), '"Q" is not defined'),
        (PROTO3 + 'import "a.proto";', [("a.proto", "?")], "a.proto"),
        (PROTO3, [("../a.proto", PROTO3)], r"an import of \.\./a.proto"),
        (PROTO3, [("/etc/a.proto", PROTO3)], "an import of /etc/a.proto"),
        (PROTO3, [("a/../../a.proto", PROTO3)], r"an import of a/\.\./"),
        (PROTO3, [("grpc_tools/__init__.py", "")], "an import of grpc_tools/__init__.py"),
        (PROTO3, [("", PROTO3)], "an import of "),
        (PROTO3, [("a.proto", PROTO3), ("a.proto", PROTO2)], "several schemas for one import"),
        (PROTO3, [(OWN, PROTO3)], "several schemas for one import"),
        (PROTO3 + "message A { " * 200 + "}" * 200, (), "line 1:"),
        ("\ud800", (), "surrogates not allowed"),
        (
            b64encode(b"\x22\x03\x0a\x01P\x22\x03\x0a\x01P").decode(),
            (),
            "conflicts with the existing symbol",
        ),
    ],
)
def test_a_schema_that_is_none_is_an_error(
    text: str, referenced: Sequence[Referenced], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        files_of(text, *referenced)


def test_a_compiler_that_is_missing_or_hangs_says_nothing_of_the_schema(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (python := tmp_path / "python").write_text(
        "#!/bin/sh\necho no module named grpc_tools >&2\nexit 1\n"
    )
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ShardpostError, match="found exit code 1: no module named grpc_tools"):
        files_of(PROTO3 + "message Missing {}")
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(protobuf_messages, "SECONDS", 0.1)
    with pytest.raises(ShardpostError, match=r"expected an end within 0\.1 s"):
        files_of(PROTO3 + "message Hangs {}")


NODE = (
    PROTO3
    + "message N { N next = 1; repeated N more = 2; "
    + ("".join(f"int32 {'f' * 90}{n} = {n};" for n in range(3, 1003)) + "}")
)


def nested(depth: int) -> bytes:
    payload = b""
    for _ in range(depth):
        length, size = len(payload), b""
        while length >= 0x80:
            size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
        payload = b"\x0a" + size + bytes([length]) + payload
    return payload


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (nested(20_000), "Error parsing message"),
        (b"\x12\x00" * 1_000, "more than 16777216 characters of names"),
        (b"\x12\x00" * 1_000_000, "2000001 bytes, of messages with up to 1002 fields"),
        (b"\x0a\xff\xff\xff\xff\x07", "Error parsing message"),
        (b"\x0a\x05", "Error parsing message"),
        (b"\x07", "Error parsing message"),
    ],
)
def test_bytes_that_mean_harm_are_errors(payload: bytes, why: str) -> None:
    with pytest.raises(Exception, match=why):  # of Google's library, which has no common class
        read(files_of(NODE), payload)


def test_a_message_may_be_in_itself() -> None:
    found = read(files_of(PROTO3 + "message N { N next = 1; }"), nested(50))
    for _ in range(50):
        found = found["next"]
    assert found == {}


def test_a_text_that_is_no_utf8_is_an_error() -> None:
    for syntax in (PROTO3 + "message P { string", PROTO2 + "message P { optional string"):
        with pytest.raises(Exception, match=r"parsing message|bytes is not JSON"):
            read(files_of(syntax + " a = 1; }"), b"\x0a\x01\xff")


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_an_error(payload: bytes) -> None:
    with suppress(Exception):
        found = read(files_of(SCALARS), payload)
        assert {*found} >= {*NOTHING}
