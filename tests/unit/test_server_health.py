"""Refusals and missing replies: when they are the mail server's fault, and which are final."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.settings import load
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.retry import Accepted, NoReply, NotSent, TemporaryFailure
from shardpost.weekly_email.model.server_health import (
    HealthLimits,
    Refusal,
    ServerHealth,
    ShareAlarm,
)
from shardpost.weekly_email.smtp_server import SmtpServer
from tests.support.installed import installed

LIMITS = HealthLimits(share=0.2, most_lost=8, most_refused=5)
ANSWERS = st.lists(st.sampled_from("ar"), max_size=200)  # accepted, refused
HISTORIES = st.tuples(
    ANSWERS, st.integers(min_value=1, max_value=8), st.sampled_from([0.05, 0.1, 0.2, 0.5, 0.9, 1])
)


def refusal(number: int, before: DeliveryState | None = None) -> Refusal:
    entry = LedgerEntry(f"client{number}", DeliveryState.FAILED, f"<{number}@x>", "550 no")
    return Refusal(entry, before)


def play(answers: str | list[str], limits: HealthLimits = LIMITS) -> tuple[ServerHealth, list[str]]:
    """Answer mail after mail, until the shard has to stop; return whose refusal is final."""
    refusals, final = ServerHealth(limits), []
    for number, answer in enumerate(answers):
        found = refusals.accept() if answer == "a" else refusals.refuse("550 no", refusal(number))
        final += [one.entry.client for one in found]
        if refusals.stop_reason:
            break
    return refusals, final


def test_a_refusal_is_final_once_enough_other_mails_were_accepted() -> None:
    refusals, final = play("raaa")
    assert (len(refusals.provisional), final) == (1, [])
    refusals, final = play("raaaa")
    assert (refusals.provisional, final) == ([], ["client0"])


def test_a_server_that_refuses_all_stops_the_shard_and_none_is_final() -> None:
    refusals, final = play("r" * 100)
    assert (refusals.refused, len(refusals.provisional), final) == (5, 5, [])
    reason = str(refusals.stop_reason)
    assert "refused 5 of 5 mails" in reason
    assert "550 no" in reason
    assert "SHARDPOST_MAIL_REFUSAL_SHARE" in reason


def test_half_of_a_load_balancer_stops_the_shard_although_the_other_half_accepts() -> None:
    refusals, final = play("ra" * 100)
    assert final == []
    assert "refused 7 of 13 mails" in str(refusals.stop_reason)


def test_a_server_that_breaks_in_the_middle_fails_only_who_was_refused_before() -> None:
    refusals, final = play("aaaraaaaaaaa" + "r" * 100)
    assert final == ["client3"]
    assert refusals.stop_reason is not None


def test_some_bad_addresses_among_many_good_ones_never_stop_a_shard() -> None:
    refusals, final = play(("a" * 9 + "r") * 1000 + "a" * 20)
    assert len(final) == 1000
    assert (refusals.provisional, refusals.stop_reason) == ([], None)


def test_a_share_of_one_makes_every_refusal_final_at_once() -> None:
    refusals, final = play("r" * 50, HealthLimits(1, 8, 5))
    assert len(final) == 50
    assert refusals.stop_reason is None


def test_the_answers_of_a_whole_shard_decide_what_is_left_at_its_end() -> None:
    refusals, final = play("aaaar")
    assert final == []
    assert [one.entry.client for one in refusals.finish()] == ["client4"]
    refusals, _ = play("arr")
    assert (refusals.finish(), len(refusals.provisional)) == ([], 2)


@pytest.mark.parametrize(
    ("refused", "accepted", "proves"),
    [
        (0, 0, True),
        (1, 0, True),  # the only client of a week
        (2, 1, True),  # three clients, two with bad addresses
        (4, 1, True),
        (3, 0, False),
        (5, 5, False),
        (5, 20, True),
        (1000, 4000, True),
        (1001, 3999, False),
    ],
)
def test_the_answers_of_a_whole_run_show_whether_the_server_works(
    refused: int, accepted: int, proves: bool
) -> None:
    assert LIMITS.proves_server(refused, accepted) is proves


@given(HISTORIES)
def test_every_refusal_is_final_or_provisional_and_of_all_answers_no_more_than_the_share_is_final(
    history: tuple[list[str], int, float],
) -> None:
    answers, most_in_row, share = history
    refusals, final = play(answers, HealthLimits(share, 8, most_in_row))
    provisional = [one.entry.client for one in refusals.provisional]
    refused = [f"client{n}" for n, answer in enumerate(answers) if answer == "r"]
    assert final + provisional == refused[: refusals.refused]
    answered = refusals.accepted + refusals.refused
    assert len(final) <= share * answered + 1e-6
    last = refusals.finish() if refusals.stop_reason is None else []
    assert len(final) + len(last) <= 2 * share * answered + 1e-6


@given(HISTORIES)
def test_that_many_refusals_in_a_row_always_stop_the_shard_and_never_become_final(
    history: tuple[list[str], int, float],
) -> None:
    answers, most_in_row, share = history
    if share == 1:
        return
    before, final_before = play(answers, HealthLimits(share, 8, most_in_row))
    if before.stop_reason:
        return
    after, final = play(answers + ["r"] * most_in_row, HealthLimits(share, 8, most_in_row))
    assert after.stop_reason
    assert final == final_before


@given(st.lists(st.booleans(), max_size=300), st.integers(1, 10), st.floats(0.01, 0.99))
def test_the_alarm_rings_as_page_s_cusum_does(
    bads: list[bool], most_in_row: int, share: float
) -> None:
    alarm, score, is_ringing = ShareAlarm(most_in_row, share), 0.0, False
    for is_bad in bads:
        alarm.record(is_bad=is_bad)
        score = max(0.0, score + is_bad - share)
        limit = most_in_row * (1 - share)
        if min(abs(score), abs(score - limit)) < 1e-6:
            return  # which side of the limit this is depends on how it was rounded
        is_ringing = score > 0 and (is_ringing or score >= limit)
        assert (alarm.is_ringing, alarm.is_clear) == (is_ringing, score == 0)


def one_run(open_clients: list[int], bad: set[int]) -> tuple[set[int], bool]:
    """Mail in that order; return who is dealt with, and whether chance stopped the shard."""
    refusals, done = ServerHealth(HealthLimits(0.1, 8, 5)), set()
    for client in open_clients:
        if client in bad:
            final = refusals.refuse("550 no", refusal(client))
        else:
            done.add(client)
            final = refusals.accept()
        done |= {int(one.entry.client.removeprefix("client")) for one in final}
        if refusals.stop_reason:
            return done, True
    return done | {int(one.entry.client.removeprefix("client")) for one in refusals.finish()}, False


def test_a_shard_that_chance_stopped_goes_on_in_the_next_runs_since_each_has_another_order() -> (
    None
):
    random, clients = Random(1), range(40_000)  # noqa: S311 - a test that repeats itself
    bad = set(random.sample(clients, 2_000))
    in_first_order = random.sample(clients, len(clients))
    done, is_stopped = one_run(in_first_order, bad)
    assert is_stopped
    # In the same order again, those that stopped it come first, and nobody is mailed.
    assert one_run([one for one in in_first_order if one not in done], bad) == (set(), True)

    runs = 1
    while not done >= set(clients) - bad:
        assert runs < 20
        left = [one for one in clients if one not in done]
        dealt_with, _ = one_run(random.sample(left, len(left)), bad)
        assert dealt_with
        done, runs = done | dealt_with, runs + 1


def test_many_first_answers_of_4xx_are_no_single_client_s_failure() -> None:
    health = ServerHealth(LIMITS)
    for _ in range(4):
        health.record(TemporaryFailure("451 busy"), is_first=True)
    assert not health.is_deferring
    health.record(TemporaryFailure("451 busy"), is_first=True)
    assert health.is_deferring
    for _ in range(20):
        health.record(Accepted(), is_first=True)
    assert not health.is_deferring


def test_a_refusal_reads_back_as_it_was_written() -> None:
    for before in (None, DeliveryState.UNKNOWN):
        entry = LedgerEntry('c"ü', DeliveryState.FAILED, "<1@x>", "550 no", 1)
        assert Refusal.from_json(Refusal(entry, before).to_json()) == Refusal(entry, before)


def test_the_limits_are_those_of_the_settings() -> None:
    given_ = {"SHARDPOST_MAIL_REFUSAL_SHARE": "0.5"}
    assert installed(load(given_)).values(SmtpServer).health_limits == HealthLimits(0.5, 20, 10, 3)


def test_a_new_server_gets_no_more_mails_than_would_stop_the_shard() -> None:
    health = ServerHealth(HealthLimits(0.2, 8, most_silent=3))
    assert health.allowed == 3
    health.record(NoReply("silence"), is_first=True)
    assert health.allowed == 2
    health.record(Accepted(), is_first=True)
    assert health.allowed == math.inf
    assert health.stop_reason is None


def test_missing_replies_in_a_row_stop_the_shard() -> None:
    health = ServerHealth(HealthLimits(0.2, 8, most_silent=2))
    for outcome in (NoReply("silence"), Accepted(), NoReply("silence")):
        health.record(outcome, is_first=True)
    assert health.stop_reason is None
    health.record(NoReply("silence"), is_first=True)
    assert "no reply after the end of 3 of 4 mails" in str(health.stop_reason)


def test_lost_connections_in_a_row_stop_the_shard_and_unreachable_ones_do_not_count() -> None:
    health = ServerHealth(HealthLimits(0.2, 2, most_silent=3))
    for outcome in (NotSent("lost"), NotSent("down", unreachable=True)):
        health.record(outcome, is_first=True)
    assert health.stop_reason is None
    health.record(NotSent("lost"), is_first=True)
    assert "closed 2 connections in a row" in str(health.stop_reason)


def test_missing_replies_stop_the_shard_although_others_come() -> None:
    health, unknown = ServerHealth(HealthLimits(0.2, 8, most_silent=3)), 0
    while health.stop_reason is None:
        for outcome in (NoReply("silence"), Accepted()):
            health.record(outcome, is_first=True)
        unknown += 1
    assert unknown == 4
    assert "after the end of 4 of 8 mails" in str(health.stop_reason)
