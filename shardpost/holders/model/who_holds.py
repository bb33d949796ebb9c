"""Who holds by a rule, now and as of T, as SQL for Spark and DataFusion; the order of a list.

As of T (docs/compaction.md): of the records with a timestamp before T the latest per key wins
(record_order.py), whatever order the timestamps have. Where the latest record of a key is before T,
it is that one: only keys that changed since T are folded again, from history.
An exchange had its first known country also before its first record.

The caller provides the tables of RELATIONS under their own names, at the versions of one snapshot.

Position ids in a holder's list: all-digit ids by number, then the rest. The same order as Spark
columns, for the table and the mails, is in ../spark/held_positions.py.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from shardpost.delta.table import Table, text_literal, time_literal
from shardpost.holders.model import view_tables as t
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import newest_first
from shardpost.values.holding_rule import TYPES, Condition, Rule, parsed


def position_sort_key(position_id: str) -> tuple[int, int, str, str]:
    """Return the sort key: digits by number first, however many, then the rest by code point."""
    if position_id.isascii() and position_id.isdigit():
        digits = position_id.lstrip("0")
        return (0, len(digits), digits, position_id)
    return (1, 0, "", position_id)


# The tables that the queries of this module read.
RELATIONS: tuple[Table, ...] = (t.POSITION_EVENTS, t.POSITIONS, t.EXCHANGE_EVENTS, t.EXCHANGES)

_COUNTED = """
SELECT p.client AS client, p.key AS position, p.ticker AS ticker, p.amount AS amount,
  p.exchange AS exchange
FROM {positions} p LEFT JOIN {exchanges} e ON p.exchange = e.key
WHERE {condition}
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
), ranked AS (
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
), countries AS (SELECT c.key, c.country FROM ranked c WHERE c.nth = 1)
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


def condition_of(rule: Rule) -> Condition:
    """Return what a position that counts by a rule meets."""
    if rule.holds is not None:
        return parsed(rule.holds)
    literal = text_literal(rule.country).replace("{", "{{").replace("}", "}}")
    sql, own = f"{{country}} = {literal}", rule.country
    return Condition(sql, lambda of: None if of["country"] is None else of["country"] == own)


def columns_of(row: str, country: str, old: str = "") -> dict[str, str]:
    """Return {name in a condition: SQL} of a row; `old` precedes the names of its columns."""
    names = {name: f"{row}.{old}{name}" for name in TYPES}
    # The sum has no negative zero.
    amount = f"(TRY_CAST({names['amount']} AS DOUBLE) + 0E0)"
    return names | {"position": f"{row}.key", "amount": amount, "country": country}


def counted_positions(
    rule: Rule, as_of: datetime | None, *, few_changed: bool = False, client: str | None = None
) -> str:
    """Return a SELECT of the positions that count: (client, position, ticker, amount, exchange).

    `as_of` is aware, or None for the snapshot's latest state.
    With `few_changed`, those that are `changed_since` fit into the memory of each of Spark's tasks,
    and the history is not shuffled. With `client`, those of others need not be among them.
    Reads RELATIONS. UsageError for a time that the engines cannot represent.
    """
    condition = condition_of(rule).sql.format_map(columns_of("p", "e.country"))
    if as_of is None:
        own = {"positions": "positions", "exchanges": "exchanges"}
        return _COUNTED.format(**own, condition=f"p.is_open AND ({condition})").strip()
    own = {"positions": "positions_then", "exchanges": "countries"}
    then = _AS_OF.format(
        t=time_literal(as_of),
        changed=changed_since(as_of),
        of_client="" if client is None else _OF_CLIENT.format(client=text_literal(client)),
        small="/*+ BROADCAST(c) */" if few_changed else "",
        rejected=text_literal(RecordKind.REJECTED),
        upsert=text_literal(RecordKind.UPSERT),
        newest_position=newest_first("h"),
        newest_exchange=newest_first("y"),
    )
    return (then + _COUNTED.format(**own, condition=condition)).strip()


def holders(rule: Rule, as_of: datetime | None, client: str | None = None) -> str:
    """Return a SELECT of who holds: (client, positions), one row per client, ids in no order.

    With `client`, the rows of others may lack positions, or be missing.
    """
    positions = counted_positions(rule, as_of, client=client)
    return _HOLDERS.format(positions=positions).strip()


class RuleAt(NamedTuple):
    """A rule, and {exchange: its country} of the exchanges of which that is known."""

    rule: Rule
    countries: Mapping[str, str]

    def changed_since(self, before: "RuleAt") -> str | None:
        """Return the condition that others may count, by the `exchange` of a position; or None."""
        if self.rule != before.rule:
            return "TRUE"
        changed = self.countries.items() ^ before.countries.items()
        codes = {code for code, one in changed if self.rule.holds or one == self.rule.country}
        return f"exchange IN ({_listed(codes)})" if codes else None

    def counted(self, joined: str, old: str = "") -> tuple[str, str]:
        """Return as SQL that a position of the row c counts, and the join that this needs.

        `joined` is the name of what is joined, `old` precedes the names of the row's columns.
        """
        if self.rule.holds is None:  # in a tenth of the time of the join
            own = {code for code, one in self.countries.items() if one == self.rule.country}
            return f"c.{old}exchange IN ({_listed(own) or 'NULL'})", ""
        pairs = (tuple(map(text_literal, pair)) for pair in self.countries.items())
        values = ", ".join(f"({code}, {country})" for code, country in (_NO_EXCHANGE, *pairs))
        condition = condition_of(self.rule).sql.format_map(
            columns_of("c", f"{joined}.country", old)
        )
        table = f"(VALUES {values}) {joined}(exchange, country)"
        return condition, f"LEFT JOIN {table} ON c.{old}exchange = {joined}.exchange"


_NO_EXCHANGE = ("CAST(NULL AS STRING)", "CAST(NULL AS STRING)")
_HELD = """
SELECT * FROM (
  SELECT c.key AS position,
    CASE WHEN c.old_is_open AND ({before}) THEN c.old_client END AS held_by,
    CASE WHEN c.is_open AND ({now}) THEN c.client END AS holds
  FROM {{changed}} c {joins}
) h WHERE h.held_by IS DISTINCT FROM h.holds
"""


def changed_holders(before: RuleAt, now: RuleAt) -> str:
    """Return a SELECT of (position, held_by, holds), where that differs, of {changed} positions.

    Who held each, and who holds it; null for nobody.
    """
    sides = (before.counted("b", "old_"), now.counted("n"))
    # What is left to be formatted is {changed} alone.
    (held_by, join), (holds, other) = (
        [sql.replace("{", "{{").replace("}", "}}") for sql in side] for side in sides
    )
    return _HELD.format(before=held_by, now=holds, joins=f"{join} {other}".strip()).strip()


def _listed(codes: Iterable[str]) -> str:
    return ", ".join(map(text_literal, sorted(codes)))
