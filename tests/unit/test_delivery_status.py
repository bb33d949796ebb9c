"""The status of a week: who is in which state, why, counted in one way, and logged meanwhile."""

import contextlib
import io
import json
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from shardpost.commands.emails import emails_command, print_client, print_state, print_week
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email import kept_statuses
from shardpost.weekly_email.delivery_status import WeekStatus
from shardpost.weekly_email.kept_statuses import KeptStatuses, Totals
from shardpost.weekly_email.limits import totals
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.outcomes import PROGRESS_SECONDS, Progress
from shardpost.weekly_email.week_status import find_week, known_weeks
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.recreated_topic import recreate_topic
from tests.support.written_weeks import begin, freeze, hold, record

ENDED, GOES_ON = IsoWeek(2026, 46), IsoWeek(2026, 47)
NOW = GOES_ON.start + timedelta(days=2)
STATES = ("sent", "failed", "unknown", "suppressed", "open")
NONE = dict.fromkeys(STATES, 0)


def found(settings: Settings, week: IsoWeek) -> WeekStatus:
    return find_week(installed(settings), week, NOW)


def printed(print_: Callable[..., int], *given: object, as_json: bool = False) -> tuple[int, str]:
    """Return the exit code, and what is printed."""
    options = ["--json"] * as_json
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        emails_command.make_context("emails", options),
    ):
        code = print_(*given)
    return code, out.getvalue()


def counts(settings: Settings, week: IsoWeek) -> dict[str, Any]:
    document: dict[str, Any]
    document = json.loads(printed(print_week, found(settings, week), as_json=True)[1])
    return document


def total(document: dict[str, Any]) -> dict[str, int]:
    return {state: sum(shard[state] for shard in document["shards"]) for state in STATES}


def listed(settings: Settings, week: IsoWeek, state: str) -> dict[str, list[str]]:
    document = json.loads(printed(print_state, found(settings, week), state, as_json=True)[1])
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


def test_who_failed_is_listed_by_cause_and_nobody_else(ended: Settings) -> None:
    code, text = printed(print_state, found(ended, ENDED), "failed")
    said = text.splitlines()
    assert (code, said[:2]) == (0, [f"{ENDED}: 4 failed", '3 with "550 5.1.1 …: gone"'])
    assert sorted(line.partition(", ")[0] for line in said[2:5]) == ["  c0", "  c1", "  c2"]
    assert all(": 550 5.1.1 <c" in line for line in said[2:5])
    assert said[5] == '1 with "no contact"'
    assert said[6].startswith("  c4, shard ")
    assert len(said) == 7
    assert sorted(listed(ended, ENDED, "failed")["550 5.1.1 …: gone"]) == ["c0", "c1", "c2"]


def test_a_state_of_a_week_that_no_run_has_begun_is_no_count(ended: Settings) -> None:
    said = f"{GOES_ON}: no run of this week: nobody was mailed\n"
    assert printed(print_state, found(ended, GOES_ON), "failed") == (0, said)
    record(ended, GOES_ON, "c1", DeliveryState.SENT)
    said = printed(print_state, found(ended, GOES_ON), "failed")[1]
    assert said == f"{GOES_ON}: 0 failed\n"


def test_each_state_lists_its_clients_with_why(ended: Settings) -> None:
    assert listed(ended, ENDED, "suppressed") == {"not subscribed": ["c6"]}
    assert listed(ended, ENDED, "sent") == {None: ["c5"]}
    dead = "the run that was sending it ended before it wrote the outcome"
    assert listed(ended, ENDED, "unknown") == {dead: ["c3"]}
    assert printed(print_state, found(ended, ENDED), "unknown", as_json=True)[0] == 3
    assert listed(ended, ENDED, "open") == {
        "not mailed yet": ["c8"],
        "resolved as open by anna: it was down": ["c7"],
    }


def test_the_lists_have_whom_the_counts_count(ended: Settings) -> None:
    sizes = {s: sum(map(len, listed(ended, ENDED, s).values())) for s in STATES}
    document = counts(ended, ENDED)
    assert total(document) == sizes
    assert sizes == {"sent": 1, "failed": 4, "unknown": 1, "suppressed": 1, "open": 2}
    assert document["unknown"] == ["c3"]
    assert document["causes"]["failed"][0]["count"] == 3


def test_the_table_of_counts_says_why_clients_failed_and_what_lists_them(ended: Settings) -> None:
    _, said = printed(print_week, found(ended, ENDED))
    assert '3 with "550 5.1.1 …: gone" (' in said
    assert f"`shardpost emails --week {ENDED} --state failed` lists them" in said


