"""Is an e-mail address usable? Its form only: nothing is looked up."""

from dataclasses import dataclass
from functools import lru_cache

import email_validator
from email_validator import EmailNotValidError, validate_email

# Reserved for documents, tests and the local machine (RFC 2606, RFC 6761); mail servers decide
# about them.
LOCAL_DOMAINS = frozenset({"example", "test", "localhost"})


@dataclass(frozen=True)
class Address:
    """A usable address as it goes on the wire; one with a non-ASCII local part needs SMTPUTF8."""

    text: str
    needs_utf8: bool


@dataclass(frozen=True)
class UnusableAddress:
    """An address that cannot be mailed, and why."""

    reason: str


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
