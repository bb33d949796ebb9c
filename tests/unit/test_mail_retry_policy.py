"""When a mail, or a connection to the mail server, is tried again."""

from shardpost.settings import load
from shardpost.weekly_email.model.mail_retry_policy import MailRetryPolicy


def test_each_delay_is_longer_by_the_factor_until_the_last_attempt() -> None:
    policy = MailRetryPolicy(attempts=5, first_delay=1, factor=4)
    assert [policy.delay_after(attempt) for attempt in (1, 2, 3, 4)] == [1, 4, 16, 64]
    assert [policy.is_last(attempt) for attempt in (1, 4, 5)] == [False, False, True]


def test_the_policy_is_that_of_the_settings() -> None:
    given = {"MAIL_ATTEMPTS": "3", "MAIL_FIRST_DELAY": "0.5", "MAIL_DELAY_FACTOR": "2"}
    settings = load({f"SHARDPOST_{name}": value for name, value in given.items()})
    assert MailRetryPolicy.of(settings) == MailRetryPolicy(3, 0.5, 2)
