"""One client's weekly e-mail as bytes, the same for the same input.

Not built with email.message, which takes a millisecond a mail. Bodies are quoted-printable; values
from records pass through `single_line`, so that no header can be injected.
"""

from binascii import b2a_qp
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation, localcontext
from email.utils import format_datetime
from functools import reduce
from hashlib import sha256
from operator import add
from urllib.parse import urlsplit

from shardpost.errors import single_line
from shardpost.values.addresses import Mailbox
from shardpost.weekly_email.model import email_context
from shardpost.weekly_email.model.mail_rendering import face_of
from shardpost.weekly_email.model.mail_templates import (
    ENGLISH,
    MOST_ROWS,
    HeldRow,
    StockRow,
    Values,
    number_text,
)
from shardpost.weekly_email.model.recipient import Recipient

Positions = Sequence[Mapping[str, str | None]]
LONGEST_LINE = 998  # bytes without CRLF (RFC 5322, 2.1.1)


@dataclass(frozen=True)
class Mail:
    """One e-mail on the wire: envelope, and content with CRLF line ends, not yet dot-stuffed."""

    client: str
    message_id: str
    sender: str
    recipient: str
    needs_utf8: bool
    content: bytes

    @property
    def digest(self) -> str:
        """A digest of the whole mail."""
        envelope = f"{self.sender}\0{self.recipient}\0".encode(errors="surrogatepass")
        return sha256(envelope + self.content).hexdigest()[:32]


