from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.alerts.model.alert import (
    TOLD_AGAIN_AFTER,
    Advance,
    Alert,
    AlertState,
    Condition,
    Firing,
    advance,
    message_of,
)
from shardpost.topics.model.finding import Severity

T0 = datetime(2026, 11, 23, 8, tzinfo=UTC)
QUARTER = timedelta(minutes=15)


def condition(subject: str = "t", severity: Severity = Severity.RISK, rule: str = "r") -> Condition:
    text = f"{subject} is {severity}"
    return Condition(rule, subject, severity, text, "a record may be lost", source=f"of {rule}")


def states(found: Advance) -> list[str]:
    return [str(one.state) for one in found.alerts]


def test_a_condition_is_told_once_then_daily_and_when_it_is_resolved() -> None:
    told = []
    known: list[Firing] = []
    for number in range(4 * 24 * 3):
        found = [condition()] if number < 4 * 24 * 2 + 8 else []
        step = advance(known, found, T0 + number * QUARTER)
        told += [(number, str(one.state)) for one in step.alerts]
        known = step.if_told
    day = 4 * 24
    assert told == [
        (0, "firing"),
        (day, "still firing"),
        (2 * day, "still firing"),
        (2 * day + 8, "resolved"),
    ]
    assert not known


def test_since_when_it_is_there_stays_as_it_was() -> None:
    known = advance([], [condition()], T0).if_told
    later = advance(known, [condition()], T0 + TOLD_AGAIN_AFTER)
    assert [one.since for one in later.alerts] == [T0]


def test_what_became_worse_is_told_at_once_and_what_became_better_is_not() -> None:
    known = advance([], [condition()], T0).if_told
    worse = advance(known, [condition(severity=Severity.LOSS)], T0 + QUARTER)
    assert states(worse) == ["firing"]
    better = advance(worse.if_told, [condition()], T0 + 2 * QUARTER)
    assert states(better) == []


def test_what_nobody_could_be_told_of_is_told_the_next_time() -> None:
    first = advance([], [condition()], T0)
    again = advance(first.if_not, [condition()], T0 + QUARTER)
    assert states(again) == ["firing"]
    assert again.alerts[0].since == T0
    ended = advance(again.if_told, [], T0 + 2 * QUARTER)
    assert states(ended) == ["resolved"]
    assert states(advance(ended.if_not, [], T0 + 3 * QUARTER)) == ["resolved"]
    assert states(advance(ended.if_told, [], T0 + 3 * QUARTER)) == []


def test_what_ended_untold_and_is_there_again_was_there_all_the_time() -> None:
    known = advance([], [condition()], T0).if_told
    ended = advance(known, [], T0 + QUARTER)
    back = advance(ended.if_not, [condition()], T0 + 2 * QUARTER)
    assert states(back) == []
    assert back.if_told == known


def test_what_was_never_told_and_is_gone_is_told_to_nobody() -> None:
    first = advance([], [condition()], T0)
    assert advance(first.if_not, [], T0 + QUARTER) == Advance()


def test_a_source_that_was_not_measured_resolves_nothing() -> None:
    known = advance([], [condition(), condition(rule="other")], T0).if_told
    step = advance(known, [], T0 + QUARTER, unmeasured={"of r"})
    assert [(one.condition.rule, str(one.state)) for one in step.alerts] == [("other", "resolved")]
    assert [one.condition.rule for one in step.if_told] == ["r"]


def test_a_clock_that_was_ahead_keeps_nothing_from_being_told() -> None:
    known = advance([], [condition()], T0 + 365 * TOLD_AGAIN_AFTER).if_told
    assert states(advance(known, [condition()], T0)) == ["still firing"]


KEYS = st.sampled_from(["a", "b", "c"])
FOUND = st.dictionaries(KEYS, st.sampled_from(list(Severity)), max_size=3)
RUNS = st.lists(st.tuples(FOUND, st.booleans(), st.integers(1, 40)), max_size=30)


@given(RUNS)
def test_whoever_reads_the_messages_knows_what_is_there(
    runs: Sequence[tuple[dict[str, Severity], bool, int]],
) -> None:
    """Of a reader of what was delivered: the picture is right after each run that delivered."""
    known: list[Firing] = []
    picture: dict[str, Severity] = {}
    now = T0
    for found, is_delivered, hours in runs:
        now += timedelta(hours=hours)
        step = advance(known, [condition(key, worst) for key, worst in found.items()], now)
        known = step.if_told if is_delivered else step.if_not
        if is_delivered:
            picture = read(picture, step.alerts)
            assert picture.keys() == found.keys()
            assert all(picture[key].rank <= found[key].rank for key in found)


def read(picture: dict[str, Severity], alerts: Iterable[Alert]) -> dict[str, Severity]:
    after = dict(picture)
    for one in alerts:
        if one.state is AlertState.RESOLVED:
            after.pop(one.condition.subject, None)
        else:
            after[one.condition.subject] = one.condition.severity
    return after


def test_a_message_has_the_worst_first_and_links_to_the_runbook() -> None:
    firing = Firing(condition("x"), T0).alert(AlertState.FIRING)
    loss = Firing(condition("y", Severity.LOSS), T0).alert(AlertState.FIRING)
    gone = Firing(condition("z", Severity.LOSS), T0).alert(AlertState.RESOLVED)
    found = message_of([gone, firing, loss], "https://example.com/runbook#")
    assert found.title == "Shardpost: 2 firing, 1 resolved"
    heads = [block.splitlines()[0] for block in found.body.split("\n\n")]
    assert heads == ["firing (loss) r of y", "firing (risk) r of x", "resolved (loss) r of z"]
    assert "what to do: https://example.com/runbook#r" in found.body
    assert "since 2026-11-23 08:00:00 UTC" in found.body
    assert not found.is_good


def test_a_message_of_one_alert_has_its_title_and_good_news_is_good() -> None:
    found = message_of([Firing(condition("x"), T0).alert(AlertState.RESOLVED)], "#")
    assert found.title == "Shardpost: resolved (risk) r of x"
    assert found.is_good


def test_text_from_outside_makes_no_line_of_its_own() -> None:
    evil = Condition("r", "x\nresolved (loss)", Severity.RISK, "a\r\nb", "m")
    body = Firing(evil, T0).alert(AlertState.FIRING).body("#")
    assert len(body.splitlines()) == 5


def test_no_message_of_nothing() -> None:
    with pytest.raises(ValueError, match="expected alerts"):
        message_of([], "#")
