"""Which records added or removed each of a client's positions: a replay of their records.

A position counts for a client while the position's latest record, and the country of its exchange,
meet the rule of who holds. So two topics can cause a change. Between them the order is: the
snapshot that read a record, then its timestamp, with each key's own order kept. A retry takes
effect at its own time, if no later record of its key is known by then. The first record of an
exchange stands before all that was read with it, since its country counted also before it
(docs/compaction.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from shardpost.errors import shown
from shardpost.holders.model.fields import RecordKind
from shardpost.holders.model.record_order import Order, is_reconciled, is_retry
from shardpost.holders.model.who_holds import condition_of, position_sort_key
from shardpost.kafka.records import Coordinates
from shardpost.values.holding_rule import TYPES, Rule

_TERMS = attrgetter("amount", "ticker", "exchange")
AnyRecord = TypeVar("AnyRecord", bound="HistoryRecord")

_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


class Change(StrEnum):
    """What a record did to a position of a client.

    PUT it among those that the client holds, TOOK it from them; or the position never counted for
    the client; or a correction was to give it to the client, and has no effect. A reconciliation
    took it, since the topic did not hold its record any more. AMENDED: the client still holds the
    position, with another amount, ticker or exchange.
    """

    PUT = "put"
    TOOK = "took"
    NOT_COUNTED = "not counted"
    NO_EFFECT = "no effect"
    RECONCILED = "reconciled"
    AMENDED = "amended"


@dataclass(frozen=True)
class HistoryRecord:
    """One decodable record of a history.

    `order` orders the records of a key; `snapshot` is the number of the one that read it; a retry
    has its own coordinates and timestamp, not those of its origin.
    """

    key: str
    order: Order
    snapshot: int
    coordinates: Coordinates
    timestamp: datetime


@dataclass(frozen=True)
class PositionRecord(HistoryRecord):
    """A record of `positions`: whose it is and what, all None if it closes the position.

    Any record of a position may be one; `reason` is why it was rejected, None if it was not.
    """

    client: str | None
    exchange: str | None
    ticker: str | None = None
    amount: str | None = None
    kind: RecordKind = RecordKind.UPSERT
    reason: str | None = None

    @property
    def position(self) -> str:
        """Its key."""
        return self.key

    def as_json(self) -> dict[str, Any]:
        """Return it with its coordinates, without what a record of its kind has not."""
        names = ("position", "snapshot", "client", "ticker", "amount", "exchange", "reason")
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        own = {"kind": str(self.kind), "timestamp": self.timestamp.isoformat()}
        return values | self.coordinates._asdict() | own


@dataclass(frozen=True)
class ExchangeRecord(HistoryRecord):
    """A record of `exchanges`: the country, None if it is not known (any more)."""

    country: str | None


@dataclass(frozen=True)
class Transition:
    """What happened to a position of a client, by which record, and why.

    `own` is the record by which the client got or had the position, `before` the one before that
    of a position that was AMENDED.
    """

    client: str
    position: str
    change: Change
    coordinates: Coordinates
    timestamp: datetime
    why: str
    own: PositionRecord | None = None
    before: PositionRecord | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the transition in the contract's form."""
        return {
            "position": self.position,
            "change": str(self.change),
            **self.coordinates._asdict(),
            "timestamp": self.timestamp.isoformat(),
        }


