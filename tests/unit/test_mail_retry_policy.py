"""When a mail, or a connection to the mail server, is tried again."""

from shardpost.settings import load
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.retry import (
    Accepted,
    Final,
    LeaveOpen,
    MailRetryPolicy,
    NoReply,
    NotSent,
    PermanentFailure,
    Retry,
    TemporaryFailure,
    next_step,
)
from shardpost.weekly_email.smtp_server import retry_policy_of

RETRIES = MailRetryPolicy(attempts=5, first_delay=1, factor=4)


def test_each_delay_is_longer_by_the_factor_until_the_last_attempt() -> None:
    assert [RETRIES.delay_after(attempt) for attempt in (1, 2, 3, 4)] == [1, 4, 16, 64]
    assert [RETRIES.is_last(attempt) for attempt in (1, 4, 5)] == [False, False, True]


def test_the_policy_is_that_of_the_settings() -> None:
    given = {"MAIL_ATTEMPTS": "3", "MAIL_FIRST_DELAY": "0.5", "MAIL_DELAY_FACTOR": "2"}
    settings = load({f"SHARDPOST_{name}": value for name, value in given.items()})
    assert retry_policy_of(settings) == MailRetryPolicy(3, 0.5, 2)


def test_each_outcome_has_its_consequence() -> None:
    assert next_step(Accepted(), 1, RETRIES) == Final(DeliveryState.SENT)
    assert next_step(PermanentFailure("550 no"), 1, RETRIES) == Final(
        DeliveryState.FAILED, "550 no"
    )
    assert next_step(NoReply("silence"), 1, RETRIES) == Final(DeliveryState.UNKNOWN, "silence")
    assert next_step(TemporaryFailure("451 busy"), 4, RETRIES) == Retry(
        "451 busy", attempt=5, delay=64
    )
    assert next_step(TemporaryFailure("451 busy"), 5, RETRIES) == Final(
        DeliveryState.FAILED, "451 busy (at attempt 5 of 5)"
    )


def test_a_lost_connection_is_never_a_clients_failure() -> None:
    assert next_step(NotSent("lost"), 1, RETRIES, lost=4) == LeaveOpen("lost")
    assert next_step(NotSent("down", unreachable=True), 5, RETRIES) == Retry(
        "down", attempt=5, delay=0
    )


def test_a_lost_connection_costs_no_attempt() -> None:
    assert next_step(NotSent("lost"), 5, RETRIES) == Retry("lost", attempt=5, delay=1, lost=1)
    assert next_step(NotSent("lost"), 5, RETRIES, lost=2) == Retry(
        "lost", attempt=5, delay=16, lost=3
    )
    assert next_step(TemporaryFailure("451 busy"), 1, RETRIES, lost=3) == Retry(
        "451 busy", attempt=2, delay=1, lost=3
    )
