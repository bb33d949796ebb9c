"""The status of a week, frozen or early: who is in which state, why, and counted in one way."""

import json
from datetime import timedelta
from typing import Any

import pytest

from shardpost.cli import run as shardpost
from shardpost.commands.email_status import (
    FoundWeek,
    find_week,
    print_client,
    print_state,
    print_week,
)
from shardpost.settings import Settings
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.written_weeks import begin, freeze, hold, record

ENDED, GOES_ON = IsoWeek(2026, 46), IsoWeek(2026, 47)
NOW = GOES_ON.start + timedelta(days=2)
STATES = ("sent", "failed", "unknown", "suppressed", "open")
NONE = dict.fromkeys(STATES, 0)


def found(settings: Settings, week: IsoWeek) -> FoundWeek:
    return find_week(settings, week, NOW)


def counts(settings: Settings, week: IsoWeek, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    print_week(found(settings, week), as_json=True)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def total(document: dict[str, Any]) -> dict[str, int]:
    return {state: sum(shard[state] for shard in document["shards"]) for state in STATES}


def listed(
    settings: Settings, week: IsoWeek, state: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, list[str]]:
    capsys.readouterr()
    print_state(found(settings, week), state, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["week"], document["state"]) == (str(week), state)
    groups = {g["reason"]: [one["client"] for one in g["clients"]] for g in document["groups"]}
    assert document["count"] == sum(map(len, groups.values()))
    return groups


@pytest.fixture
def ended(at: Settings) -> Settings:
    """Give a week of which two thirds were refused for two causes."""
    clients = [f"c{n}" for n in range(9)]
    begin(at, ENDED, NOW)
    freeze(at, ENDED, clients, NOW)
    for client in clients[:4]:
        record(at, ENDED, client, DeliveryState.FAILED, f"550 5.1.1 <{client}@x.example>: gone")
    record(at, ENDED, "c4", DeliveryState.FAILED, "no contact")
    record(at, ENDED, "c5", DeliveryState.SENT)
    record(at, ENDED, "c6", DeliveryState.SUPPRESSED, "not subscribed")
    record(at, ENDED, "c7", DeliveryState.SENDING)
    record(at, ENDED, "c7", None, "resolved as open by anna: it was down")
    record(at, ENDED, "c3", DeliveryState.SENDING)
    return at


def test_who_failed_is_listed_by_cause_and_nobody_else(
    ended: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_state(found(ended, ENDED), "failed", as_json=False) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [f"{ENDED}: 4 failed", '3 with "550 5.1.1 …: gone"']
    assert sorted(line.partition(", ")[0] for line in said[2:5]) == ["  c0", "  c1", "  c2"]
    assert all(": 550 5.1.1 <c" in line for line in said[2:5])
    assert said[5] == '1 with "no contact"'
    assert said[6].startswith("  c4, shard ")
    assert len(said) == 7
    assert sorted(listed(ended, ENDED, "failed", capsys)["550 5.1.1 …: gone"]) == ["c0", "c1", "c2"]


def test_a_state_of_a_week_that_no_run_has_begun_is_no_count(
    ended: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_state(found(ended, GOES_ON), "failed", as_json=False) == 0
    assert capsys.readouterr().out == f"{GOES_ON}: no run of this week: nobody was mailed\n"
    record(ended, GOES_ON, "c1", DeliveryState.SENT)
    print_state(found(ended, GOES_ON), "failed", as_json=False)
    assert capsys.readouterr().out == f"{GOES_ON}: 0 failed\n"


def test_each_state_lists_its_clients_with_why(
    ended: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(ended, ENDED, "suppressed", capsys) == {"not subscribed": ["c6"]}
    assert listed(ended, ENDED, "sent", capsys) == {None: ["c5"]}
    dead = "the run that was sending it ended before it wrote the outcome"
    assert listed(ended, ENDED, "unknown", capsys) == {dead: ["c3"]}
    assert print_state(found(ended, ENDED), "unknown", as_json=True) == 3
    assert listed(ended, ENDED, "open", capsys) == {
        "not mailed yet": ["c8"],
        "resolved as open by anna: it was down": ["c7"],
    }


def test_the_lists_have_whom_the_counts_count(
    ended: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {s: sum(map(len, listed(ended, ENDED, s, capsys).values())) for s in STATES}
    document = counts(ended, ENDED, capsys)
    assert total(document) == sizes
    assert sizes == {"sent": 1, "failed": 4, "unknown": 1, "suppressed": 1, "open": 2}
    assert document["unknown"] == ["c3"]
    assert document["causes"]["failed"][0]["count"] == 3


def test_the_table_of_counts_says_why_clients_failed_and_what_lists_them(
    ended: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    print_week(found(ended, ENDED), as_json=False)
    said = capsys.readouterr().out
    assert '3 with "550 5.1.1 …: gone" (' in said
    assert f"`shardpost emails --week {ENDED} --state failed` lists them" in said


def test_a_client_and_a_state_together_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    week = ("emails", "--week", str(ENDED))
    assert shardpost([*week, "--client", "c1", "--state", "failed"]) == 2
    assert "expected one of them, found both" in capsys.readouterr().err
    assert shardpost([*week, "--state", "lost"]) == 2
    assert shardpost(["emails", "--week", "2026-W60"]) == 2
    assert shardpost([*week, "--state", "failed", "resolve"]) == 2


def test_a_week_without_a_run_is_no_finished_one(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_week(found(at, ENDED), as_json=False) == 0
    assert capsys.readouterr().out == f"{ENDED}: no run of this week: nobody was mailed\n"
    assert counts(at, ENDED, capsys) == {
        "week": str(ENDED),
        "shards": [{"shard": n, **NONE} for n in range(2)],
        "unknown": [],
        "causes": {"failed": [], "suppressed": []},
        "without_contact": 0,
        "has_run": False,
    }
    assert listed(at, ENDED, "open", capsys) == {}
    assert print_client(found(at, ENDED), "c1", as_json=False) == 0
    assert "no run of that week" in capsys.readouterr().out


def test_a_week_that_is_frozen_and_empty_had_a_run(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    freeze(at, ENDED, [], NOW)
    document = counts(at, ENDED, capsys)
    assert document["has_run"] is True
    assert total(document) == NONE


def early(settings: Settings) -> None:
    """Begin the running week: of four, one got its mail, and two have no contact."""
    contacts = {"c1": "c1@x.example", "c2": "nonsense", "c4": "c4@x.example", "c9": "c9@x.example"}
    hold(settings, ["c1", "c2", "c3", "c4"], contacts, looked_at=NOW)
    begin(settings, GOES_ON, NOW)
    record(settings, GOES_ON, "c1", DeliveryState.SENT)


def test_an_early_week_has_as_open_who_holds_now_and_was_not_mailed(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    early(at)
    document = counts(at, GOES_ON, capsys)
    assert total(document) == NONE | {"sent": 1, "open": 3}
    assert (document["has_run"], document["without_contact"]) == (True, 2)
    assert listed(at, GOES_ON, "open", capsys) == {
        "no contact: the client has no record in `clients`": ["c3"],
        "not mailed yet": ["c4"],
        "unusable e-mail address …: An email address must have an @-sign.": ["c2"],
    }
    print_week(found(at, GOES_ON), as_json=False)
    assert "open: 2 without a usable contact" in capsys.readouterr().out


def test_an_early_week_that_is_frozen_later_is_counted_by_its_audience(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    early(at)
    freeze(at, GOES_ON, ["c2", "c5"], NOW)
    document = counts(at, GOES_ON, capsys)
    assert total(document) == NONE | {"sent": 1, "open": 2}
    assert document["without_contact"] == 0


def test_an_early_audience_is_as_of_the_weeks_end_once_that_is_over(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(at, ["c1"], {"c1": "c1@x.example"}, looked_at=NOW)  # since GOES_ON began
    begin(at, ENDED, NOW)
    assert total(counts(at, ENDED, capsys))["open"] == 0
    begin(at, GOES_ON, NOW)
    assert total(counts(at, GOES_ON, capsys))["open"] == 1


def test_one_client_of_an_early_week_is_open_or_was_not_in_its_audience(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    early(at)
    for client, said in (
        ("c1", "c1 got the e-mail"),
        ("c3", "it is open: no contact"),
        ("c4", "it is open\n"),
        ("c9", "c9 got no e-mail of {week}: it was not in that week's audience"),
        ("nobody", "nobody got no e-mail of {week}: it was not in that week's audience"),
    ):
        assert print_client(found(at, GOES_ON), client, as_json=False) == 0
        assert said.format(week=GOES_ON) in capsys.readouterr().out
    assert print_client(found(at, GOES_ON), "nobody", as_json=True) == 0
    assert capsys.readouterr().out == "[]\n"


def test_no_reason_is_claimed_for_a_client_that_no_record_names(
    at: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    early(at)
    freeze(at, ENDED, ["c2"], NOW)
    print_client(found(at, ENDED), "c1", as_json=False)
    assert "not in that week's audience, since it held no stock" in capsys.readouterr().out
    print_client(found(at, ENDED), "nobdy", as_json=False)
    assert "audience: client nobdy is unknown to snapshot 2: no record" in capsys.readouterr().out


def test_one_client_of_a_frozen_week_is_open_or_was_not_in_its_audience(
    ended: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    print_client(found(ended, ENDED), "c8", as_json=False)
    assert "c8 has not got the e-mail" in capsys.readouterr().out
    print_client(found(ended, ENDED), "nobody", as_json=False)
    said = capsys.readouterr().out
    assert "it was not in that week's audience" in said
    assert "`shardpost explain` shows" in said
