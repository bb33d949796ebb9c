"""A mail server that is not on this machine needs a real sender, and TLS for a login."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from shardpost.errors import UsageError
from shardpost.weekly_email.model.email_request import Sender
from shardpost.weekly_email.smtp_server import require_private_login, require_real_sender

EXAMPLE_FROM, REAL_FROM = "Shardpost <weekly@shardpost.example>", "News <news@bank.com>"
EXAMPLE_URL, REAL_URL = "https://shardpost.example/?{client}", "https://bank.com/?{client}"


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
        ("mail.bank.com", REAL_FROM, "https://example.net:8443/x", "SHARDPOST_UNSUBSCRIBE_URL"),
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
    sender = Sender.of(mail_from=mail_from, unsubscribe_url=url, list_id="weekly-holdings")
    with refused(wrong) if wrong else nullcontext():
        require_real_sender(sender, host)


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
    with refused("SHARDPOST_SMTP_TLS=none") if is_refused else nullcontext():
        require_private_login(user=user, tls=tls, plain_login=plain_login, host=host)
