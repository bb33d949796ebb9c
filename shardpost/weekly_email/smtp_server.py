"""The mail server that the settings name: who may send mails through it, and how to connect to it.

A connection takes TLS, EHLO and login: one attempt. The example sender, and a login in clear text,
are for a server on this machine only.
"""

import smtplib
import socket
import ssl
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from shardpost.errors import UsageError, single_line
from shardpost.installation import Installation
from shardpost.weekly_email.model.email_request import Sender
from shardpost.weekly_email.model.provisional_refusals import RefusalLimits
from shardpost.weekly_email.model.retry import MailRetryPolicy

# Retries do not help against these, and retried passwords lock accounts.
_FINAL = (
    smtplib.SMTPAuthenticationError,
    smtplib.SMTPNotSupportedError,
    ssl.SSLCertVerificationError,
)
_NO_TLS = "WRONG_VERSION_NUMBER"  # OpenSSL's word for an answer that is none of TLS
COMMAND_UNKNOWN = frozenset({500, 502})
LONGEST_REASON = 300


def connect(installation: Installation) -> smtplib.SMTP:
    """Return a connection that takes mails; OSError or SMTPException if there is none."""
    tls = installation.settings.smtp_tls
    # Reading the machine's certificates takes a while.
    context = None if tls == "none" else ssl.create_default_context()
    host, port, timeout = (
        installation.settings.mail_server,
        installation.settings.smtp_port,
        installation.settings.smtp_connect_timeout,
    )
    smtp = (
        smtplib.SMTP_SSL(host, port, _own_name(), timeout=timeout, context=context)
        if tls == "tls"
        else smtplib.SMTP(host, port, _own_name(), timeout=timeout)
    )
    try:
        if smtp.sock is not None:
            smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            smtp.sock.settimeout(installation.settings.smtp_timeout)
        _greet(smtp)
        if tls == "starttls":
            smtp.starttls(context=context)
            _greet(smtp)
        if installation.settings.smtp_user is not None:
            smtp.login(installation.settings.smtp_user, installation.settings.smtp_password or "")
    except BaseException:
        smtp.close()
        raise
    return smtp


def is_final(error: Exception) -> bool:
    """Tell whether another attempt to connect would fail with the same error."""
    return isinstance(error, _FINAL) or getattr(error, "reason", None) == _NO_TLS


def error_text(error: Exception) -> str:
    """Return one line that says what an error of a connection was."""
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {reply_text(error.smtp_error)}"
    return str(error) or type(error).__name__


def cure_of(error: Exception, installation: Installation) -> str:
    """Return what to do about a connection that failed with that error."""
    if installation.settings.smtp_host is None:
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


# Nobody receives mail there, and nobody can unsubscribe (RFC 2606).
EXAMPLES = ("example", "example.com", "example.net", "example.org", "invalid")


def _require_real_sender(sender: Sender, host: str) -> None:
    """Refuse the example sender or the example URL to unsubscribe."""
    if _is_example(sender.address.rpartition("@")[2]):
        raise UsageError(
            f"setting SHARDPOST_MAIL_FROM: {sender.address} is an example, and the mail server"
            f" {host} is a real one: set the address that the e-mails are from"
        )
    if _is_example(urlsplit(sender.unsubscribe_url).hostname or ""):
        raise UsageError(
            f"setting SHARDPOST_UNSUBSCRIBE_URL: {sender.unsubscribe_url} is an example, and the"
            f" mail server {host} is a real one: nobody could unsubscribe"
        )


def _require_private_login(installation: Installation) -> None:
    """Refuse to send a password over the network as it is, unless the settings allow it."""
    user, tls, is_plain = (
        installation.settings.smtp_user,
        installation.settings.smtp_tls,
        installation.settings.smtp_plain_login,
    )
    if user is not None and tls == "none" and is_plain == "refuse":
        raise UsageError(
            f"setting SHARDPOST_SMTP_TLS=none: the password of {user} would go to"
            f" {installation.settings.mail_server} in clear text: expected starttls or tls, or"
            " SHARDPOST_SMTP_PLAIN_LOGIN=allow"
        )


def is_local(host: str) -> bool:
    """Tell whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_example(domain: str) -> bool:
    return any(f".{domain.lower()}".endswith(f".{example}") for example in EXAMPLES)


def sender_of(installation: Installation) -> Sender:
    """Return who sends the e-mails; UsageError names a setting that they cannot be sent with."""
    sender = shown_sender_of(installation)
    if not is_local(installation.settings.mail_server):
        _require_real_sender(sender, installation.settings.mail_server)
        _require_private_login(installation)
    return sender


def shown_sender_of(installation: Installation) -> Sender:
    """Return who sends the e-mails, also one that is an example: for mails that are not sent."""
    return Sender.of(
        mail_from=installation.settings.mail_from,
        unsubscribe_url=installation.settings.unsubscribe_url,
        list_id=installation.settings.mail_list_id,
        secrets=installation.settings.unsubscribe_secret,
    )


def can_be_forged(installation: Installation) -> bool:
    """Tell whether who knows a client's id can make its link to unsubscribe."""
    url = installation.settings.unsubscribe_url
    return "{token}" not in url and not _is_example(urlsplit(url).hostname or "")


def refusal_limits_of(installation: Installation) -> RefusalLimits:
    """Return by how many refusals a mail server is taken to be broken."""
    return RefusalLimits(
        installation.settings.mail_refusals, installation.settings.mail_refusal_share
    )


def retry_policy_of(installation: Installation) -> MailRetryPolicy:
    """Return how connections and mails are tried again."""
    return MailRetryPolicy(
        installation.settings.mail_attempts,
        installation.settings.mail_first_delay,
        installation.settings.mail_delay_factor,
    )
