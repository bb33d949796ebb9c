"""When the mail server as a whole has failed."""

import math

from shardpost.weekly_email.model.retry import Accepted, NoReply, NotSent
from shardpost.weekly_email.model.server_health import CircuitBreaker


def test_a_new_server_gets_no_more_mails_than_would_stop_the_shard() -> None:
    breaker = CircuitBreaker(most_silent=3, most_lost=8, share=0.2)
    assert breaker.allowed == 3
    breaker.record(NoReply("silence"))
    assert breaker.allowed == 2
    breaker.record(Accepted())
    assert breaker.allowed == math.inf
    assert breaker.stop_reason is None


def test_missing_replies_in_a_row_stop_the_shard() -> None:
    breaker = CircuitBreaker(most_silent=2, most_lost=8, share=0.2)
    for outcome in (NoReply("silence"), Accepted(), NoReply("silence")):
        breaker.record(outcome)
    assert breaker.stop_reason is None
    breaker.record(NoReply("silence"))
    assert "SHARDPOST_MAIL_BREAKER" in str(breaker.stop_reason)


def test_lost_connections_in_a_row_stop_the_shard_and_unreachable_ones_do_not_count() -> None:
    breaker = CircuitBreaker(most_silent=3, most_lost=2, share=0.2)
    for outcome in (NotSent("lost"), NotSent("down", unreachable=True)):
        breaker.record(outcome)
    assert breaker.stop_reason is None
    breaker.record(NotSent("lost"))
    assert "closed 2 connections in a row" in str(breaker.stop_reason)


def test_missing_replies_stop_the_shard_although_others_come() -> None:
    breaker, unknown = CircuitBreaker(most_silent=3, most_lost=8, share=0.2), 0
    while breaker.stop_reason is None:
        for outcome in (NoReply("silence"), Accepted()):
            breaker.record(outcome)
        unknown += 1
    assert unknown == 4
    assert "after the end of 4 of 8 mails" in str(breaker.stop_reason)
