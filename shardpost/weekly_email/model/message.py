"""One client's weekly e-mail as bytes, the same for the same input.

Written by hand and not with email.message, which takes a millisecond a mail. Bodies are
quoted-printable; what comes from records goes through `neutral` first, so that no header can be
injected.
"""

from binascii import b2a_qp
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.header import Header
from email.utils import format_datetime, parseaddr
from email.utils import quote as quote_phrase
from functools import lru_cache
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, Template, select_autoescape

from shardpost.errors import ShardpostError, UsageError
from shardpost.weekly_email.model.addresses import Address, UnusableAddress, check_address
from shardpost.weekly_email.model.holdings import Holdings, neutral
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import CAMPAIGN, message_id

# RFC 5322, 2.1.1: no line may be longer, without its CRLF.
LONGEST_LINE = 998
NAME = 100


class ComposeError(ShardpostError):
    """This e-mail cannot be written; the others can."""


@dataclass(frozen=True)
class Letterhead:
    """What all e-mails of a run share."""

    week: IsoWeek
    as_of: datetime
    sender_name: str
    sender: str
    unsubscribe_url: str
    country: str

    @classmethod
    def of(
        cls, week: IsoWeek, as_of: datetime, *, mail_from: str, unsubscribe_url: str, country: str
    ) -> "Letterhead":
        """Check the settings that e-mails are written with; UsageError names the wrong one."""
        name, text = parseaddr(mail_from)
        sender = check_address(text)
        if isinstance(sender, UnusableAddress) or sender.needs_utf8:
            why = (
                sender.reason
                if isinstance(sender, UnusableAddress)
                else "expected an ASCII address"
            )
            raise UsageError(f"setting SHARDPOST_MAIL_FROM={mail_from!r}: {why}")
        if not unsubscribe_url.startswith("https://") or set(" <>\r\n\t") & set(unsubscribe_url):
            raise UsageError(
                f"setting SHARDPOST_UNSUBSCRIBE_URL={unsubscribe_url!r}:"
                " expected an https URL (RFC 8058)"
            )
        return cls(week, as_of, neutral(name, NAME), sender.text, unsubscribe_url, country)

    @property
    def domain(self) -> str:
        """The domain of the sender, under which Message-ID and List-Id are made."""
        return self.sender.rpartition("@")[2]

    @property
    def day(self) -> str:
        """When the positions were held, in words."""
        if self.as_of == self.week.end:
            last = self.as_of - timedelta(days=1)
            return f"At the end of week {self.week} ({last:%A %Y-%m-%d}, 24:00 UTC)"
        return f"In week {self.week}, as of {self.as_of:%A %Y-%m-%d %H:%M} UTC,"

    def unsubscribe(self, client: str) -> str:
        """Return the client's own address for leaving, percent-encoded."""
        url = self.unsubscribe_url.replace("{week}", str(self.week))
        return url.replace("{client}", quote(client, safe=""))


@dataclass(frozen=True)
class Recipient:
    """To whom one e-mail goes."""

    client: str
    name: str
    address: Address


@dataclass(frozen=True)
class Mail:
    """One e-mail as it goes on the wire.

    Envelope, and content with CRLF line ends, not yet dot-stuffed.
    """

    client: str
    message_id: str
    sender: str
    recipient: str
    needs_utf8: bool
    content: bytes


def compose(head: Letterhead, to: Recipient, holdings: Holdings, date: datetime) -> Mail:
    """Write one e-mail: RFC 5322 headers, List-* with one-click unsubscribing, text and HTML."""
    many = f"{holdings.positions} position{'s' if holdings.positions != 1 else ''}"
    subject = neutral(f"Your {head.country} stock in week {head.week}: {many}", 2 * NAME)
    name, identity = neutral(to.name, NAME), message_id(head.week, to.client, head.domain)
    unsubscribe = head.unsubscribe(to.client)
    headers = {
        "From": _mailbox("From", head.sender_name, head.sender),
        "To": _mailbox("To", name, to.address.text),
        "Subject": _words("Subject", subject),
        "Date": format_datetime(date),
        "Message-ID": identity,
        "List-Id": f"<{CAMPAIGN}.{head.domain}>",
        "List-Unsubscribe": f"<{unsubscribe}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }
    values = {
        "name": name,
        "day": head.day,
        "holdings": holdings,
        "country": head.country,
        "unsubscribe": unsubscribe,
        "subject": subject,
    }
    bodies = {
        "text/plain": _template("weekly_email.txt").render(values),
        "text/html": _template("weekly_email.html").render(values),
    }
    content = _assemble(headers, bodies, identity)
    return Mail(to.client, identity, head.sender, to.address.text, to.address.needs_utf8, content)


def _assemble(headers: dict[str, str], bodies: dict[str, str], identity: str) -> bytes:
    # "=_" never stands in quoted-printable text, so this boundary cannot occur in a body.
    boundary = f"=_{identity[1:33]}"
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines += [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/alternative; boundary="{boundary}"',
    ]
    head = "\r\n".join(lines).encode(errors="replace")
    for line in head.split(b"\r\n"):
        if len(line) > LONGEST_LINE:
            start = line[:40].decode(errors="replace")
            raise ComposeError(
                f"header {start!r}… has {len(line)} bytes,"
                f" a line of an e-mail at most {LONGEST_LINE}"
            )
    parts = [
        f"--{boundary}\r\nContent-Type: {kind}; charset=utf-8\r\n"
        "Content-Transfer-Encoding: quoted-printable\r\n\r\n".encode()
        + _quoted(body)
        for kind, body in bodies.items()
    ]
    return b"\r\n".join([head, b"", *parts, f"--{boundary}--\r\n".encode()])


def _quoted(body: str) -> bytes:
    # A body that starts with CRLF would make b2a_qp take that for its line end; ours never does.
    return b2a_qp(body.replace("\n", "\r\n").encode(errors="replace"), istext=True)


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


@lru_cache
def _template(name: str) -> Template:
    return _environment().get_template(name)


def _source(name: str) -> str:
    return files("shardpost.weekly_email").joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_source),  # PackageLoader finds nothing in an executor's .zip
        autoescape=select_autoescape(["html"]),
        keep_trailing_newline=True,
    )
