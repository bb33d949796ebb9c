"""The rule of who holds, now and as of T, as SQL for Spark and DataFusion; the order of a list.

As of T (docs/compaction.md): of the records with a timestamp before T the latest per key wins
(record_order.py), whatever order the timestamps have. Where the latest record of a key is before T,
it is that one: only keys that changed since T are folded again, from history.
An exchange had its first known country also before its first record.

The caller provides the tables of RELATIONS under their own names, at the versions of one snapshot.

Position ids in a holder's list: all-digit ids by number, then the rest. The same order as Spark
columns, for the table and the mails, is in ../spark/held_positions.py.
"""

from collections.abc import Collection
from datetime import datetime

from shardpost.delta.table import Table, text_literal, time_literal
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import newest_first
from shardpost.holders.model.view_tables import (
    EXCHANGE_EVENTS,
    EXCHANGES,
    POSITION_EVENTS,
    POSITIONS,
)


def position_sort_key(position_id: str) -> tuple[int, int, str, str]:
    """Return the sort key: digits by number first, however many, then the rest by code point."""
    if position_id.isascii() and position_id.isdigit():
        digits = position_id.lstrip("0")
        return (0, len(digits), digits, position_id)
    return (1, 0, "", position_id)


# The tables that the queries of this module read.
RELATIONS: tuple[Table, ...] = (POSITION_EVENTS, POSITIONS, EXCHANGE_EVENTS, EXCHANGES)

_LATEST = """
SELECT p.client AS client, p.key AS position, p.ticker AS ticker, p.amount AS amount,
  p.exchange AS exchange
FROM positions p JOIN exchanges e ON p.exchange = e.key
WHERE p.is_open AND e.country = {country}
"""

_AS_OF = """
WITH refolded AS (
  SELECT h.key, h.kind, h.client, h.ticker, h.amount, h.exchange,
    ROW_NUMBER() OVER (PARTITION BY h.key ORDER BY {newest_position}) AS nth
  FROM position_events h
  WHERE h.timestamp < {t} AND h.kind <> {rejected}
    AND h.key IN (SELECT {small} c.key FROM positions c WHERE {changed}{of_client})
), positions_then AS (
  SELECT p.key, p.client, p.ticker, p.amount, p.exchange
  FROM positions p WHERE p.timestamp < {t} AND p.is_open
  UNION ALL
  SELECT r.key, r.client, r.ticker, r.amount, r.exchange
  FROM refolded r WHERE r.nth = 1 AND r.kind = {upsert}
), countries AS (
  SELECT x.key, x.country, ROW_NUMBER() OVER (
    PARTITION BY x.key
    ORDER BY x.timestamp < {t} DESC, CASE WHEN x.timestamp < {t} THEN x.back END,
      x.country IS NULL, x.back DESC
  ) AS nth
  FROM (
    SELECT y.key, y.country, y.timestamp,
      ROW_NUMBER() OVER (PARTITION BY y.key ORDER BY {newest_exchange}) AS back
    FROM exchange_events y WHERE y.kind <> {rejected}
  ) x
)
SELECT p.client AS client, p.key AS position, p.ticker AS ticker, p.amount AS amount,
  p.exchange AS exchange
FROM positions_then p JOIN countries e ON p.exchange = e.key
WHERE e.nth = 1 AND e.country = {country}
"""

_HOLDERS = """
SELECT u.client AS client, array_agg(u.position) AS positions
FROM ({positions}) u GROUP BY u.client
"""


def changed_since(as_of: datetime) -> str:
    """Return the condition, of rows c of `positions`, that the position is folded again."""
    return f"c.timestamp >= {time_literal(as_of)}"


# A position is a client's as of a time only if a record before it gave it to the client.
_OF_CLIENT = " AND c.key IN (SELECT e.key FROM position_events e WHERE e.client = {client})"


def counted_positions(
    country: str, as_of: datetime | None, *, few_changed: bool = False, client: str | None = None
) -> str:
    """Return a SELECT of the positions that count: (client, position, ticker, amount, exchange).

    `country` is whose stock counts; `as_of` is aware, or None for the snapshot's latest state.
    With `few_changed`, those that are `changed_since` fit into the memory of each of Spark's tasks,
    and the history is not shuffled. With `client`, those of others need not be among them.
    Reads RELATIONS. UsageError for a time that the engines cannot represent.
    """
    if as_of is None:
        return _LATEST.format(country=text_literal(country)).strip()
    return _AS_OF.format(
        country=text_literal(country),
        t=time_literal(as_of),
        changed=changed_since(as_of),
        of_client="" if client is None else _OF_CLIENT.format(client=text_literal(client)),
        small="/*+ BROADCAST(c) */" if few_changed else "",
        rejected=text_literal(RecordKind.REJECTED),
        upsert=text_literal(RecordKind.UPSERT),
        newest_position=newest_first("h"),
        newest_exchange=newest_first("y"),
    ).strip()


def holders(country: str, as_of: datetime | None, client: str | None = None) -> str:
    """Return a SELECT of who holds: (client, positions), one row per client, ids in no order.

    With `client`, the rows of others may lack positions, or be missing.
    """
    positions = counted_positions(country, as_of, client=client)
    return _HOLDERS.format(positions=positions).strip()


_HELD = """
SELECT * FROM (
  SELECT c.key AS position,
    CASE WHEN c.old_is_open AND c.old_exchange IN ({before}) THEN c.old_client END AS held_by,
    CASE WHEN c.is_open AND c.exchange IN ({now}) THEN c.client END AS holds
  FROM {{changed}} c
) h WHERE h.held_by IS DISTINCT FROM h.holds
"""


def changed_holders(before: Collection[str], now: Collection[str]) -> str:
    """Return a SELECT of (position, held_by, holds), where that differs, of {changed} positions.

    Who held each, and who holds it; null for nobody. `before` and `now` are the exchanges whose
    stock counted, and counts.
    """
    return _HELD.format(before=_listed(before), now=_listed(now)).strip()


def _listed(codes: Collection[str]) -> str:
    literals = ", ".join(map(text_literal, sorted(codes)))
    # IN () is no SQL, and nothing is in NULL. What is left to be formatted is {changed} alone.
    return literals.replace("{", "{{").replace("}", "}}") or "NULL"
