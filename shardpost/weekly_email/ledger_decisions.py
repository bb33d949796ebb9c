"""A person's decisions in the ledger: about unknown deliveries, and about records it lost.

As a run does it, each shard is locked and fenced first, and then read: a live run makes this
refuse, and one that was thought to be dead has no further effect.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from shardpost import ownership
from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.partitioning import by_partition
from shardpost.kafka.transactions import TransactionError
from shardpost.weekly_email import closed_weeks, ledger_guard
from shardpost.weekly_email.ledger_guard import LedgerGuard, compacted_ledger
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.resolution import Resolution
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import LedgerMark


@dataclass(frozen=True)
class _OpenShard:
    """A shard that is fenced, what its ledger says, and the clients that are decided about."""

    ledger: Ledger
    index: LedgerIndex
    clients: Sequence[str]


def resolve(installation: Installation, resolution: Resolution) -> dict[str, int]:
    """Write the decision; return {client: shard}.

    ShardpostError if a client is not unknown: then nothing is changed. LockedError beside a run.
    A client's ledger record and the record of the decision are one transaction, one per shard.
    """
    ownership.require(installation)
    week = resolution.week
    closed_weeks.require_open(installation, week, resolution.when)
    partitions = LedgerGuard(installation, week).require_ledger().partitions
    shards = by_partition(resolution.clients, partitions)
    with LedgerGuard(installation, week).locked(sorted(shards)), ExitStack() as opened:
        # Before anything is fenced: a wrong name does not stop a run on another machine.
        known = {
            n: LedgerIndex.fold(ShardLedger(installation.kafka, week, n).entries()) for n in shards
        }
        resolution.require_unknown(_states((known[n], clients) for n, clients in shards.items()))
        fenced = []
        for number, clients in shards.items():
            ledger = opened.enter_context(closing(Ledger(installation, week, number)))
            fenced.append(_OpenShard(ledger, ledger.open(), clients))
        resolution.require_unknown(_states((shard.index, shard.clients) for shard in fenced))
        _write(installation.kafka, resolution, fenced)
    return {client: shard for shard, clients in shards.items() for client in clients}


def _states(shards: Iterable[tuple[LedgerIndex, Sequence[str]]]) -> dict[str, DeliveryState | None]:
    return {
        client: state
        for index, clients in shards
        for client, state in zip(clients, index.states(clients), strict=True)
    }


def _write(kafka: Kafka, resolution: Resolution, shards: Sequence[_OpenShard]) -> None:
    headers = {"as": str(resolution.outcome).encode()}
    written: list[str] = []
    for shard in shards:
        entries = [resolution.entry(shard.index.unknown(name)) for name in shard.clients]
        decisions = [
            decisions_topic.written(kafka, resolution.decision(name), headers)
            for name in shard.clients
        ]
        try:
            shard.ledger.write(entries, decisions)
        except TransactionError as error:
            done = ", ".join(written) or "nobody"
            raise ShardpostError(f"{error}; resolved before that: {done}") from None
        written += shard.clients


def accept_ledger(
    installation: Installation, week: IsoWeek, who: str, why: str, now: datetime
) -> None:
    """Accept the ledger of a week as it is now, and record who did.

    LockedError beside a run; WeekClosedError for a week that is closed.
    """
    closed_weeks.require_open(installation, week, now)
    ledger = compacted_ledger(installation.kafka)
    with LedgerGuard(installation, week).locked(range(ledger.partitions)):
        decision = Decision(str(week).encode(), Kind.RESOLVED, who, now, why)
        headers = {"as": b"ledger accepted", "topic-id": ledger.topic_id.encode()}
        decisions_topic.record(
            installation.kafka,
            f"{ledger.name}/{week}/accept",
            decision,
            headers,
            may_write=partial(ownership.require, installation),
            done=f"the ledger of {week} is not accepted: run it again",
        )
        mark = LedgerMark(str(week), ledger.name, ledger.topic_id, ledger.low, now, who)
        ledger_guard.add_mark(installation.tables, mark)
