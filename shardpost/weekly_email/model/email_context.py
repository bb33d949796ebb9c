"""What all e-mails of a run have in common: week, sender, and where to unsubscribe."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parseaddr
from urllib.parse import quote

from shardpost.addresses import UnusableAddress, check_address
from shardpost.errors import UsageError
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import message_id
from shardpost.weekly_email.model.single_line import single_line

# Characters of a name in a header or a log line.
LONGEST_NAME = 100


@dataclass(frozen=True)
class Sender:
    """Who sends the e-mails: name, address, where to unsubscribe, and the id of the list."""

    name: str
    address: str
    unsubscribe_url: str
    list_id: str

    @classmethod
    def of(cls, *, mail_from: str, unsubscribe_url: str, list_id: str) -> "Sender":
        """Check the settings that e-mails are written with; UsageError names the wrong one."""
        name, text = parseaddr(mail_from)
        address = check_address(text)
        if isinstance(address, UnusableAddress):
            raise UsageError(f"setting SHARDPOST_MAIL_FROM={mail_from!r}: {address.reason}")
        if address.needs_utf8:
            raise UsageError(
                f"setting SHARDPOST_MAIL_FROM={mail_from!r}: expected an ASCII address"
            )
        return cls(single_line(name, LONGEST_NAME), address.text, unsubscribe_url, list_id)


@dataclass(frozen=True)
class EmailContext:
    """What all e-mails of a run have in common; `country` is whose stock counts."""

    week: IsoWeek
    as_of: datetime
    country: str
    sender: Sender

    @property
    def domain(self) -> str:
        """The domain of the sender, in which Message-ID and List-Id are made."""
        return self.sender.address.rpartition("@")[2]

    def message_id(self, client: str) -> str:
        """Return the Message-ID of the client's e-mail."""
        return message_id(self.sender.list_id, self.week, client, self.domain)

    @property
    def as_of_text(self) -> str:
        """When the positions were held, in words."""
        if self.as_of == self.week.end:
            last = self.as_of - timedelta(days=1)
            return f"At the end of week {self.week} ({last:%A %Y-%m-%d}, 24:00 UTC)"
        return f"In week {self.week}, as of {self.as_of:%A %Y-%m-%d %H:%M} UTC,"

    def unsubscribe_url(self, client: str) -> str:
        """Return the client's own URL to unsubscribe, percent-encoded."""
        url = self.sender.unsubscribe_url.replace("{week}", str(self.week))
        return url.replace("{client}", quote(client, safe=""))
