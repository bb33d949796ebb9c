from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.alerts.model.alert import (
    EVENT,
    EVENTS_KEPT,
    MOST_IN_FULL,
    REPEATED_AFTER,
    REPORTED,
    Alert,
    AlertState,
    Condition,
    Firing,
    Silence,
    advance,
    message_of,
)
from shardpost.topics.model.finding import Severity

T0 = datetime(2026, 11, 23, 8, tzinfo=UTC)
QUARTER = timedelta(minutes=15)


def condition(subject: str = "t", severity: Severity = Severity.RISK, rule: str = "r") -> Condition:
    text = f"{subject} is {severity}"
    return Condition(rule, subject, severity, text, "a record may be lost", source=f"of {rule}")


CHANNELS = ("a", "b")


@dataclass
class People:
    """Those who read two channels, and what is known of what they were told."""

    known: list[Firing] = field(default_factory=list)

    def look(
        self,
        found: Sequence[Condition],
        now: datetime,
        unmeasured: Collection[str] = (),
        down: Collection[str] = (),
    ) -> dict[str, list[Alert]]:
        """Look once; return what each channel took."""
        self.known = advance(self.known, found, now, unmeasured)
        took: dict[str, list[Alert]] = {}
        for channel in CHANNELS:
            due = [(one, one.due(channel, now)) for one in self.known]
            if channel not in down:
                took[channel] = [one.alert(state) for one, state in due if state]
                self.known = [one.taken(channel, now) if state else one for one, state in due]
        self.known = [one for one in self.known if not one.is_over(CHANNELS, now)]
        return took

    def told(
        self, found: Sequence[Condition], now: datetime, unmeasured: Collection[str] = ()
    ) -> list[str]:
        """Look once while all channels are up; return the states that each was told."""
        took = self.look(found, now, unmeasured)
        assert took["a"] == took["b"]
        return [str(one.state) for one in took["a"]]


@pytest.fixture
def people() -> People:
    return People()


def test_a_condition_is_told_once_then_daily_and_when_it_is_resolved(people: People) -> None:
    told = []
    for number in range(4 * 24 * 3):
        found = [condition()] if number < 4 * 24 * 2 + 8 else []
        told += [(number, state) for state in people.told(found, T0 + number * QUARTER)]
    day = 4 * 24
    assert told == [
        (0, "firing"),
        (day, "still firing"),
        (2 * day, "still firing"),
        (2 * day + 8, "resolved"),
    ]
    assert not people.known


def test_since_when_it_is_there_stays_as_it_was(people: People) -> None:
    people.told([condition()], T0)
    later = people.look([condition()], T0 + REPEATED_AFTER)
    assert [one.since for one in later["a"]] == [T0]


def test_what_became_worse_is_told_at_once_and_what_became_better_is_not(people: People) -> None:
    people.told([condition()], T0)
    assert people.told([condition(severity=Severity.LOSS)], T0 + QUARTER) == ["firing"]
    assert people.told([condition()], T0 + 2 * QUARTER) == []


def test_a_channel_that_took_an_alert_is_not_told_again_while_another_fails(
    people: People,
) -> None:
    assert list(people.look([condition()], T0, down="b")) == ["a"]
    assert people.look([condition()], T0 + QUARTER, down="b") == {"a": []}
    back = people.look([condition()], T0 + 2 * QUARTER)
    assert back["a"] == []
    assert [(one.state, one.since) for one in back["b"]] == [(AlertState.FIRING, T0)]
    ended = people.look([], T0 + 3 * QUARTER, down="a")
    assert [one.state for one in ended["b"]] == [AlertState.RESOLVED]
    later = people.look([], T0 + 4 * QUARTER)
    assert [one.state for one in later["a"]] == [AlertState.RESOLVED]
    assert later["b"] == []
    assert not people.known


def test_what_nobody_could_be_told_of_is_told_the_next_time(people: People) -> None:
    people.look([condition()], T0, down=CHANNELS)
    again = people.look([condition()], T0 + QUARTER)
    assert [(str(one.state), one.since) for one in again["a"]] == [("firing", T0)]
    people.look([], T0 + 2 * QUARTER, down=CHANNELS)
    assert people.told([], T0 + 3 * QUARTER) == ["resolved"]
    assert people.told([], T0 + 4 * QUARTER) == []


def test_what_ended_untold_and_is_there_again_was_there_all_the_time(people: People) -> None:
    people.told([condition()], T0)
    before = people.known
    people.look([], T0 + QUARTER, down=CHANNELS)
    assert people.told([condition()], T0 + 2 * QUARTER) == []
    assert people.known == before


def test_what_was_never_told_and_is_gone_is_told_to_nobody(people: People) -> None:
    people.look([condition()], T0, down=CHANNELS)
    assert people.told([], T0 + QUARTER) == []
    assert people.known == []


