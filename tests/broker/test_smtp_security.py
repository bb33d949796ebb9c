"""TLS and login, against a mail server that insists on them."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shardpost.embedded import daemons
from shardpost.settings import Settings, load
from shardpost.weekly_email.model.message import Mail
from shardpost.weekly_email.model.retry import Accepted
from shardpost.weekly_email.smtp import MailServerError, SmtpSession

MAIL = Mail(
    "c", "<1@x>", "from@x.example", "to@x.example", needs_utf8=False, content=b"A: b\r\n\r\n"
)


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a certificate for 127.0.0.1 that this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


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
def server(certificate: Path, tls: str) -> Iterator[tuple[Settings, Handler]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    handler = Handler()
    how: dict[str, Any] = (
        {"ssl_context": context}
        if tls == "tls"
        else {"tls_context": context, "require_starttls": True, "auth_required": True}
    )
    controller = Controller(
        handler,
        hostname="127.0.0.1",
        port=daemons.choose_port(),
        authenticator=authenticated,
        auth_require_tls=tls != "tls",
        **how,
    )
    controller.start()
    at = {"smtp_host": "127.0.0.1", "smtp_port": controller.port}
    given = at | {"smtp_tls": tls, "smtp_user": "me"}
    quick = {"smtp_password": "secret", "smtp_timeout": 5, "mail_first_delay": 0.05}
    environ = {f"SHARDPOST_{name.upper()}": str(value) for name, value in (given | quick).items()}
    yield load(environ), handler
    controller.stop()


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_mail_goes_by_tls_and_login(certificate: Path, tls: str) -> None:
    with server(certificate, tls) as (settings, handler):
        session = SmtpSession(settings)
        assert [session.send(MAIL), session.send(MAIL)] == [Accepted(), Accepted()]
        session.close()
        assert handler.count == 2


def test_a_wrong_password_is_tried_once_and_is_no_mails_fault(certificate: Path) -> None:
    with server(certificate, "starttls") as (settings, _):
        wrong = settings.model_copy(update={"smtp_password": "wrong"})
        with pytest.raises(MailServerError, match="no connection in 1 attempts: 535"):
            SmtpSession(wrong).open()


def test_a_certificate_that_nobody_vouches_for_is_refused(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with (
        server(certificate, "starttls") as (settings, _),
        pytest.raises(MailServerError, match=r"in 1 attempts: .*certificate verify failed"),
    ):
        SmtpSession(settings).open()
