"""Opening one connection to the mail server: TLS, EHLO, login; one attempt."""

import smtplib
import socket
import ssl
from functools import lru_cache

from shardpost.settings import Settings
from shardpost.weekly_email.model.single_line import single_line

# Retries do not help against these, and retried passwords lock accounts.
NOT_RETRYABLE = (
    smtplib.SMTPAuthenticationError,
    smtplib.SMTPNotSupportedError,
    ssl.SSLCertVerificationError,
)
COMMAND_UNKNOWN = frozenset({500, 502})
LONGEST_REASON = 300


def connect(settings: Settings) -> smtplib.SMTP:
    """Return a connection that takes mails; OSError or SMTPException if there is none."""
    tls = settings.smtp_tls
    # Reading the machine's certificates takes a while.
    context = None if tls == "none" else ssl.create_default_context()
    host, port, timeout = settings.mail_server, settings.smtp_port, settings.smtp_connect_timeout
    smtp = (
        smtplib.SMTP_SSL(host, port, _own_name(), timeout=timeout, context=context)
        if tls == "tls"
        else smtplib.SMTP(host, port, _own_name(), timeout=timeout)
    )
    try:
        if smtp.sock is not None:
            smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            smtp.sock.settimeout(settings.smtp_timeout)
        _greet(smtp)
        if tls == "starttls":
            smtp.starttls(context=context)
            _greet(smtp)
        if settings.smtp_user is not None:
            smtp.login(settings.smtp_user, settings.smtp_password or "")
    except BaseException:
        smtp.close()
        raise
    return smtp


def error_text(error: Exception) -> str:
    """Return one line that says what an error of a connection was."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {reply_text(error.smtp_error)}"
    return str(error) or type(error).__name__


def cure_of(error: Exception, settings: Settings) -> str:
    """Return what to do about a connection that failed with that error."""
    if settings.smtp_host is None:
        return "`shardpost up` starts the mail sink"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return "see SHARDPOST_SMTP_USER and SHARDPOST_SMTP_PASSWORD"
    return "see SHARDPOST_SMTP_HOST, SHARDPOST_SMTP_PORT and SHARDPOST_SMTP_TLS"


def reply_text(reply: bytes | str) -> str:
    """Return the text of a server's reply as one line."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else reply
    return single_line(text, LONGEST_REASON)


def _greet(smtp: smtplib.SMTP) -> None:
    """Send EHLO, or HELO to a server that does not know it; smtplib does so after any refusal."""
    code, text = smtp.ehlo()
    if code in COMMAND_UNKNOWN:
        code, text = smtp.helo()
    if code // 100 != 2:
        raise smtplib.SMTPHeloError(code, reply_text(text))


@lru_cache
def _own_name() -> str:
    name = socket.getfqdn()
    return name if "." in name else "[127.0.0.1]"
