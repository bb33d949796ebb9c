"""One client's weekly e-mail as bytes, the same for the same input.

Written by hand and not with email.message, which takes a millisecond a mail. Bodies are
quoted-printable; what comes from records goes through `single_line` first, so that no header can be
injected.
"""

from binascii import b2a_qp
from dataclasses import dataclass
from datetime import datetime
from email.header import Header
from email.utils import format_datetime
from email.utils import quote as quote_phrase
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, Template, select_autoescape

from shardpost.errors import ShardpostError, single_line
from shardpost.weekly_email.model.email_request import LONGEST_NAME, EmailContext
from shardpost.weekly_email.model.holdings import Holdings
from shardpost.weekly_email.model.member import Recipient
from shardpost.wording import counted

# RFC 5322, 2.1.1: no line may be longer, without its CRLF.
LONGEST_LINE = 998


class ComposeError(ShardpostError):
    """This e-mail cannot be written; the others can."""


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
    identity = message_id(context, to.client)
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


def message_id(context: EmailContext, client: str) -> str:
    """Return the Message-ID: a hash of the list's id, week and client, the same at every attempt.

    Two installations that send from one domain need two list ids: else a receiver may take the
    e-mail of the one for that of the other, and drop it.
    """
    text = f"{context.sender.list_id}\0{context.week}\0{client}"
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"<{digest[:40]}@{context.domain}>"


def _subject(context: EmailContext, holdings: Holdings) -> str:
    count = counted(holdings.positions, "position")
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
