"""Settings that no mail server but one on this machine may be used with."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from shardpost.errors import UsageError
from shardpost.weekly_email.model.email_context import Sender

# Nobody receives mail there, and nobody can unsubscribe (RFC 2606).
EXAMPLES = ("example", "example.com", "example.net", "example.org", "invalid")


def require_real_sender(sender: Sender, host: str) -> None:
    """Refuse the example sender or the example URL to unsubscribe at a server that is remote."""
    if is_local(host):
        return
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


def require_private_login(*, user: str | None, tls: str, plain_login: str, host: str) -> None:
    """Refuse to send a password over the network as it is, unless the settings allow it."""
    if user is not None and tls == "none" and plain_login == "refuse" and not is_local(host):
        raise UsageError(
            f"setting SHARDPOST_SMTP_TLS=none: the password of {user} would go to {host} in clear"
            " text: expected starttls or tls, or SHARDPOST_SMTP_PLAIN_LOGIN=allow"
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