def test_a_client_and_a_state_together_are_bad_usage(shardpost: CommandLine) -> None:
    week = ("emails", "--week", str(ENDED))
    said = shardpost.refused(*week, "--client", "c1", "--state", "failed", code=2)
    assert "expected only one of them" in said
    shardpost(*week, "--state", "lost", code=2)
    shardpost("emails", "--week", "2026-W60", code=2)
    shardpost(*week, "--state", "failed", "resolve", code=2)


def test_a_week_without_a_run_is_no_finished_one(at: Settings) -> None:
    said = f"{ENDED}: no run of this week: nobody was mailed\n"
    assert printed(print_week, found(at, ENDED)) == (0, said)
    assert counts(at, ENDED) == {
        "week": str(ENDED),
        "shards": [{"shard": n, **NONE} for n in range(2)],
        "unknown": [],
        "causes": {"failed": [], "suppressed": []},
        "without_contact": 0,
        "has_run": False,
    }
    assert listed(at, ENDED, "open") == {}
    code, said = printed(print_client, found(at, ENDED), "c1")
    assert (code, "no run of that week" in said) == (0, True)


def test_a_week_that_is_frozen_and_empty_had_a_run(at: Settings) -> None:
    freeze(at, ENDED, [], NOW)
    document = counts(at, ENDED)
    assert document["has_run"] is True
    assert total(document) == NONE


@pytest.fixture
def early(at: Settings) -> Settings:
    """Give a running week that was begun: of four, one got its mail, and two have no contact."""
    contacts = {"c1": "c1@x.example", "c2": "nonsense", "c4": "c4@x.example", "c9": "c9@x.example"}
    hold(at, ["c1", "c2", "c3", "c4"], contacts, looked_at=NOW)
    begin(at, GOES_ON, NOW)
    record(at, GOES_ON, "c1", DeliveryState.SENT)
    return at


def test_an_early_week_has_as_open_who_holds_now_and_was_not_mailed(early: Settings) -> None:
    document = counts(early, GOES_ON)
    assert total(document) == NONE | {"sent": 1, "open": 3}
    assert (document["has_run"], document["without_contact"]) == (True, 2)
    assert listed(early, GOES_ON, "open") == {
        "no contact: the client has no record in `clients`": ["c3"],
        "not mailed yet": ["c4"],
        "unusable e-mail address …: An email address must have an @-sign.": ["c2"],
    }
    _, said = printed(print_week, found(early, GOES_ON))
    assert "open: 2 without a usable contact" in said


def test_an_early_week_that_is_frozen_later_is_counted_by_its_audience(early: Settings) -> None:
    freeze(early, GOES_ON, ["c2", "c5"], NOW)
    document = counts(early, GOES_ON)
    assert total(document) == NONE | {"sent": 1, "open": 2}
    assert document["without_contact"] == 0


def test_an_early_audience_is_as_of_the_weeks_end_once_that_is_over(at: Settings) -> None:
    hold(at, ["c1"], {"c1": "c1@x.example"}, looked_at=NOW)  # since GOES_ON began
    for week, count in ((ENDED, 0), (GOES_ON, 1)):
        begin(at, week, NOW)
        assert total(counts(at, week))["open"] == count


def test_one_client_of_an_early_week_is_open_or_was_not_in_its_audience(early: Settings) -> None:
    stranger = f"got no e-mail of {GOES_ON}: the client was not in that week's audience"
    for client, said in (
        ("c1", "c1 got the e-mail"),
        ("c3", "it is open: no contact"),
        ("c4", "it is open\n"),
        ("c9", f"c9 {stranger}"),
        ("nobody", f"'nobody' {stranger}"),
    ):
        code, text = printed(print_client, found(early, GOES_ON), client)
        assert (code, said in text) == (0, True), text
    assert printed(print_client, found(early, GOES_ON), "nobody", as_json=True) == (0, "[]\n")


def test_no_reason_is_claimed_for_a_client_that_no_record_names(early: Settings) -> None:
    freeze(early, ENDED, ["c2"], NOW)
    _, said = printed(print_client, found(early, ENDED), "c1")
    assert "not in that week's audience, since the client held no stock" in said
    _, said = printed(print_client, found(early, ENDED), "nobdy")
    assert "audience: client nobdy is unknown to snapshot 2: no record" in said


def test_one_client_of_a_frozen_week_is_open_or_was_not_in_its_audience(ended: Settings) -> None:
    assert "c8 has not received the e-mail" in printed(print_client, found(ended, ENDED), "c8")[1]
    _, said = printed(print_client, found(ended, ENDED), "nobody")
    assert "the client was not in that week's audience" in said
    assert "`shardpost explain` shows" in said


