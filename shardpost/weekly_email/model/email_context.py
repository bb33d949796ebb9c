"""What all e-mails of a run have in common, and their headers.

Mailboxes and words go on the wire by RFC 5322 and RFC 2047.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.header import Header
from email.utils import quote as quote_phrase
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote

from shardpost.errors import ShardpostError, single_line
from shardpost.unsubscribe import keys_of
from shardpost.values import addresses
from shardpost.values.addresses import Mailbox
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.week import IsoWeek

LONGEST_NAME = 100  # characters in a header or a log line


@dataclass(frozen=True)
class Sender:
    """The sender of the e-mails: name, address, unsubscribe URL and list id.

    `secrets` sign the tokens in unsubscribe links; None if the links have no tokens.
    """

    name: str
    address: str
    unsubscribe_url: str
    list_id: str
    secrets: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class EmailContext:
    """What all e-mails of a run share.

    `country` is the one whose stock counts. Positions come from `snapshot`, current contacts from
    `newest`.
    """

    week: IsoWeek
    as_of: datetime
    country: str
    sender: Sender
    templates: MailTemplates = field(default_factory=MailTemplates)
    snapshot: int = 0
    newest: int = 0

    @property
    def is_early(self) -> bool:
        """Whether the audience is older than the week's end, so that its contacts are not final."""
        return self.as_of < self.week.end

    @cached_property
    def shared_values(self) -> dict[str, Any]:
        """The template variables (mail_templates.py) that are the same for all clients."""
        return {
            "country": self.country,
            "week": str(self.week),
            "last_day": (self.week.end - timedelta(days=1)).date(),
            "held_at": self.as_of,
            "is_final": self.as_of == self.week.end,
            "sender_name": self.sender.name,
            "sender_address": self.sender.address,
        }

    @property
    def domain(self) -> str:
        """The domain of the sender, used in Message-ID and List-Id."""
        return self.sender.address.rpartition("@")[2]

    def unsubscribe_url(self, client: str) -> str:
        """Return the client's own URL to unsubscribe, percent-encoded."""
        sender = self.sender
        url = sender.unsubscribe_url.replace("{week}", str(self.week))
        if sender.secrets is not None:
            token = keys_of(sender.secrets)[0].token(sender.list_id, client)
            url = url.replace("{token}", token)
        return url.replace("{client}", quote(client, safe=""))


class ComposeError(ShardpostError):
    """This one e-mail cannot be composed."""


# Headers as people read them: text or mailboxes.
Headers = dict[str, str | tuple[Mailbox, ...]]


@lru_cache(maxsize=1024)
def mailboxes(text: str) -> tuple[Mailbox, ...]:
    """Return the mailboxes of Reply-To; raises ComposeError if one is unusable."""
    try:
        found = addresses.mailboxes(text) if text else ()
    except ValueError as error:
        raise ComposeError(f"Reply-To {text!r}: {error}") from None
    return tuple(Mailbox(single_line(name, LONGEST_NAME), address) for name, address in found)


def encoded(header: str, value: str | tuple[Mailbox, ...]) -> str:
    """Return a header's value as it goes on the wire."""
    if isinstance(value, str):
        return _words(header, value) if header == "Subject" else value
    # Not formataddr: it rejects non-ASCII addresses, which SMTPUTF8 (RFC 6532) allows.
    parts = []
    for name, address in value:
        words = f'"{quote_phrase(name)}"' if _is_plain(name) else _words(header, name)
        parts.append(f"{words} <{address}>" if name else address)
    return ", ".join(parts)


def _words(header: str, text: str) -> str:
    """Return text for a header, as encoded words (RFC 2047) if necessary."""
    if _is_plain(text):
        return text
    return Header(text, "utf-8", header_name=header, maxlinelen=76).encode(linesep="\r\n")


def _is_plain(text: str) -> bool:
    return text.isascii() and "=?" not in text
