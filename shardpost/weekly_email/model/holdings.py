"""A client's positions as an e-mail shows them, computed in batches.

pandas costs milliseconds a frame, so one frame serves a batch of clients: cells and totals are
computed for the whole batch, and only the lines are joined per client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from shardpost.errors import single_line
from shardpost.weekly_email.model.mail_templates import MOST_ROWS, HeldRow, StockRow, number_text

POSITION_COLUMNS = {
    "position": "Position",
    "ticker": "Ticker",
    "amount": "Amount",
    "exchange": "Exchange",
}
# Totals are per stock, a ticker on an exchange: shares of different stocks are not added up.
TOTAL_COLUMNS = {
    "ticker": "Ticker",
    "exchange": "Exchange",
    "positions": "Positions",
    "total": "Amount",
}
NUMBERS = frozenset({"amount", "positions", "total"})

# Longer cells are cut: a position id may be as long as Kafka allows.
LONGEST_CELL = 60
# Amounts with digits further than this from the decimal point are not added up.
MAGNITUDE = 100
NOT_ADDED = "not added up"


@dataclass(frozen=True)
class Holdings:
    """One client's positions and totals by stock: a text table each, and its first rows.

    The totals are useful if there are fewer stocks than positions.
    """

    positions: int
    stocks: int
    text_table: str
    rows: list[HeldRow]
    text_totals: str
    totals: list[StockRow]


def holdings_of_batch(
    positions: pa.ListArray, languages: Sequence[str | None] = (), most_rows: int = MOST_ROWS
) -> list[Holdings]:
    """Return the holdings of each client of a batch.

    `positions`: per client a list of structs (position, ticker, amount, exchange), all text, in
    display order. `languages`: the language of each client's numbers; None: as in the records.
    Texts have all rows, lists at most `most_rows`.
    """
    flat, clients = pc.list_flatten(positions), len(positions)
    columns = {
        name: pc.struct_field(flat, name).to_pandas().fillna("") for name in POSITION_COLUMNS
    }
    frame = pd.DataFrame({"owner": pc.list_parent_indices(positions).to_numpy(), **columns}).astype(
        dict.fromkeys(POSITION_COLUMNS, object)
    )
    shown = _localized(_shown(frame, POSITION_COLUMNS), languages)
    totals = _localized(_totals(frame), languages)
    table = _tables(shown, POSITION_COLUMNS, clients, HeldRow, most_rows)
    totals_table = _tables(totals, TOTAL_COLUMNS, clients, StockRow, most_rows)
    counts, stocks = (
        np.bincount(rows["owner"], minlength=clients).tolist() for rows in (frame, totals)
    )
    return [
        Holdings(count, stock_count, *rows, *sums)
        for count, stock_count, rows, sums in zip(counts, stocks, table, totals_table, strict=True)
    ]


def holdings_of(
    positions: Sequence[dict[str, str | None]], language: str | None, most_rows: int
) -> Holdings:
    """Return the holdings of one client."""
    type_ = pa.list_(pa.struct([(name, pa.string()) for name in POSITION_COLUMNS]))
    return holdings_of_batch(pa.array([positions], type_), [language], most_rows)[0]


def _shown(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    return frame.assign(
        **{name: [single_line(cell, LONGEST_CELL) for cell in frame[name]] for name in columns}
    )


def _localized(shown: pd.DataFrame, languages: Sequence[str | None]) -> pd.DataFrame:
    if not any(languages):
        return shown
    owners = [languages[owner] for owner in shown["owner"]]
    return shown.assign(
        **{
            name: [
                number_text(cell, language) if language else cell
                for cell, language in zip(shown[name], owners, strict=True)
            ]
            for name in NUMBERS & {*shown.columns}
        }
    )


def _totals(frame: pd.DataFrame) -> pd.DataFrame:
    """Return (owner, ticker, exchange, positions, total), by owner and stock.

    Positions without a ticker may be different stocks, so they are not added up.
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


def _tables(
    frame: pd.DataFrame, columns: dict[str, str], clients: int, row: Any, most_rows: int
) -> list[tuple[str, list[Any]]]:
    """Return per client the text table with its heading, and the first rows."""
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
    cells = [frame[name].tolist() for name in columns]
    ends = np.searchsorted(owner.to_numpy(), np.arange(clients + 1)).tolist()
    return [
        (
            "\n".join([heads[client], *lines[start:end]]),
            list(map(row, *(column[start : min(end, start + most_rows)] for column in cells))),
        )
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