@pytest.fixture
def progress(caplog: pytest.LogCaptureFixture) -> Progress:
    caplog.set_level(logging.INFO)
    return Progress(IsoWeek(2026, 47), 3, 2, Counter())


def test_counts_are_logged_at_the_end_unless_they_are_the_last_that_were(
    progress: Progress, caplog: pytest.LogCaptureFixture
) -> None:
    progress.record(None, DeliveryState.SENT)
    progress.log_every_few_seconds(0, PROGRESS_SECONDS)
    progress.log_last()
    [line] = caplog.messages
    assert line.startswith("2026-W47 shard 3: 1 sent (1 by this run), 0 failed")
    assert line.endswith("; the audience has 2 clients")
    progress.record(None, DeliveryState.SENT)
    progress.log_last()
    assert "2 sent (2 by" in caplog.messages[1]


def test_a_shard_with_nothing_to_do_is_logged_at_the_end_and_a_long_one_meanwhile(
    progress: Progress, caplog: pytest.LogCaptureFixture
) -> None:
    progress.log_last()
    assert len(caplog.messages) == 1
    for now in (PROGRESS_SECONDS, PROGRESS_SECONDS + 1, 2 * PROGRESS_SECONDS):
        progress.log_every_few_seconds(1, now)
    assert len(caplog.messages) == 3


def test_what_is_kept_of_a_ledger_is_not_of_one_that_was_recreated(ended: Settings) -> None:
    statuses = KeptStatuses()

    def kept() -> dict[str, int]:
        return totals(map(vars, statuses.by_shard(found(ended, ENDED))))

    def of_all_weeks() -> dict[str, int]:
        return asked(statuses, ended).counts[str(ENDED)]

    assert kept()["failed"] == of_all_weeks()["failed"] == 4
    ledger = ended.topic("weekly-emails")
    recreate_topic(ended, ledger, ended.partitions, cleanup_policy="compact")
    record(ended, ENDED, "c5", DeliveryState.SENT)
    for _ in range(9):  # past the offsets that were read before
        for client in [f"c{n}" for n in range(9)]:
            record(ended, GOES_ON, client, DeliveryState.SENT)
    assert (kept()["sent"], kept()["failed"]) == (1, 0)
    assert of_all_weeks()["failed"] == 0


def test_a_ledger_that_cannot_be_read_is_a_problem_of_the_weeks_that_are_open(
    ended: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise ShardpostError("the disk is full")

    monkeypatch.setattr(kept_statuses, "last_offsets", unreadable)
    assert asked(KeptStatuses(), ended) == ({}, False, {str(ENDED): "the disk is full"})


def test_what_prevents_the_counts_of_a_week_is_no_problem_of_another(
    ended: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(ended, GOES_ON, NOW)
    freeze(ended, GOES_ON, ["c1"], NOW)
    audience = WeekStatus._audience

    def unreadable(status: WeekStatus) -> object:
        if status.week == GOES_ON:
            raise OSError("the folder is gone")
        return audience(status)

    statuses = KeptStatuses()
    with monkeypatch.context() as patched:
        patched.setattr(WeekStatus, "_audience", unreadable)
        failed = asked(statuses, ended)
    assert failed.problems == {str(GOES_ON): "unexpected OSError: the folder is gone"}
    assert [*failed.counts] == [str(ENDED)]
    assert failed.counts[str(ENDED)]["failed"] == 4
    assert asked(statuses, ended).counts[str(GOES_ON)] == NONE | {"open": 1}


def test_of_many_weeks_each_request_counts_some_more(
    ended: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(ended, GOES_ON, NOW)
    freeze(ended, GOES_ON, ["c1"], NOW)
    counted, clock, by_shard = list[IsoWeek](), list[float](), WeekStatus.by_shard

    def slow(status: WeekStatus) -> object:
        counted.append(status.week)
        clock.append(kept_statuses.COUNT_SECONDS + 1)
        return by_shard(status)

    monkeypatch.setattr(WeekStatus, "by_shard", slow)
    monkeypatch.setattr(kept_statuses, "time", SimpleNamespace(monotonic=lambda: sum(clock)))
    statuses = KeptStatuses()
    first, second, third = (asked(statuses, ended) for _ in range(3))
    assert ([*first.counts], first.has_more) == ([str(GOES_ON)], True)
    assert ({*second.counts}, second.has_more) == ({str(GOES_ON), str(ENDED)}, False)
    assert third == second
    assert counted == [GOES_ON, ENDED]


def asked(statuses: KeptStatuses, settings: Settings) -> Totals:
    """Return the counts of all weeks."""
    at = installed(settings)
    return statuses.of_weeks(at, known_weeks(at.tables), NOW)
