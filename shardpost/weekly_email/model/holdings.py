"""A client's positions as an e-mail shows them: cells, totals by stock, and text tables."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from functools import reduce
from operator import add

from shardpost.errors import single_line
from shardpost.weekly_email.model.mail_templates import (
    MOST_ROWS,
    HeldRow,
    StockRow,
    Values,
    number_text,
)

# Longer cells are cut: a position id may be as long as Kafka allows.
LONGEST_CELL = 60
# Amounts with digits further than this from the decimal point are not added up.
MAGNITUDE = 100
NOT_ADDED = "not added up"
# The columns of text tables, aligned to the left or to the right.
_HELD = {"Position": str.ljust, "Ticker": str.ljust, "Amount": str.rjust, "Exchange": str.ljust}
_STOCKS = {"Ticker": str.ljust, "Exchange": str.ljust, "Positions": str.rjust, "Amount": str.rjust}


def held_values(
    positions: Sequence[Mapping[str, str | None]],
    language: str | None = None,
    most_rows: int = MOST_ROWS,
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
