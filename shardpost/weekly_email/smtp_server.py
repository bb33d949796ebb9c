"""The mail server of the settings: the permitted sender, and how to connect.

TLS, EHLO and login are one connection attempt. The example sender and a login in clear text are
allowed only for a server on this machine.
"""

import smtplib
import socket
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from shardpost.errors import UsageError, single_line
from shardpost.values.addresses import mailbox
from shardpost.weekly_email.model.email_context import LONGEST_NAME, Sender
from shardpost.weekly_email.model.server_health import HealthLimits

# Retries do not help against these, and retried passwords lock accounts.
_FINAL = (
    smtplib.SMTPAuthenticationError,
    smtplib.SMTPNotSupportedError,
    ssl.SSLCertVerificationError,
)
_NO_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's reason for a non-TLS answer
COMMAND_UNKNOWN = frozenset({500, 502})
LONGEST_REASON = 300


Phase = Literal["connect", "command", "data", "block", "end"]
# RFC 5321, 4.5.3.2, in seconds: for connection and greeting; for the replies to a command, to DATA,
# and to the end of a mail; for writing a block of it.
TIMEOUTS: dict[Phase, float] = {
    "connect": 300,
    "command": 300,
    "data": 120,
    "block": 180,
    "end": 600,
}


@dataclass(frozen=True)
class SmtpServer:
    """The mail server (`smtp_host` None: the mail sink), its limits, and its retries."""

    smtp_host: str | None
    smtp_port: int
    smtp_user: str | None
    smtp_password: str | None = field(repr=False)
    smtp_tls: str
    smtp_plain_login: str
    smtp_timeout: float
    mail_connections: int
    mail_attempts: int
    mail_refusal_share: float

    @property
    def host(self) -> str:
        """Its host name or address."""
        return self.smtp_host or "127.0.0.1"

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{self.host}:{self.smtp_port}"

    def timeout(self, phase: Phase) -> float:
        """Return the timeout of a phase in seconds.

        The timeout for the reply to the end of a mail is never shorter than the RFC's: a server
        still processing the mail may accept it, which leaves its delivery unknown.
        """
        most = TIMEOUTS[phase]
        return most if phase == "end" else min(most, self.smtp_timeout)

    @property
    def health_limits(self) -> HealthLimits:
        """The limits beyond which it counts as broken."""
        most_lost = self.mail_attempts * self.mail_connections
        return HealthLimits(self.mail_refusal_share, most_lost)


def connect(server: SmtpServer) -> smtplib.SMTP:
    """Return a connection ready for mails; raises OSError or SMTPException."""
    tls = server.smtp_tls
    # Reading the machine's certificates takes a while.
    context = None if tls == "none" else ssl.create_default_context()
    host, port, timeout = server.host, server.smtp_port, server.timeout("connect")
    smtp = (
        smtplib.SMTP_SSL(host, port, _own_name(), timeout=timeout, context=context)
        if tls == "tls"
        else smtplib.SMTP(host, port, _own_name(), timeout=timeout)
    )
    try:
        if smtp.sock is not None:
            smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            smtp.sock.settimeout(server.timeout("command"))
        _greet(smtp)
        if tls == "starttls":
            smtp.starttls(context=context)
            _greet(smtp)
        if server.smtp_user is not None:
            smtp.login(server.smtp_user, server.smtp_password or "")
    except BaseException:
        smtp.close()
        raise
    return smtp


def is_final(error: Exception) -> bool:
    """Return whether another attempt to connect would fail with the same error."""
    return isinstance(error, _FINAL) or getattr(error, "reason", None) == _NO_TLS


def error_text(error: Exception) -> str:
    """Return a connection error as one line."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {reply_text(error.smtp_error)}"
    return str(error) or type(error).__name__


def cure_of(error: Exception, server: SmtpServer) -> str:
    """Return the remedy for a connection that failed with that error."""
    if server.smtp_host is None:
        return "`shardpost up` starts the mail sink"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return "see SHARDPOST_SMTP_USER and SHARDPOST_SMTP_PASSWORD"
    return "see SHARDPOST_SMTP_HOST, SHARDPOST_SMTP_PORT and SHARDPOST_SMTP_TLS"


def reply_text(reply: bytes | str) -> str:
    """Return the text of a server's reply as one line."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    return single_line(text, LONGEST_REASON)


def _greet(smtp: smtplib.SMTP) -> None:
    """Send EHLO, or HELO to a server without EHLO; smtplib sends HELO after any refusal."""
    code, text = smtp.ehlo()
    if code in COMMAND_UNKNOWN:
        code, text = smtp.helo()
    if code // 100 != 2:
        raise smtplib.SMTPHeloError(code, reply_text(text))


@lru_cache
def _own_name() -> str:
    name = socket.getfqdn()
    return name if "." in name else "[127.0.0.1]"


# No mail is delivered there, and nobody can unsubscribe there (RFC 2606).
EXAMPLES = ("example", "example.com", "example.net", "example.org", "invalid")


def _require_real_sender(sender: Sender, host: str) -> None:
    if _is_example(sender.address.rpartition("@")[2]):
        raise UsageError(
            f"setting SHARDPOST_MAIL_FROM: {sender.address} is an example, and the mail server"
            f" {host} is a real one: set the sender address of the e-mails"
        )
    if _is_example(urlsplit(sender.unsubscribe_url).hostname or ""):
        raise UsageError(
            f"setting SHARDPOST_UNSUBSCRIBE_URL: {sender.unsubscribe_url} is an example, and the"
            f" mail server {host} is a real one: nobody could unsubscribe"
        )


def _require_private_login(server: SmtpServer) -> None:
    """Refuse to send a password in clear text over the network, unless the settings allow it."""
    user, is_refused = server.smtp_user, server.smtp_plain_login == "refuse"
    if user is not None and server.smtp_tls == "none" and is_refused:
        raise UsageError(
            f"setting SHARDPOST_SMTP_TLS=none: the password of {user} would be sent to"
            f" {server.host} in clear text: set starttls or tls, or"
            " SHARDPOST_SMTP_PLAIN_LOGIN=allow"
        )


def is_local(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_example(domain: str) -> bool:
    return any(f".{domain.lower()}".endswith(f".{example}") for example in EXAMPLES)


@dataclass(frozen=True)
class SenderSettings:
    """The settings of the sender and of unsubscribing."""

    mail_from: str
    mail_list_id: str
    unsubscribe_url: str
    unsubscribe_secret: str | None = field(repr=False)

    def shown(self) -> Sender:
        """Return the sender, even an example address; UsageError for a MAIL_FROM that is none."""
        try:
            name, address = mailbox(self.mail_from)
        except ValueError as error:
            raise UsageError(f"setting SHARDPOST_MAIL_FROM={self.mail_from!r}: {error}") from None
        name, secret = single_line(name, LONGEST_NAME), self.unsubscribe_secret
        return Sender(name, address, self.unsubscribe_url, self.mail_list_id, secret)

    def sender(self, server: SmtpServer) -> Sender:
        """Return the same; UsageError names a setting that must not be used with this server."""
        sender = self.shown()
        if not is_local(server.host):
            _require_real_sender(sender, server.host)
            _require_private_login(server)
        return sender

    @property
    def can_be_forged(self) -> bool:
        """Whether anybody who knows a client's id can build its unsubscribe link."""
        host = urlsplit(self.unsubscribe_url).hostname or ""
        return "{token}" not in self.unsubscribe_url and not _is_example(host)
