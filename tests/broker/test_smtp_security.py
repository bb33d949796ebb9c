"""TLS and login, against a mail server that insists on them."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from shardpost.embedded import daemons
from shardpost.settings import Settings, load
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.retry import Accepted
from shardpost.weekly_email.smtp import MailServerError, SmtpSession
from shardpost.weekly_email.smtp_server import SmtpServer
from tests.support.certificates import Authority
from tests.support.installed import installed

MAIL = Mail(
    "c", "<1@x>", "from@x.example", "to@x.example", needs_utf8=False, content=b"A: b\r\n\r\n"
)


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a certificate for 127.0.0.1, with its key, whose authority this process trusts."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    return authority.issue("server", "127.0.0.1").both


class Handler:
    def __init__(self) -> None:
        self.count = 0

    async def handle_DATA(self, *_: Any) -> str:  # noqa: N802
        self.count += 1
        return "250 taken"


def authenticated(
    _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any
) -> AuthResult:
    good = isinstance(data, LoginPassword) and data == LoginPassword(b"me", b"secret")
    return AuthResult(success=good, handled=False)


@contextmanager
def server(
    certificate: Path, tls: str, client: str | None = None
) -> Iterator[tuple[Settings, Handler]]:
    """Run a server with that TLS, or `none`; give settings of a client with its own."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    handler = Handler()
    of_each: dict[str, dict[str, Any]] = {
        "none": {},
        "tls": {"ssl_context": context},
        "starttls": {"tls_context": context, "require_starttls": True, "auth_required": True},
    }
    controller = Controller(
        handler,
        hostname="127.0.0.1",
        port=daemons.choose_port(),
        authenticator=authenticated,
        auth_require_tls=tls == "starttls",
        **of_each[tls],
    )
    controller.start()
    at = {"smtp_host": "127.0.0.1", "smtp_port": controller.port}
    given = at | {"smtp_tls": client or tls, "smtp_user": "me"}
    quick = {"smtp_password": "secret", "smtp_timeout": 5}
    environ = {f"SHARDPOST_{name.upper()}": str(value) for name, value in (given | quick).items()}
    yield load(environ), handler
    controller.stop()


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_mail_goes_by_tls_and_login(certificate: Path, tls: str) -> None:
    with server(certificate, tls) as (settings, handler):
        session = SmtpSession(installed(settings).values(SmtpServer))
        assert [session.send(MAIL), session.send(MAIL)] == [Accepted(), Accepted()]
        session.close()
        assert handler.count == 2


def test_a_wrong_password_is_tried_once_and_is_no_mails_fault(certificate: Path) -> None:
    with server(certificate, "starttls") as (settings, _):
        wrong = settings.model_copy(update={"smtp_password": "wrong"})
        with pytest.raises(MailServerError, match="no connection in 1 attempts: 535"):
            SmtpSession(installed(wrong).values(SmtpServer)).open()


def test_a_certificate_that_nobody_vouches_for_is_refused(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with (
        server(certificate, "starttls") as (settings, _),
        pytest.raises(MailServerError, match=r"in 1 attempts: .*certificate verify failed"),
    ):
        SmtpSession(installed(settings).values(SmtpServer)).open()


def test_a_certificate_of_another_host_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    other = authority.issue("other", "mail.example.org").both
    with server(other, "tls") as (settings, _), pytest.raises(MailServerError) as told:
        SmtpSession(installed(settings).values(SmtpServer)).open()
    assert "in 1 attempts: " in str(told.value)
    assert "certificate is not valid for '127.0.0.1'" in str(told.value)


@pytest.mark.parametrize(
    ("its", "ours", "why"),
    [
        ("none", "tls", "WRONG_VERSION_NUMBER"),
        ("none", "starttls", "STARTTLS extension not supported"),
        ("starttls", "none", "530|must issue a STARTTLS|AUTH extension not supported"),
        ("tls", "none", "timed out|closed"),
    ],
)
def test_a_server_with_other_tls_than_the_settings_say_is_refused_with_their_names(
    certificate: Path, its: str, ours: str, why: str
) -> None:
    with server(certificate, its, ours) as (settings, _):
        hasty = settings.model_copy(update={"smtp_timeout": 1, "mail_attempts": 2})
        with pytest.raises(MailServerError, match=why) as told:
            SmtpSession(installed(hasty).values(SmtpServer)).open()
    assert ours == "none" or "in 1 attempts" in str(told.value)
    assert "SHARDPOST_SMTP_TLS" in str(told.value)
    assert "secret" not in str(told.value)
