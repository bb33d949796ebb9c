"""One client's weekly e-mail as bytes, the same for the same input, and its tables of positions.

Written by hand and not with email.message, which takes a millisecond a mail. Bodies are
quoted-printable; what comes from records goes through `single_line` first, so that no header can be
injected.

pandas costs milliseconds a frame, so one frame serves a batch of clients: cells are formatted and
totals added up for the whole batch, and what is left for each client is joining its lines.
"""

from binascii import b2a_qp
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation, localcontext
from email.header import Header
from email.utils import format_datetime
from email.utils import quote as quote_phrase
from functools import lru_cache
from html import escape
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment, FunctionLoader, Template, select_autoescape

from shardpost.errors import ShardpostError, single_line
from shardpost.weekly_email.model.email_request import LONGEST_NAME, EmailContext
from shardpost.weekly_email.model.member import Recipient

POSITION_COLUMNS = {
    "position": "Position",
    "ticker": "Ticker",
    "amount": "Amount",
    "exchange": "Exchange",
}
# Of a stock, which is a ticker on an exchange: shares of different stocks have no sum.
TOTAL_COLUMNS = {
    "ticker": "Ticker",
    "exchange": "Exchange",
    "positions": "Positions",
    "total": "Amount",
}
NUMBERS = frozenset({"amount", "positions", "total"})

# Longer cells are cut: a position id may be as long as Kafka allows.
LONGEST_CELL = 60
# Amounts with digits further than this from the point are shown, and not added up.
MAGNITUDE = 100
NOT_ADDED = "not added up"


@dataclass(frozen=True)
class Holdings:
    """One client's positions and totals by stock: a text table each, and rows of an HTML table.

    With fewer stocks than positions the totals say more than the positions do.
    """

    positions: int
    stocks: int
    text_table: str
    html_rows: str
    text_totals: str
    html_totals: str


def holdings_of_batch(positions: pa.ListArray) -> list[Holdings]:
    """Return the holdings of each client of a batch.

    `positions`: per client a list of structs (position, ticker, amount, exchange), all text, in the
    order in which they are to be shown.
    """
    frame = _frame(positions)
    clients = len(positions)
    shown = _shown(frame, POSITION_COLUMNS)
    totals = _totals(frame)
    table, totals_table = (
        _tables(shown, POSITION_COLUMNS, clients),
        _tables(totals, TOTAL_COLUMNS, clients),
    )
    counts, stocks = (
        np.bincount(rows["owner"], minlength=clients).tolist() for rows in (frame, totals)
    )
    return [
        Holdings(count, stock_count, *rows, *sums)
        for count, stock_count, rows, sums in zip(counts, stocks, table, totals_table, strict=True)
    ]


def _frame(positions: pa.ListArray) -> pd.DataFrame:
    flat = pc.list_flatten(positions)
    columns = {
        name: pc.struct_field(flat, name).to_pandas().fillna("") for name in POSITION_COLUMNS
    }
    owner = pc.list_parent_indices(positions).to_numpy()
    return pd.DataFrame({"owner": owner, **columns}).astype(dict.fromkeys(POSITION_COLUMNS, object))


def _shown(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    return frame.assign(
        **{name: [single_line(cell, LONGEST_CELL) for cell in frame[name]] for name in columns}
    )


def _totals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return (owner, ticker, exchange, positions, total), by owner and stock.

    Positions without a ticker may be of different stocks: they are not added up.
    """
    numbers = [
        _number(amount) if ticker else None
        for amount, ticker in zip(frame["amount"], frame["ticker"], strict=True)
    ]
    known = [number is not None for number in numbers]
    filled = [number if number is not None else Decimal(0) for number in numbers]
    keyed = frame.assign(number=pd.Series(filled, dtype=object), known=pd.Series(known, dtype=bool))
    with localcontext() as context:
        context.prec = 3 * MAGNITUDE
        grouped = keyed.groupby(["owner", "ticker", "exchange"], sort=True)
        sums = grouped.agg(
            positions=("known", "size"), number=("number", "sum"), known=("known", "all")
        ).reset_index()
    sums["total"] = [
        _plain(number) if known else NOT_ADDED
        for number, known in zip(sums["number"], sums["known"], strict=True)
    ]
    sums["positions"] = sums["positions"].astype(str)
    return _shown(sums, TOTAL_COLUMNS)


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


def _plain(number: Decimal) -> str:
    return format(number, "f") if abs(number.adjusted()) <= LONGEST_CELL // 2 else str(number)


def _tables(frame: pd.DataFrame, columns: dict[str, str], clients: int) -> list[tuple[str, str]]:
    """Return per client the text table with its heading, and the rows of the HTML table."""
    owner = frame["owner"]
    widths = {
        name: pd.Series([len(cell) for cell in frame[name]], dtype=int)
        .groupby(owner)
        .max()
        .reindex(range(clients), fill_value=0)
        .clip(lower=len(title))
        for name, title in columns.items()
    }
    lines = _lines({name: frame[name].tolist() for name in columns}, widths, owner)
    everybody = pd.Series(range(clients), dtype=int)
    heads = _lines({name: [title] * clients for name, title in columns.items()}, widths, everybody)
    html = _html({name: frame[name].tolist() for name in columns})
    ends = np.searchsorted(owner.to_numpy(), np.arange(clients + 1)).tolist()
    return [
        ("\n".join([heads[client], *lines[start:end]]), "\n".join(html[start:end]))
        for client, (start, end) in enumerate(pairwise(ends))
    ]


def _lines(
    cells: dict[str, list[str]], widths: dict[str, "pd.Series[int]"], owner: "pd.Series[int]"
) -> list[str]:
    padded = []
    for name, column in cells.items():
        width = widths[name].to_numpy()[owner.to_numpy()].astype(int).tolist()
        pad = str.rjust if name in NUMBERS else str.ljust
        padded.append([pad(cell, size) for cell, size in zip(column, width, strict=True)])
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def _html(cells: dict[str, list[str]]) -> list[str]:
    columns = [
        [
            f'<td align="right">{escape(c)}</td>' if name in NUMBERS else f"<td>{escape(c)}</td>"
            for c in column
        ]
        for name, column in cells.items()
    ]
    return [f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True)]


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
