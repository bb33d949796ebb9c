"""The mail server: settings that it can be used with, a connection and its greeting; no mail."""

import smtplib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from shardpost.doctor.finding import Finding, error, ok, refused
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.weekly_email.smtp_server import connect, error_text, sender_of


def check(settings: Settings, _now: datetime) -> Iterator[Finding]:
    """Check the mail settings; connect, with TLS where it is set, and without the login."""
    try:
        yield ok("mail settings", f"from {sender_of(settings).address}")
    except ShardpostError as problem:
        yield refused("mail settings", problem)
    yield _greeting(settings)


def _greeting(settings: Settings) -> Finding:
    address = f"{settings.mail_server}:{settings.smtp_port}"
    try:
        # Without the login: passwords that are tried again and again lock accounts.
        smtp = connect(settings.model_copy(update={"smtp_user": None}))
    except (OSError, smtplib.SMTPException) as problem:
        cure = "see SHARDPOST_SMTP_HOST, _PORT and _TLS" if settings.smtp_host else "shardpost up"
        found = f"no greeting from {address}: {error_text(problem)}"
        return error("mail server", found, f"a greeting (TLS: {settings.smtp_tls})", cure)
    with suppress(OSError, smtplib.SMTPException):
        smtp.quit()
    login = "" if settings.smtp_user is None else "; the login was not tried"
    return ok("mail server", f"{address} greets (TLS: {settings.smtp_tls}){login}")
