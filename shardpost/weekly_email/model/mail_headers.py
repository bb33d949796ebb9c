"""Headers of a mail: mailboxes, and how they go on the wire (RFC 5322, RFC 2047)."""

from email.header import Header
from email.utils import quote as quote_phrase
from functools import lru_cache

from shardpost import addresses
from shardpost.addresses import Mailbox
from shardpost.errors import ShardpostError, single_line
from shardpost.weekly_email.model.email_request import LONGEST_NAME


class ComposeError(ShardpostError):
    """This e-mail cannot be written; the others can."""


# As people read them: texts, or mailboxes.
Headers = dict[str, str | tuple[Mailbox, ...]]


@lru_cache(maxsize=1024)
def mailboxes(text: str) -> tuple[Mailbox, ...]:
    """Return the mailboxes of Reply-To; ComposeError if one cannot be used."""
    try:
        found = addresses.mailboxes(text) if text else ()
    except ValueError as error:
        raise ComposeError(f"Reply-To {text!r}: {error}") from None
    return tuple(Mailbox(single_line(name, LONGEST_NAME), address) for name, address in found)


def encoded(header: str, value: str | tuple[Mailbox, ...]) -> str:
    """Return a header's value as it goes on the wire."""
    if isinstance(value, str):
        return _words(header, value) if header == "Subject" else value
    return ", ".join(_mailbox(header, *one) for one in value)


def _mailbox(header: str, name: str, address: str) -> str:
    # Not formataddr: it takes no address beyond ASCII, which SMTPUTF8 (RFC 6532) has as it is.
    if not name:
        return address
    words = f'"{quote_phrase(name)}"' if _is_plain(name) else _words(header, name)
    return f"{words} <{address}>"


def _words(header: str, text: str) -> str:
    """Return text for a header: as it is, or as encoded words (RFC 2047)."""
    if _is_plain(text):
        return text
    return Header(text, "utf-8", header_name=header, maxlinelen=76).encode(linesep="\r\n")


def _is_plain(text: str) -> bool:
    return text.isascii() and "=?" not in text
