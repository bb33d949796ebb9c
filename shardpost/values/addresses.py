"""Is an e-mail address usable? Its form only: nothing is looked up."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import email_validator
from email_validator import EmailNotValidError, validate_email

# Reserved for documents, tests and the local machine (RFC 2606, RFC 6761); mail servers decide
# about them.
LOCAL_DOMAINS = frozenset({"example", "test", "localhost"})
# A name and an address, or an address (RFC 5322, 3.4), without comments and groups. Python's own
# parser takes the first of two addresses, and an address in the place of the name (CVE-2023-27043).
_MAILBOX = re.compile(
    r"""\s*(?:(?:"(?P<quoted>(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*)"|(?P<name>[^"<>@,;:\\\x00-\x1f]*))\s*"""
    r"""<(?P<address>[^<>\s]+)>|(?P<alone>[^"<>,;:\s]+))\s*(?P<more>,|$)"""
)


@dataclass(frozen=True)
class Address:
    """A usable address as it goes on the wire; one with a non-ASCII local part needs SMTPUTF8."""

    text: str
    needs_utf8: bool


@dataclass(frozen=True)
class UnusableAddress:
    """An address that cannot be mailed, and why."""

    reason: str


class Mailbox(NamedTuple):
    """A name, which may be empty, and an address."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} <{self.address}>" if self.name else self.address


def mailbox(text: str) -> Mailbox:
    """Return the one mailbox that a text is; ValueError for another text."""
    found = mailboxes(text)
    if len(found) != 1:
        raise ValueError(f"expected one address, found {len(found)}")
    return found[0]


def mailboxes(text: str) -> tuple[Mailbox, ...]:
    """Return mailboxes, separated by commas, of ASCII addresses; ValueError for another text."""
    found, at, more = [], 0, True
    while more:
        match = _MAILBOX.match(text, at)
        if match is None:
            raise ValueError(f"expected `Name <name@domain>`, found {text[at:].strip()!r}")
        address = check_address(match["address"] or match["alone"])
        if isinstance(address, UnusableAddress):
            raise ValueError(f"expected `Name <name@domain>`: {address.reason}")  # noqa: TRY004
        if address.needs_utf8:
            raise ValueError("expected an ASCII address")
        quoted = re.sub(r"\\(.)", r"\1", match["quoted"] or "")
        found.append(Mailbox(quoted or (match["name"] or "").strip(), address.text))
        at, more = match.end(), bool(match["more"])
    return tuple(found)


def check_address(text: str | None) -> Address | UnusableAddress:
    """Return the address in its form for the wire, or why it cannot be used."""
    if text is None or not text.strip():
        return UnusableAddress("no e-mail address")
    _allow_local_domains()
    domain = text.rpartition("@")[2].lower()
    try:
        valid = validate_email(
            text,
            check_deliverability=False,
            test_environment=True,
            globally_deliverable=domain not in LOCAL_DOMAINS,
        )
    except EmailNotValidError as error:
        return UnusableAddress(f"unusable e-mail address {text[:100]!r}: {error}")
    if valid.ascii_email is not None:
        return Address(valid.ascii_email, needs_utf8=False)
    return Address(f"{valid.local_part}@{valid.ascii_domain}", needs_utf8=True)


@lru_cache(maxsize=1)
def _allow_local_domains() -> None:
    """Take them off the library's list, as its README says to."""
    names = email_validator.SPECIAL_USE_DOMAIN_NAMES
    names[:] = [name for name in names if name not in LOCAL_DOMAINS]
