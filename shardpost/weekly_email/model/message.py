"""One client's weekly e-mail as bytes, the same for the same input.

Written by hand and not with email.message, which takes a millisecond a mail. Bodies are
quoted-printable; what comes from records goes through `single_line` first, so that no header can be
injected.
"""

from binascii import b2a_qp
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from hashlib import sha256
from urllib.parse import urlsplit

from shardpost.errors import single_line
from shardpost.values.addresses import Mailbox
from shardpost.weekly_email.model.email_context import (
    LONGEST_NAME,
    ComposeError,
    EmailContext,
    Headers,
    encoded,
    mailboxes,
)
from shardpost.weekly_email.model.holdings import Holdings
from shardpost.weekly_email.model.mail_rendering import Rendered, rendered
from shardpost.weekly_email.model.mail_templates import ENGLISH, MailTemplates, Values
from shardpost.weekly_email.model.recipient import Recipient

Rendering = Callable[[MailTemplates, str | None, Values], Rendered]
# RFC 5322, 2.1.1: no line may be longer, without its CRLF.
LONGEST_LINE = 998


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

    @property
    def digest(self) -> str:
        """What tells this mail from any other, to the last byte of it."""
        envelope = f"{self.sender}\0{self.recipient}\0".encode(errors="surrogatepass")
        return sha256(envelope + self.content).hexdigest()[:32]


@dataclass(frozen=True)
class Draft:
    """One e-mail before it is encoded: headers and bodies as people read them.

    A header is a text, or mailboxes.
    """

    to: Recipient
    message_id: str
    sender: str
    headers: Headers
    text: str
    html: str

    def mail(self) -> Mail:
        """Return it as it goes on the wire; ComposeError if a header does not fit into a line."""
        headers = {name: encoded(name, value) for name, value in self.headers.items()}
        bodies = {"text/plain": self.text, "text/html": self.html}
        # "=_" never stands in quoted-printable text, so this boundary cannot occur in a body.
        boundary = f"=_{self.message_id[1:33]}"
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
        content = b"\r\n".join([head, b"", *parts, f"--{boundary}--\r\n".encode()])
        address = self.to.address
        return Mail(
            *(self.to.client, self.message_id, self.sender),
            *(address.text, address.needs_utf8, content),
        )


def compose(context: EmailContext, to: Recipient, holdings: Holdings, date: datetime) -> Mail:
    """Write one e-mail: RFC 5322 headers, List-* with one-click unsubscribing, text and HTML."""
    return draft(context, to, holdings, date).mail()


def draft(
    context: EmailContext,
    to: Recipient,
    holdings: Holdings,
    date: datetime,
    *,
    is_test: bool = False,
    render: Rendering = rendered,
) -> Draft:
    """Return one e-mail before it is encoded, by the templates of its language.

    A test is marked, has another Message-ID, and is of no list: nobody is unsubscribed by it, since
    its link leads to the site, and names no client. TemplateError for a template that does not go
    with the client. Auto-Submitted (RFC 3834, 5) tells responders to be silent. That RFC recommends
    no value of Precedence, and allows it for responders that are older: `bulk` is what those know.
    """
    language = context.templates.language_for(to.language)
    values = _values(context, to, holdings, language)
    if is_test:
        site = urlsplit(context.sender.unsubscribe_url)
        values["unsubscribe"] = f"{site.scheme}://{site.netloc}/"
    found = render(context.templates, language, values)
    sender, identity = context.sender, message_id(context, to.client)
    answers = mailboxes(found.reply_to)
    headers: Headers = {
        "From": (Mailbox(single_line(found.from_name, LONGEST_NAME), sender.address),),
        **({"Reply-To": answers} if answers else {}),
        "To": (Mailbox(values["name"], to.address.text),),
        "Subject": single_line(found.subject, 2 * LONGEST_NAME),
        "Date": format_datetime(date),
        "Message-ID": identity,
        "List-Id": f"<{sender.list_id}.{context.domain}>",
        "List-Unsubscribe": f"<{values['unsubscribe']}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        "Auto-Submitted": "auto-generated",
        "Precedence": "bulk",
    }
    if is_test:
        named = (sender.list_id, context.week, to.client, to.address.text, date.isoformat())
        identity = _identity("\0".join(["test", *map(str, named)]), context.domain)
        headers |= {"Subject": f"[Test] {headers['Subject']}", "Message-ID": identity}
        del headers["List-Unsubscribe"], headers["List-Unsubscribe-Post"]
    return Draft(to, identity, sender.address, headers, found.text, found.html)


def _values(
    context: EmailContext, to: Recipient, holdings: Holdings, language: str | None
) -> Values:
    return {
        **context.shared_values,
        "client": single_line(to.client, LONGEST_NAME),
        "name": single_line(to.name, LONGEST_NAME),
        "language": (language or ENGLISH).replace("_", "-"),
        "count": holdings.positions,
        "stocks": holdings.stocks,
        "positions": holdings.rows,
        "more_positions": holdings.positions - len(holdings.rows),
        "totals": holdings.totals,
        "more_totals": holdings.stocks - len(holdings.totals),
        "text_table": holdings.text_table,
        "text_totals": holdings.text_totals,
        "unsubscribe": context.unsubscribe_url(to.client),
    }


def message_id(context: EmailContext, client: str) -> str:
    """Return the Message-ID: a hash of the list's id, week and client, the same at every attempt.

    Two installations that send from one domain need two list ids: else a receiver may take the
    e-mail of the one for that of the other, and drop it.
    """
    return _identity(f"{context.sender.list_id}\0{context.week}\0{client}", context.domain)


def _identity(text: str, domain: str) -> str:
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"<{digest[:40]}@{domain}>"


def _quoted(body: str) -> bytes:
    """Return a body as quoted-printable, with CRLF after each line, also a soft one."""
    # b2a_qp ends lines as the text does, so it gets one kind of end, which is replaced once.
    text = body.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    return b2a_qp(text.encode(errors="replace"), istext=True).replace(b"\n", b"\r\n")
