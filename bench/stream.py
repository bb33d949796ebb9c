"""A deterministic stream of trading positions, and what a plain fold makes of it.

The same size always gives the same records in the same order: the first `size` of them, then as
many more as are asked for. A fifth as many positions as records, by default a fiftieth as many
clients; one record in twenty closes a position, one in fifty moves one to another client or
exchange.
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import islice

COUNTING = ("NASDAQ", "NYSE", "AMEX")
ABROAD = ("LON", "PAR", "FRA", "TYO", "HKG", "TOR", "SYD")
TICKERS = ("AAPL", "MSFT", "NVDA", "AMZN", "KO", "SAP", "VOD", "SHEL", "NESN", "TM")
START_MS = 1_748_822_400_000
CLOSED, MOVED = 0.05, 0.02
COUNTING_SHARE = 0.4

Record = tuple[str, str | None, int]


def records(size: int, first: int = 0, more: int = 0) -> Iterator[Record]:
    """Yield (key, value, timestamp in ms) of the records `first` … size + more - 1."""
    return islice(endless(size, max(1, size // 50)), first, size + more)


def endless(size: int, clients: int) -> Iterator[Record]:
    """Yield the records of so many clients without end, the first `size` of them first."""
    rnd = random.Random(size)  # noqa: S311 - the same stream each time
    draw = rnd.random
    positions = max(1, size // 5)
    owner, place, is_open = [0] * positions, [""] * positions, bytearray(positions)
    opened = number = 0
    while True:
        new = opened < positions and opened * size <= number * positions
        key = opened if new else int(draw() * opened)
        opened += new
        closes = not new and is_open[key] and draw() < CLOSED
        if new or draw() < MOVED:
            owner[key], place[key] = int(draw() * clients), _exchange(draw)
        is_open[key] = not closes
        value = None
        if not closes:
            value = (
                f'{{"PositionId":{key},"Client":"C{owner[key]:06d}",'
                f'"Ticker":"{TICKERS[key % len(TICKERS)]}","Amount":{number % 10_000 + 1},'
                f'"Exchange":"{place[key]}"}}'
            )
        yield str(key), value, START_MS + number
        number += 1


def _exchange(draw: Callable[[], float]) -> str:
    names = COUNTING if draw() < COUNTING_SHARE else ABROAD
    return names[int(draw() * len(names))]


def holders(stream: Iterator[Record]) -> dict[str, list[int]]:
    """Return {client: its ids on exchanges that count, ascending} after those records."""
    latest: dict[str, str] = {}
    for key, value, _ in stream:
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = value
    found: dict[str, list[int]] = {}
    for key, value in latest.items():
        form = json.loads(value)
        if form["Exchange"] in COUNTING:
            found.setdefault(form["Client"], []).append(int(key))
    return {client: sorted(ids) for client, ids in found.items()}