@dataclass
class Replay:
    """One position, by the records of its key and of the exchanges that they name, in order.

    `changes` is every change of who holds it, or of what it is; `late` are its records that came
    when a later one was known, each with that.
    """

    rule: Rule
    latest: PositionRecord | None = None
    exchanges: dict[str, ExchangeRecord] = field(default_factory=dict)
    changes: list[Transition] = field(default_factory=list)
    late: list[tuple[PositionRecord, PositionRecord]] = field(default_factory=list)

    @classmethod
    def of(
        cls, position: Iterable[PositionRecord], exchanges: Iterable[ExchangeRecord], rule: Rule
    ) -> "Replay":
        """Replay all decodable records of a position, and of the exchanges that they name."""
        made = cls(rule)
        for record in in_order(position, exchanges):
            before, old = made.holder, made.latest
            made._apply(record)
            made._note(record, before, old)
        return made

    def _apply(self, record: HistoryRecord) -> None:
        """Apply a record, unless a later one of its key is known."""
        if isinstance(record, PositionRecord):
            if self.latest is None or record.order > self.latest.order:
                self.latest = record
            else:
                self.late.append((record, self.latest))
        elif isinstance(record, ExchangeRecord):
            known = self.exchanges.get(record.key)
            if known is None or record.order > known.order:
                self.exchanges[record.key] = record

    def _note(self, record: HistoryRecord, before: str | None, old: PositionRecord | None) -> None:
        """Note what a record changed; `before` is who held the position, by the record `old`."""
        after, new = self.holder, self.latest
        if before == after:
            if after and old and new and _TERMS(old) != _TERMS(new):
                amended = _transition(after, new, Change.AMENDED, record, self.why(after))
                self.changes.append(replace(amended, before=old))
            return
        took = Change.RECONCILED if is_reconciled(record.order) else Change.TOOK
        for client, change, own in ((before, took, old), (after, Change.PUT, new)):
            if client is not None and own is not None:
                self.changes.append(_transition(client, own, change, record, self.why(client)))

    @property
    def holder(self) -> str | None:
        """The client for whom the position counts."""
        if self.latest is None or self._unmet(self.latest):
            return None
        return self.latest.client

    @property
    def owner(self) -> str | None:
        """Whose it is by its latest record, whether or not it counts; None if it is closed."""
        return self.latest.client if self.latest else None

    def why(self, client: str) -> str:
        """Say why the position does or does not count for that client."""
        if self.latest is None or self.latest.client is None:
            if self.latest and is_reconciled(self.latest.order):
                return "the topic no longer held this record: compact --reconcile closed it"
            is_skipped = self.latest is not None and self.latest.kind is RecordKind.SKIPPED
            return "its record does not meet `where`" if is_skipped else "the position is closed"
        if self.latest.client != client:
            return f"the position moved to {shown(self.latest.client)}"
        return self._where(self.latest)

    def why_never(self, client: str, own: PositionRecord) -> str:
        """Say why a position never counted for a client, of whom `own` is the last record."""
        why = self.why(client)
        is_unmet = own.client == client and self._unmet(own)
        return f"{self._where(own)}; {why}" if is_unmet and self.owner != client else why

    def _where(self, record: PositionRecord) -> str:
        if self.rule.holds is not None:
            unmet = self._unmet(record)
            return f"not met: {', '.join(unmet)}" if unmet else f"met: {self.rule}"
        exchange, country = shown(record.exchange or ""), self._country(record)
        if country is None:
            return f"the country of exchange {exchange} is not known"
        return f"exchange {exchange} is in {country}"

    def _unmet(self, record: PositionRecord) -> list[str]:
        """Return the parts of the rule that the position does not meet, each with its values."""
        values: dict[str, Any] = {name: getattr(record, name, None) for name in TYPES}
        values["country"] = self._country(record)
        shown_ = {name: "null" if value is None else repr(value) for name, value in values.items()}
        if record.amount is not None:
            shown_["amount"], values["amount"] = record.amount, float(record.amount)
        whole = condition_of(self.rule)
        unmet = (one for one in whole.parts or (whole,) if not one.is_met(values))
        return [f"{one} ({one.sql.format_map(shown_)})" for one in unmet]

    def _country(self, record: PositionRecord) -> str | None:
        known = self.exchanges.get(record.exchange) if record.exchange else None
        return known.country if known else None


def explain(
    client: str,
    positions: Sequence[PositionRecord],
    exchanges: Sequence[ExchangeRecord],
    rule: Rule,
) -> list[Transition]:
    """Return what happened to each position that was ever the client's, by position, then in order.

    `positions`: all decodable records of those positions; `exchanges`: of the exchanges they name.
    """
    result = []
    of_position, of_exchange = _by_key(positions), _by_key(exchanges)
    for key in sorted(of_position, key=position_sort_key):
        own = of_position[key]
        named = {record.exchange for record in own if record.exchange is not None}
        theirs = [record for code in named for record in of_exchange.get(code, [])]
        replay = Replay.of(own, theirs, rule)
        changes = [t for t in replay.changes if t.client == client]
        if not changes:
            latest = max(own, key=lambda record: record.order)
            given = [one for one in own if one.client == client] or own
            last = max(given, key=lambda record: record.order)
            why = replay.why_never(client, last)
            changes = [_transition(client, last, Change.NOT_COUNTED, latest, why)]
        result += changes
        result += [  # corrections in the client's favour that came when a later record was known
            _transition(
                client, late, Change.NO_EFFECT, late, f"{newer.coordinates} is newer and wins"
            )
            for late, newer in replay.late
            if is_retry(late.order) and late.client == client
        ]
    return result


def why_unknown(*, has_records: bool) -> str:
    """Return why a key without a decodable record is unknown."""
    return "all of its records were rejected" if has_records else "no record of it"


def _by_key(records: Iterable[AnyRecord]) -> dict[str, list[AnyRecord]]:
    by_key: dict[str, list[AnyRecord]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    return by_key


def in_order(
    positions: Iterable[PositionRecord], exchanges: Iterable[ExchangeRecord]
) -> list[HistoryRecord]:
    """Return the records of both topics in the order in which they took effect."""
    timed: list[tuple[int, datetime, int, Order, HistoryRecord]] = []
    for rank, records in enumerate((exchanges, positions)):
        latest: dict[str, tuple[int, datetime]] = {}
        for record in sorted(records, key=lambda record: (record.snapshot, record.order)):
            at, before = record.timestamp, latest.get(record.key)
            is_original = not is_retry(record.order)
            if before is None and is_original and isinstance(record, ExchangeRecord):
                at = _BEFORE_ALL
            elif before is not None and before[0] == record.snapshot:
                at = max(before[1], at)  # not before an original that came before it
            if is_original:
                latest[record.key] = (record.snapshot, at)
            timed.append((record.snapshot, at, rank, record.order, record))
    return [entry[-1] for entry in sorted(timed, key=lambda entry: entry[:-1])]


def _transition(
    client: str, own: PositionRecord, change: Change, record: HistoryRecord, why: str
) -> Transition:
    at = (record.coordinates, record.timestamp)
    return Transition(client, own.key, change, *at, why, own)