def test_a_source_that_was_not_measured_resolves_nothing(people: People) -> None:
    people.told([condition(), condition(rule="other")], T0)
    took = people.look([], T0 + QUARTER, unmeasured={"of r"})
    assert [(one.condition.rule, str(one.state)) for one in took["a"]] == [("other", "resolved")]
    assert [one.condition.rule for one in people.known] == ["r"]


def test_a_clock_that_was_ahead_keeps_nothing_from_being_told(people: People) -> None:
    people.told([condition()], T0 + 365 * REPEATED_AFTER)
    assert people.told([condition()], T0) == ["still firing"]


def test_what_others_reported_is_ended_by_no_look_and_told_daily(people: People) -> None:
    people.known = [Firing(replace(condition(), source=REPORTED), T0)]
    assert people.told([], T0) == ["firing"]
    assert people.told([], T0 + QUARTER) == []
    assert people.told([], T0 + REPEATED_AFTER) == ["still firing"]


def test_an_event_is_told_once_to_each_channel_and_forgotten_when_all_took_it(
    people: People,
) -> None:
    people.known = [Firing(replace(condition(), source=EVENT), T0)]
    took = people.look([], T0, down="b")
    assert [str(one.state) for one in took["a"]] == ["happened"]
    took = people.look([], T0 + 2 * REPEATED_AFTER)
    assert took["a"] == []
    assert "2026-11-23 08:00:00 UTC" in took["b"][0].body("#").splitlines()
    assert people.known == []  # a day is over
    people.known = [Firing(replace(condition(), source=EVENT), T0)]
    people.look([], T0 + EVENTS_KEPT + QUARTER, down="b")
    assert people.known == []


def test_a_silenced_condition_is_not_told_until_then_but_its_end_is(people: People) -> None:
    people.told([condition()], T0)
    until = T0 + 2 * REPEATED_AFTER
    people.known = [replace(one, silenced_until=until) for one in people.known]
    assert people.told([condition(severity=Severity.LOSS)], until - QUARTER) == []
    assert people.told([], until - QUARTER) == ["resolved"]
    assert people.told([condition()], until - QUARTER) == []  # silenced though it ended between
    assert [one.since for one in people.look([condition()], until)["a"]] == [until - QUARTER]
    assert people.told([], until) == ["resolved"]
    assert people.known == []


def test_of_a_silenced_condition_it_is_told_that_it_is_worse_and_that_the_silence_is_over(
    people: People,
) -> None:
    people.told([condition()], T0)
    until = T0 + 4 * QUARTER
    silence = Silence(until, "anna", "we know")
    people.known = [one.silenced(silence) for one in people.known]
    assert people.told([condition()], T0 + QUARTER) == []
    worse = condition(severity=Severity.LOSS)
    assert people.told([worse], T0 + QUARTER) == ["firing"]
    assert people.told([worse], T0 + 2 * QUARTER) == []
    assert people.told([condition()], T0 + 3 * QUARTER) == []
    assert people.told([condition()], until) == ["still firing"]
    assert people.told([condition()], until + QUARTER) == []


KEYS = st.sampled_from(["a", "b", "c"])
FOUND = st.dictionaries(KEYS, st.sampled_from(list(Severity)), max_size=3)
RUNS = st.lists(
    st.tuples(FOUND, st.sets(st.sampled_from(CHANNELS)), st.integers(1, 40)), max_size=30
)


@given(RUNS)
def test_whoever_reads_one_channel_knows_what_is_there(
    runs: Sequence[tuple[dict[str, Severity], set[str], int]],
) -> None:
    """Of a reader of each channel: the picture is right after each run that it took."""
    people, now = People(), T0
    pictures: dict[str, dict[str, Severity]] = {channel: {} for channel in CHANNELS}
    for found, down, hours in runs:
        now += timedelta(hours=hours)
        conditions = [condition(key, worst) for key, worst in found.items()]
        for channel, alerts in people.look(conditions, now, down=down).items():
            assert len({one.condition.key for one in alerts}) == len(alerts)
            picture = pictures[channel] = read(pictures[channel], alerts)
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


def test_a_message_of_very_many_alerts_has_the_worst_and_counts_the_others() -> None:
    many = [Firing(condition(str(number)), T0) for number in range(MOST_IN_FULL + 5)]
    found = message_of([one.alert(AlertState.FIRING) for one in many], "#")
    assert found.body.count("what to do") == MOST_IN_FULL
    assert found.body.endswith("and 5 more: `shardpost alerts list` has all that is firing")


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
    with pytest.raises(ValueError, match="expected at least one alert"):
        message_of([], "#")