@dataclass(frozen=True)
class Draft:
    """One e-mail before encoding: headers and bodies as people read them."""

    to: Recipient
    message_id: str
    sender: str
    headers: email_context.Headers
    text: str
    html: str

    def mail(self) -> Mail:
        """Return the encoded e-mail; raises ComposeError if a header does not fit into a line."""
        headers = {name: email_context.encoded(name, value) for name, value in self.headers.items()}
        bodies = {"text/plain": self.text, "text/html": self.html}
        # "=_" is never in quoted-printable text, so this boundary cannot occur in a body.
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
                raise email_context.ComposeError(
                    f"header {start!r}…: expected at most {LONGEST_LINE} bytes, found {len(line)}"
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


def draft(
    context: email_context.EmailContext,
    to: Recipient,
    positions: Positions,
    date: datetime,
    *,
    is_test: bool = False,
) -> Draft:
    """Return one e-mail before encoding, from the templates of its language.

    It has RFC 5322 headers, and List-* with one-click unsubscribing. A test is marked, has another
    Message-ID and no list headers: its link leads to the site without naming a client, so that
    nobody is unsubscribed. Raises TemplateError for a template that fails on the client.
    Auto-Submitted (RFC 3834, 5) silences responders. The RFC allows Precedence for older
    responders, which know `bulk`.
    """
    language = context.templates.language_for(to.language)
    values = {
        **context.shared_values,
        **held_values(positions, language, context.templates.most_rows),
        "client": single_line(to.client, email_context.LONGEST_NAME),
        "name": single_line(to.name, email_context.LONGEST_NAME),
        "language": (language or ENGLISH).replace("_", "-"),
        "unsubscribe": context.unsubscribe_url(to.client),
    }
    if is_test:
        site = urlsplit(context.sender.unsubscribe_url)
        values["unsubscribe"] = f"{site.scheme}://{site.netloc}/"
    found = face_of(context.templates, language).render(values)
    sender, identity = context.sender, message_id(context, to.client)
    answers = email_context.mailboxes(found.reply_to)
    headers: email_context.Headers = {
        "From": (
            Mailbox(single_line(found.from_name, email_context.LONGEST_NAME), sender.address),
        ),
        **({"Reply-To": answers} if answers else {}),
        "To": (Mailbox(values["name"], to.address.text),),
        "Subject": single_line(found.subject, 2 * email_context.LONGEST_NAME),
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


def message_id(context: email_context.EmailContext, client: str) -> str:
    """Return the Message-ID: a hash of list id, week and client, the same at every attempt.

    Two installations that send from one domain need two list ids: else a receiver may drop the
    e-mail of one as a duplicate of the other's.
    """
    return _identity(f"{context.sender.list_id}\0{context.week}\0{client}", context.domain)


def _identity(text: str, domain: str) -> str:
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"<{digest[:40]}@{domain}>"


def _quoted(body: str) -> bytes:
    """Return a body as quoted-printable, with CRLF after each line, soft breaks included."""
    # b2a_qp ends lines as the text does, so line ends are unified before and replaced after.
    text = body.replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    return b2a_qp(text.encode(errors="replace"), istext=True).replace(b"\n", b"\r\n")


# Longer cells are cut: a position id may be as long as Kafka allows.
LONGEST_CELL = 60
# Amounts with digits further than this from the decimal point are not added up.
MAGNITUDE = 100
NOT_ADDED = "not added up"
# The columns of text tables, aligned to the left or to the right.
_HELD = {"Position": str.ljust, "Ticker": str.ljust, "Amount": str.rjust, "Exchange": str.ljust}
_STOCKS = {"Ticker": str.ljust, "Exchange": str.ljust, "Positions": str.rjust, "Amount": str.rjust}


def held_values(
    positions: Positions, language: str | None = None, most_rows: int = MOST_ROWS
) -> Values:
    """Return the template variables (mail_templates.py) of one client's positions.

    `positions` (position, ticker, amount, exchange) are all text, in display order. `language` is
    that of numbers; None: as in the records. Text tables have all rows, lists at most `most_rows`.
    The totals are useful if there are fewer stocks than positions.
    """
    found = [HeldRow(*(held[name] or "" for name in HeldRow._fields)) for held in positions]
    rows = [HeldRow(*map(_cell, held)) for held in found]
    totals = _totals(found)
    if language is not None:
        rows = [held._replace(amount=number_text(held.amount, language)) for held in rows]
        totals = [
            StockRow(*stock[:2], *(number_text(text, language) for text in stock[2:]))
            for stock in totals
        ]
    return {
        "count": len(rows),
        "stocks": len(totals),
        "positions": rows[:most_rows],
        "more_positions": max(0, len(rows) - most_rows),
        "totals": totals[:most_rows],
        "more_totals": max(0, len(totals) - most_rows),
        "text_table": _text_table(_HELD, rows),
        "text_totals": _text_table(_STOCKS, totals),
    }


def _cell(text: str) -> str:
    return single_line(text, LONGEST_CELL)


def _totals(positions: Sequence[HeldRow]) -> list[StockRow]:
    """Return the sums by stock, a ticker on an exchange, sorted by both.

    Shares of different stocks are not added up, and positions without a ticker may be of different
    stocks.
    """
    amounts: dict[tuple[str, str], list[Decimal | None]] = defaultdict(list)
    for held in positions:
        number = _number(held.amount) if held.ticker else None
        amounts[held.ticker, held.exchange].append(number)
    return [
        StockRow(_cell(ticker), _cell(exchange), str(len(numbers)), _cell(_sum(numbers)))
        for (ticker, exchange), numbers in sorted(amounts.items(), key=lambda stock: stock[0])
    ]


def _sum(numbers: Sequence[Decimal | None]) -> str:
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return NOT_ADDED
    with localcontext() as context:
        context.prec = 3 * MAGNITUDE
        total = reduce(add, known)
    return format(total, "f") if abs(total.adjusted()) <= LONGEST_CELL // 2 else str(total)


def _number(amount: str) -> Decimal | None:
    """Return an amount that can be added up exactly, or None."""
    try:
        number = Decimal(amount)
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    exponent = number.as_tuple().exponent
    fits = number.adjusted() <= MAGNITUDE and isinstance(exponent, int) and exponent >= -MAGNITUDE
    return number if fits else None


def _text_table(
    columns: Mapping[str, Callable[[str, int], str]], rows: Sequence[Sequence[str]]
) -> str:
    lines = [tuple(columns), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pads = list(zip(columns.values(), widths, strict=True))
    return "\n".join(
        "  ".join(pad(cell, width) for cell, (pad, width) in zip(line, pads, strict=True)).rstrip()
        for line in lines
    )
