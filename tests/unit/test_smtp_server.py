"""A mail server: with which settings it is used, what is said of it, when a mail is tried again."""

import smtplib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from shardpost.errors import UsageError
from shardpost.settings import Settings, load
from shardpost.weekly_email import smtp, smtp_server
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.retry import (
    Accepted,
    Final,
    LeaveOpen,
    NoReply,
    NotSent,
    PermanentFailure,
    Retry,
    TemporaryFailure,
    delay_after,
    next_step,
)
from shardpost.weekly_email.shard_sender import SmtpConnections
from shardpost.weekly_email.smtp import MailServerError, SmtpSession
from shardpost.weekly_email.smtp_server import TIMEOUTS, SenderSettings, SmtpServer
from tests.support.installed import installed

EXAMPLE_FROM, REAL_FROM = "Shardpost <weekly@shardpost.example>", "News <news@bank.com>"
EXAMPLE_URL, REAL_URL = "https://shardpost.example/?{client}", "https://bank.com/?{client}"


def sender_of(settings: Settings) -> None:
    at = installed(settings)
    at.values(SenderSettings).sender(at.values(SmtpServer))


def refused(setting: str) -> AbstractContextManager[object]:
    return pytest.raises(UsageError, match=f"setting {setting}")


@pytest.mark.parametrize(
    ("host", "mail_from", "url", "wrong"),
    [
        ("mail.bank.com", EXAMPLE_FROM, REAL_URL, "SHARDPOST_MAIL_FROM"),
        ("mail.bank.com", "a@EXAMPLE.com", REAL_URL, "SHARDPOST_MAIL_FROM"),
        ("mail.bank.com", "a@mail.example.org", REAL_URL, "SHARDPOST_MAIL_FROM"),
        ("10.0.0.7", EXAMPLE_FROM, REAL_URL, "SHARDPOST_MAIL_FROM"),
        ("mail.bank.com", REAL_FROM, EXAMPLE_URL, "SHARDPOST_UNSUBSCRIBE_URL"),
        (
            "mail.bank.com",
            REAL_FROM,
            "https://example.net:8443/{client}",
            "SHARDPOST_UNSUBSCRIBE_URL",
        ),
        ("mail.bank.com", REAL_FROM, REAL_URL, None),
        ("mail.bank.com", "a@counterexample.com", REAL_URL, None),
        ("localhost", EXAMPLE_FROM, EXAMPLE_URL, None),
        ("127.0.0.1", EXAMPLE_FROM, EXAMPLE_URL, None),
        ("::1", EXAMPLE_FROM, EXAMPLE_URL, None),
    ],
)
def test_the_example_sender_and_its_url_are_for_a_server_on_this_machine(
    host: str, mail_from: str, url: str, wrong: str | None
) -> None:
    settings = Settings(smtp_host=host, mail_from=mail_from, unsubscribe_url=url)
    with refused(wrong) if wrong else nullcontext():
        sender_of(settings)


@pytest.mark.parametrize(
    ("user", "tls", "plain_login", "host", "is_refused"),
    [
        ("anna", "none", "refuse", "mail.bank.com", True),
        ("anna", "none", "allow", "mail.bank.com", False),
        ("anna", "starttls", "refuse", "mail.bank.com", False),
        ("anna", "tls", "refuse", "mail.bank.com", False),
        ("anna", "none", "refuse", "127.0.0.1", False),
        (None, "none", "refuse", "mail.bank.com", False),
    ],
)
def test_a_password_goes_to_another_machine_only_by_tls_unless_allowed(
    user: str | None, tls: str, plain_login: str, host: str, is_refused: bool
) -> None:
    settings = Settings(smtp_host=host, mail_from=REAL_FROM, unsubscribe_url=REAL_URL)
    login = {"smtp_user": user, "smtp_tls": tls, "smtp_plain_login": plain_login}
    with refused("SHARDPOST_SMTP_TLS=none") if is_refused else nullcontext():
        sender_of(settings.model_copy(update=login))


REFUSED = ConnectionRefusedError(111, "Connection refused")
LOGIN = smtplib.SMTPAuthenticationError(535, b"no")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let connections be refused; return the waits, which take no time."""
    found: list[float] = []
    monkeypatch.setattr(smtp, "time", SimpleNamespace(sleep=found.append))
    fail_with(monkeypatch, REFUSED)
    return found


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_: SmtpServer) -> None:
        raise error

    monkeypatch.setattr(smtp_server, "connect", refuse)


def failure(settings: Settings) -> str:
    with pytest.raises(MailServerError) as found:
        SmtpSession(installed(settings).values(SmtpServer)).open()
    return str(found.value)


def test_each_attempt_that_failed_is_logged_with_the_wait_before_the_next(
    waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    said = failure(Settings(mail_attempts=3, smtp_port=2626))
    assert caplog.messages == [
        "mail server 127.0.0.1:2626: attempt 1 of 3 to connect failed: [Errno 111] Connection"
        " refused; next attempt in 1 s",
        "mail server 127.0.0.1:2626: attempt 2 of 3 to connect failed: [Errno 111] Connection"
        " refused; next attempt in 4 s",
    ]
    assert waits == [1, 4]
    assert said == (
        "mail server 127.0.0.1:2626: no connection in 3 attempts: [Errno 111] Connection refused;"
        " `shardpost up` starts the mail sink"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (REFUSED, "; see SHARDPOST_SMTP_HOST, SHARDPOST_SMTP_PORT and SHARDPOST_SMTP_TLS"),
        (LOGIN, "; see SHARDPOST_SMTP_USER and SHARDPOST_SMTP_PASSWORD"),
    ],
)
def test_the_settings_of_a_server_of_ones_own_are_named(
    waits: list[float], monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    fail_with(monkeypatch, error)
    assert failure(Settings(smtp_host="mail.example", mail_attempts=1)).endswith(said)
    assert waits == []


@pytest.fixture
def connections() -> Iterator[SmtpConnections]:
    found = SmtpConnections(
        installed(Settings(mail_attempts=2, mail_connections=4)).values(SmtpServer)
    )
    yield found
    found.close()


def test_connections_that_fail_together_are_logged_once(
    waits: list[float], connections: SmtpConnections, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(MailServerError):
        connections.open(4)
    assert len(waits) == 4
    assert len(caplog.messages) == 1


RETRIES = 5


def test_each_delay_is_longer_by_the_factor_until_the_last_attempt() -> None:
    assert [delay_after(attempt) for attempt in (1, 2, 3, 4)] == [1, 4, 16, 64]


def test_timeouts_are_those_of_the_rfc_cut_to_the_setting_but_that_after_a_mail() -> None:
    of_rfc = installed(load({})).values(SmtpServer)
    assert [of_rfc.timeout(phase) for phase in TIMEOUTS] == [300, 300, 120, 180, 600]
    cut = replace(of_rfc, smtp_timeout=150)
    assert [cut.timeout(phase) for phase in TIMEOUTS] == [150, 150, 120, 150, 600]


def test_the_policy_is_that_of_the_settings() -> None:
    settings = load({"SHARDPOST_MAIL_ATTEMPTS": "3"})
    assert installed(settings).values(SmtpServer).mail_attempts == 3


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
