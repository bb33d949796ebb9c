"""The language of SHARDPOST_HOLDS: what it means, what is refused, and that DataFusion agrees."""

from typing import Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpost.delta.table import text_literal
from shardpost.holders.model.who_holds import RuleAt, changed_holders, columns_of
from shardpost.settings.loading import load
from shardpost.values.holding_rule import LONGEST, TYPES, Rule, parsed
from tests.support.random_conditions import ANY_POSITIONS, CONDITIONS

HELD: dict[str, Any] = {"position": "1", "client": "c", "ticker": "AAPL", "exchange": "NASDAQ"}
HELD |= {"amount": 5.0, "country": "US"}


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("country = 'US' AND amount > 0", True),
        ("Amount>=5.0 and (TICKER in ('A','AAPL') or client like 'x%')", True),
        ("country <> 'US' OR NOT ticker = 'AAPL'", False),
        ("ticker NOT LIKE '__PL' AND country IS NOT NULL", False),
        ("ticker > 'AAP' AND ticker < 'B' AND exchange != ticker", True),
        ("NOT FALSE", True),
    ],
)
def test_a_position_meets_what_the_condition_says(text: str, is_met: bool) -> None:
    assert parsed(text).is_met(HELD) is is_met


@pytest.mark.parametrize(
    ("text", "on_unknown"),
    [
        ("country = 'US'", None),
        ("NOT country = 'US'", None),
        ("country = 'US' OR amount = 5", True),
        ("country = 'US' AND amount < 0", False),
        ("country IS NULL", True),
    ],
)
def test_what_an_unknown_country_decides_is_unknown(text: str, on_unknown: bool | None) -> None:
    assert parsed(text).is_met(HELD | {"country": None}) is on_unknown


def test_a_condition_is_the_same_whatever_its_blanks_and_case() -> None:
    assert str(parsed(" COUNTRY='US'  and\tamount!=1 ")) == "country = 'US' AND amount <> 1"
    assert [str(part) for part in parsed("amount > 1 AND (ticker = 'A' OR TRUE)").parts] == [
        "amount > 1",
        "(ticker = 'A' OR TRUE)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("contry = 'US'", "found 'contry' at character 1: did you mean country?"),
        ("email LIKE '%'", "who holds cannot depend on it: contacts may be erased, and a subsc"),
        ("subscribed", "who holds cannot depend on it"),
        ("upper(ticker) = 'A'", "SHARDPOST_INPUTS can change values as they come in"),
        ("amount BETWEEN 1 AND 2", "found 'BETWEEN' at character 8: write >= and <="),
        ("amount > 'x'", "expected a number to compare with amount, found \"'x'\" at character 10"),
        ("ticker IN ('A', 1)", "expected a text to compare with ticker, found '1'"),
        ("ticker = NULL", "write country IS NULL; nothing else is ever null"),
        ("ticker IS NULL", "found 'IS' at character 8"),
        ("amount + 1 > 2", "found '+' at character 8"),
        ("amount > 1e9", "a number"),
        ("amount > 0 AND", "found the end"),
        ("(amount > 0", "expected ), found the end"),
        ("amount > 0; DROP TABLE x", "expected AND, OR or the end, found ';' at character 11"),
        ("amount > 0 -- no", "expected AND, OR or the end, found '-' at character 12"),
        ("ticker IN (SELECT 1)", "found 'SELECT' at character 12"),
        ("ticker LIKE client", "a pattern in quotes, found 'client'"),
        ('country = "US"', "found '\"' at character 11"),
        ("ticker = '${env:HOME}'", "a 'text' that has no ' \\ or $"),
        ("ticker = 'a\\'", "a 'text' that has no ' \\ or $"),
        ("(" * 21 + "TRUE" + ")" * 21, "at most 4000 characters, and 20 of NOT and (, found more"),
        ("TRUE OR " * (LONGEST // 8) + "TRUE", "at most 4000 characters"),
    ],
)
def test_what_is_not_of_the_language_is_refused_by_place_and_with_what_to_write(
    text: str, said: str
) -> None:
    with pytest.raises(ValueError, match="expected ") as found:
        parsed(text)
    assert said in str(found.value)


def test_rules_of_one_condition_are_one_whatever_the_mails_call_the_stock() -> None:
    assert Rule("US", "amount > 0") == Rule("GB", "amount > 0") != Rule("US")
    assert Rule("US") != Rule("GB")
    assert (Rule("US").name, str(Rule("US"))) == ("US", "country US")


def found_by(sql: str) -> pa.Table:
    return pa.RecordBatchReader.from_stream(QueryBuilder().execute(sql)).read_all()


def row_of(position: dict[str, Any]) -> str:
    """Return the position as columns of the tables, by a SELECT; `country` beside them."""
    values = {"key" if name == "position" else name: position[name] for name in TYPES}
    literals = (
        f"{'CAST(NULL AS STRING)' if one is None else text_literal(one)} AS {name}"
        for name, one in values.items()
    )
    return f"SELECT {', '.join(literals)}"


@settings(max_examples=150)
@given(
    st.lists(CONDITIONS, min_size=1, max_size=5), st.lists(ANY_POSITIONS, min_size=1, max_size=5)
)
def test_data_fusion_finds_of_any_condition_what_it_means(
    texts: list[str], positions: list[dict[str, Any]]
) -> None:
    conditions = [parsed(text) for text in texts]
    names = columns_of("p", "p.country")
    meets = (f"({one.sql.format_map(names)}) IS TRUE AS c{n}" for n, one in enumerate(conditions))
    rows = " UNION ALL ".join(f"{row_of(one)}, {n} AS n" for n, one in enumerate(positions))
    sql = f"SELECT {', '.join(meets)} FROM ({rows}) p ORDER BY p.n"  # noqa: S608 - literals
    assert [[*row.values()] for row in found_by(sql).to_pylist()] == [
        [one.is_met(position | {"amount": float(position["amount"])}) is True for one in conditions]
        for position in positions
    ]


@given(CONDITIONS, CONDITIONS, ANY_POSITIONS, ANY_POSITIONS)
def test_of_a_changed_position_is_found_who_held_and_who_holds(
    text: str, text_now: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    def holder(condition: str, position: dict[str, Any]) -> str | None:
        values = position | {"amount": float(position["amount"])}
        return position["client"] if parsed(condition).is_met(values) else None

    new |= {"position": old["position"]}
    own = ", ".join(
        f"o.{name} AS old_{name}" for name in ("client", "ticker", "amount", "exchange")
    )
    rows = (
        f"SELECT n.*, TRUE AS is_open, TRUE AS old_is_open, {own}"  # noqa: S608 - literals
        f" FROM ({row_of(new)}) n CROSS JOIN ({row_of(old)}) o"
    )
    sides = ((text, old), (text_now, new))
    before, now = (
        RuleAt(
            Rule("US", one), {at["exchange"]: at["country"]} if at["country"] is not None else {}
        )
        for one, at in sides
    )
    found = found_by(changed_holders(before, now).format(changed=f"({rows})")).to_pylist()
    held_by, holds = (holder(*side) for side in sides)
    expected = {"position": old["position"], "held_by": held_by, "holds": holds}
    assert found == ([expected] if held_by != holds else [])


def test_a_setting_is_refused_at_start_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDPOST_HOLDS", "country = 'US' AND amout > 0")
    with pytest.raises(Exception, match=r"SHARDPOST_HOLDS.*'amout' at character 20: did you mean"):
        load()
    monkeypatch.setenv("SHARDPOST_HOLDS", "amount>0")
    assert load().rule == Rule("US", "amount > 0")
