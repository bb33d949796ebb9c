"""A mail server that cannot be connected to: what is logged meanwhile, and what is said last."""

import smtplib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from shardpost.settings import Settings
from shardpost.weekly_email import smtp
from shardpost.weekly_email.shard_sender import SmtpConnections
from shardpost.weekly_email.smtp import MailServerError, SmtpSession

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
    def refuse(_: Settings) -> None:
        raise error

    monkeypatch.setattr(smtp, "connect", refuse)


def failure(settings: Settings) -> str:
    with pytest.raises(MailServerError) as found:
        SmtpSession(settings).open()
    return str(found.value)


def test_each_attempt_that_failed_is_logged_with_the_wait_before_the_next(
    waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    said = failure(Settings(mail_attempts=3, smtp_port=2626))
    assert caplog.messages == [
        "mail server 127.0.0.1:2626: attempt 1 of 3 to connect failed: [Errno 111] Connection"
        " refused; the next one in 1 s",
        "mail server 127.0.0.1:2626: attempt 2 of 3 to connect failed: [Errno 111] Connection"
        " refused; the next one in 4 s",
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
    found = SmtpConnections(Settings(mail_attempts=2, mail_connections=4))
    yield found
    found.close()


def test_connections_that_fail_together_are_logged_once(
    waits: list[float], connections: SmtpConnections, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(MailServerError):
        connections.open(4)
    assert len(waits) == 4
    assert len(caplog.messages) == 1
