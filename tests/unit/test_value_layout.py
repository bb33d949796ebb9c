"""Values as people read them; pure."""

import json

from hypothesis import given, strategies

from shardpost.page.value_layout import dump, indented, laid_out, summary

MOST = 10_000


def test_json_is_laid_out_token_by_token() -> None:
    raw = b'{"a":1.50,"a":[],"b":[1e400,{"c":"\\u202e, [x] \\"{"}],"d":{}}'
    assert laid_out(raw, MOST).text.splitlines() == [
        "{",
        '  "a": 1.50,',
        '  "a": [],',
        '  "b": [',
        "    1e400,",
        "    {",
        '      "c": "\\u202e, [x] \\"{"',
        "    }",
        "  ],",
        '  "d": {}',
        "}",
    ]


@given(
    strategies.recursive(
        strategies.none() | strategies.booleans() | strategies.integers() | strategies.text(),
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    )
)
def test_what_is_laid_out_says_the_same(value: object) -> None:
    assert json.loads(indented(json.dumps(value), 10**9)) == value


def test_what_is_no_json_is_text_or_bytes_and_bounded() -> None:
    assert laid_out(None, MOST).kind == "null"
    assert laid_out(b"{ no", MOST).kind == "text"
    assert laid_out(b"[" * 100_000, MOST).kind == "text"
    assert laid_out(b"\xff\x00A", MOST).text == f"00000000  {'ff 00 41':<47}  ..A"
    for raw in (b"[" + b"1," * 100_000 + b"1]", b"x" * 100_000, b"\xff" * 100_000):
        layout = laid_out(raw, MOST)
        assert (layout.is_cut, layout.size, len(layout.text) <= MOST) == (True, len(raw), True)
    assert dump(bytes(17)).count("\n") == 1


def test_a_summary_is_one_line() -> None:
    assert summary(None) == "null"
    assert summary(b"") == "(empty)"
    assert summary(b"one\ntwo\x1b[31m") == "one two [31m"
    assert summary(b"\xff\xfe") == "bytes ff fe"
    assert len(summary(b"x" * 10**6)) == 160
