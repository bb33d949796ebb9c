"""A person's decisions about a week: unknown deliveries, a ledger that lost records, a pause.

As in a run, each shard is locked and fenced before it is read: a decision about the ledger is
refused beside a live run, and a run presumed dead has no further effect.

Runs that mail a paused week end within seconds, and others refuse it. Mails in flight are finished
and recorded, and no new ones are started: nothing becomes unknown, and open clients remain open for
a later run. Rows of `paused_weeks` are only added; the last row counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.delta import table_log
from shardpost.errors import ShardpostError, shown
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import by_partition
from shardpost.kafka.transactions import TransactionError
from shardpost.topics import guards
from shardpost.weekly_email import week_state
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, LedgerId
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import PAUSED_WEEKS, LedgerMark, PausedWeek

MOST_NAMED = 20  # clients in an error


class Outcome(StrEnum):
    """A person's finding about a delivery."""

    SENT = "sent"  # the client got it
    OPEN = "open"  # it did not: the next run mails it


@dataclass(frozen=True)
class Resolution:
    """The decision: week, clients, outcome, who, why and when."""

    week: IsoWeek
    clients: tuple[str, ...]
    outcome: Outcome
    who: str
    why: str
    when: datetime

    def entry(self, unknown: LedgerEntry) -> LedgerEntry:
        """Return a client's new ledger entry, given the one that left it unknown."""
        state = DeliveryState.SENT if self.outcome is Outcome.SENT else None
        reason = f"resolved as {self.outcome} by {self.who}: {self.why}"
        return replace(unknown, state=state, reason=reason, resends=0)

    def decision(self, client: str) -> Decision:
        """Return the record of the decision about one client."""
        about = LedgerId(client).key(self.week)
        return Decision(about, Kind.RESOLVED, self.who, self.when, self.why)

    def require_unknown(self, states: Mapping[str, DeliveryState | None]) -> None:
        """Refuse the whole decision if a client is not unknown; None is open."""
        others = [
            f"{shown(client)} is {state or 'open'}"
            for client, state in states.items()
            if state not in (DeliveryState.UNKNOWN, DeliveryState.SENDING)
        ]
        if others:
            more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
            raise ShardpostError(
                f"{self.week}: expected clients whose delivery is unknown, found"
                f" {', '.join(others[:MOST_NAMED])}{more}; nothing was changed: `shardpost emails"
                f" --week {self.week}` lists the unknown deliveries"
            )


def resolve(installation: Installation, resolution: Resolution) -> dict[str, int]:
    """Write the decision; return {client: shard}.

    Raises ShardpostError, changing nothing, if a client is not unknown, and LockedError beside a
    run. The ledger records and decisions of a shard are one transaction.
    """
    guards.require_owner(installation)
    week = resolution.week
    partitions = week_state.compacted_ledger(installation.kafka).partitions  # what to lock
    shards = by_partition(resolution.clients, partitions)
    state = week_state.WeekState(installation, week)
    with state.locked(sorted(shards)), ExitStack() as opened:
        state.require_open(resolution.when)
        if state.require_ledger().partitions != partitions:
            raise _changed_meanwhile(week)
        # Before anything is fenced, so that a typo does not stop a run on another machine.
        read = [ShardLedger(installation.kafka, week, shard).entries() for shard in shards]
        resolution.require_unknown(_states(map(LedgerIndex.fold, read), shards.values()))
        ledgers = [opened.enter_context(closing(Ledger(installation, week, n))) for n in shards]
        indexes = [ledger.open() for ledger in ledgers]
        resolution.require_unknown(_states(indexes, shards.values()))
        _write(installation.kafka, resolution, zip(ledgers, indexes, shards.values(), strict=True))
    return {client: shard for shard, clients in shards.items() for client in clients}


def _changed_meanwhile(week: IsoWeek) -> ShardpostError:
    return ShardpostError(
        f"{week}: the number of the ledger's partitions changed meanwhile: run it again"
    )


def _states(
    indexes: Iterable[LedgerIndex], shards: Iterable[Sequence[str]]
) -> dict[str, DeliveryState | None]:
    return {
        client: state
        for index, clients in zip(indexes, shards, strict=True)
        for client, state in zip(clients, index.states(clients), strict=True)
    }


def _write(
    kafka: Kafka,
    resolution: Resolution,
    shards: Iterable[tuple[Ledger, LedgerIndex, Sequence[str]]],
) -> None:
    headers = {"as": str(resolution.outcome).encode()}
    written: list[str] = []
    for ledger, index, clients in shards:
        entries = [resolution.entry(index.unknown(name)) for name in clients]
        decisions = [
            decisions_topic.written(kafka, resolution.decision(name), headers) for name in clients
        ]
        try:
            ledger.write(entries, decisions)
        except TransactionError as error:
            done = ", ".join(written) or "nobody"
            raise ShardpostError(f"{error}; resolved before that: {done}") from None
        written += clients


def accept_ledger(
    installation: Installation, week: IsoWeek, who: str, why: str, now: datetime
) -> None:
    """Accept the current ledger of a week, and record the decision.

    LockedError beside a run; WeekClosedError for a week that is closed.
    """
    state = week_state.WeekState(installation, week)
    partitions = week_state.compacted_ledger(installation.kafka).partitions  # what to lock
    with state.locked(range(partitions)):
        state.require_open(now)
        ledger = week_state.compacted_ledger(installation.kafka)
        if ledger.partitions != partitions:
            raise _changed_meanwhile(week)
        decision = Decision(str(week).encode(), Kind.RESOLVED, who, now, why)
        headers = {"as": b"ledger accepted", "topic-id": ledger.topic_id.encode()}
        decisions_topic.record(
            installation.kafka,
            f"{ledger.name}/{week}/accept",
            decision,
            headers,
            may_write=partial(guards.require_owner, installation),
            done=f"the ledger of {week} is not accepted: run it again",
        )
        mark = LedgerMark(str(week), ledger.name, ledger.topic_id, ledger.low, now, who)
        week_state.add_mark(installation.tables, mark)


def pause(
    installation: Installation, week: IsoWeek, who: str, why: str, now: datetime
) -> PausedWeek:
    """Pause a week, and record the decision. Raises ShardpostError if it is already paused."""
    state = week_state.WeekState(installation, week)
    state.require_open(now)
    if state.paused:
        raise ShardpostError(f"nothing to pause: {state.paused.explanation}")
    return _change(installation, PausedWeek(str(week), True, now, who, why), Kind.PAUSED)


def resume(
    installation: Installation, week: IsoWeek, who: str, why: str, now: datetime
) -> PausedWeek:
    """Resume a week, and record the decision. Raises ShardpostError if it is not paused."""
    if week_state.WeekState(installation, week).paused is None:
        raise ShardpostError(f"{week} is not paused: nothing to resume")
    return _change(installation, PausedWeek(str(week), False, now, who, why), Kind.RESUMED)


def _change(installation: Installation, changed: PausedWeek, kind: Kind) -> PausedWeek:
    decisions_topic.record(
        installation.kafka,
        f"{installation.kafka.topic('weekly-emails')}/{changed.week}/pause",
        Decision(changed.week.encode(), kind, changed.who, changed.at, changed.why),
        {},
        may_write=partial(guards.require_owner, installation),
        done=f"{changed.week} was not changed: run it again",
    )

    def newest() -> PausedWeek:
        last = week_state.last_pause(installation.tables, IsoWeek.parse(changed.week))
        return replace(changed, at=week_state.later(changed.at, last.at if last else None))

    table_log.append(installation.tables, PAUSED_WEEKS, newest)
    return changed
