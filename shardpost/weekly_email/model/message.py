"""One client's weekly e-mail, and what all e-mails of a run have in common.

What all e-mails of a run have in common: week, sender, and where to unsubscribe.

One client's weekly e-mail as bytes, the same for the same input.

Written by hand and not with email.message, which takes a millisecond a mail. Bodies are
quoted-printable; what comes from records goes through `single_line` first, so that no header can be
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

from shardpost.addresses import Address, UnusableAddress, check_address
from shardpost.errors import ShardpostError, UsageError
from shardpost.weekly_email.model.holdings import Holdings
from shardpost.weekly_email.model.ledger import message_id
from shardpost.weekly_email.model.single_line import single_line
from shardpost.weekly_email.model.week import IsoWeek

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


# RFC 5322, 2.1.1: no line may be longer, without its CRLF.
LONGEST_LINE = 998


class ComposeError(ShardpostError):
    """This e-mail cannot be written; the others can."""


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


def compose(context: EmailContext, to: Recipient, holdings: Holdings, date: datetime) -> Mail:
    """Write one e-mail: RFC 5322 headers, List-* with one-click unsubscribing, text and HTML.

    Auto-Submitted (RFC 3834, 5) tells responders to be silent. That RFC recommends no value of
    Precedence, and allows it for responders that are older: `bulk` is what those know.
    """
    subject = _subject(context, holdings)
    name = single_line(to.name, LONGEST_NAME)
    sender, address = context.sender, to.address
    identity = context.message_id(to.client)
    unsubscribe = context.unsubscribe_url(to.client)
    headers = {
        "From": _mailbox("From", sender.name, sender.address),
        "To": _mailbox("To", name, address.text),
        "Subject": _words("Subject", subject),
        "Date": format_datetime(date),
        "Message-ID": identity,
        "List-Id": f"<{sender.list_id}.{context.domain}>",
        "List-Unsubscribe": f"<{unsubscribe}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        "Auto-Submitted": "auto-generated",
        "Precedence": "bulk",
    }
    values = {
        "name": name,
        "as_of": context.as_of_text,
        "holdings": holdings,
        "country": context.country,
        "unsubscribe": unsubscribe,
        "subject": subject,
    }
    bodies = {
        "text/plain": _template("weekly_email.txt").render(values),
        "text/html": _template("weekly_email.html").render(values),
    }
    content = _assemble(headers, bodies, identity)
    return Mail(to.client, identity, sender.address, address.text, address.needs_utf8, content)


def _subject(context: EmailContext, holdings: Holdings) -> str:
    count = f"{holdings.positions} position{'s' if holdings.positions != 1 else ''}"
    text = f"Your {context.country} stock in week {context.week}: {count}"
    return single_line(text, 2 * LONGEST_NAME)


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
