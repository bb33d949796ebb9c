"""Headers of a mail: mailboxes, and how they go on the wire (RFC 5322, RFC 2047)."""

from email.header import Header
from email.utils import getaddresses
from email.utils import quote as quote_phrase
from functools import lru_cache
from typing import NamedTuple

from shardpost.addresses import UnusableAddress, check_address
from shardpost.errors import ShardpostError, single_line
from shardpost.weekly_email.model.email_request import LONGEST_NAME


class ComposeError(ShardpostError):
    """This e-mail cannot be written; the others can."""


class Mailbox(NamedTuple):
    """A name, which may be empty, and an address."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} <{self.address}>" if self.name else self.address


# As people read them: texts, or mailboxes.
Headers = dict[str, str | tuple[Mailbox, ...]]


@lru_cache(maxsize=1024)
def mailboxes(text: str) -> tuple[Mailbox, ...]:
    """Return the mailboxes of Reply-To; ComposeError if one cannot be used."""
    found = []
    for name, address in getaddresses([text]) if text else []:
        checked = check_address(address)
        if isinstance(checked, UnusableAddress):
            raise ComposeError(f"Reply-To {text!r}: {checked.reason}")
        if checked.needs_utf8:
            raise ComposeError(f"Reply-To {text!r}: expected an ASCII address")
        found.append(Mailbox(single_line(name, LONGEST_NAME), checked.text))
    return tuple(found)


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
