"""What the templates of a mail are given: rows of its tables, and the names of all values.

The samples are what templates are tried with before a run: every branch of the shipped ones.
"""

from datetime import UTC, date, datetime
from typing import Any, NamedTuple

Values = dict[str, Any]


class HeldRow(NamedTuple):
    """One position, as it is shown; all text."""

    position: str
    ticker: str
    amount: str
    exchange: str


class StockRow(NamedTuple):
    """One stock, a ticker on an exchange: how many positions of it, and the sum of their shares."""

    ticker: str
    exchange: str
    positions: str
    amount: str


_ROW = HeldRow("1", "AAPL", "100", "NASDAQ")
_STOCK = StockRow("AAPL", "NASDAQ", "2", "200")
_SAMPLE: Values = {
    "client": "client1",
    "name": "Ann Example",
    "language": "en",
    "country": "US",
    "week": "2026-W47",
    "last_day": date(2026, 11, 22),
    "held_at": datetime(2026, 11, 23, tzinfo=UTC),
    "is_final": True,
    "count": 1,
    "stocks": 1,
    "positions": [_ROW],
    "more_positions": 0,
    "totals": [_STOCK],
    "more_totals": 0,
    "text_table": "Position  Ticker\n1         AAPL",
    "text_totals": "Ticker  Amount\nAAPL       100",
    "unsubscribe": "https://shardpost.example/unsubscribe?client=client1",
    "sender_name": "Shardpost",
    "sender_address": "weekly@shardpost.example",
}
VARIABLES = frozenset({*_SAMPLE, "subject"})
SAMPLES: tuple[Values, ...] = (
    _SAMPLE,
    {
        **_SAMPLE,
        "client": '"><script>&\u202e',
        "name": "",
        "sender_name": "",
        "is_final": False,
        "count": 1234,
        "stocks": 2,
        "positions": [_ROW, HeldRow("2", "", "", "")],
        "more_positions": 1232,
        "totals": [StockRow("", "", "1", "not added up"), _STOCK],
        "more_totals": 1000,
    },
)
