"""The ledger of the weekly e-mail in Kafka: one shard of one week, written ahead of the mail.

Opening a shard fences all older writers before it reads what they wrote. Every write is one
transaction; the mail server is contacted only after it returned.

A run suspended between the commit of `sending` and SMTP, while another run takes over its shard,
would send mails that the other run has handled. So the content of a mail is sent only shortly after
a commit; else `sending` is committed again, which a fenced run cannot do. The remaining risk is a
pause exactly between this check and the write to the socket.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.instants import instant_of
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import read_to_end, record_of
from shardpost.kafka.records import Outgoing, Record, TopicPartition
from shardpost.kafka.transactions import Transactions
from shardpost.topics import guards
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    LedgerId,
    WeekClosedError,
    closed_counts,
    closed_key,
    decode,
    is_of_week,
)
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.week import IsoWeek

SHARDS_READ_AT_ONCE = 8


@dataclass(frozen=True)
class ClosedShard:
    """The ledger's record of a shard of a closed week: when it was closed, and its counts then."""

    at: datetime
    counts: dict[DeliveryState, int]


class ShardLedger:
    """The ledger of one shard in one week, for reading without fencing.

    With `wait`, reading waits up to `kafka_timeout` for open transactions, even of another week.
    Reports need not wait: a mail is sent only after its transaction is committed.
    """

    def __init__(self, kafka: Kafka, week: IsoWeek, shard: int) -> None:
        self._kafka, self._week, self._shard = kafka, week, shard
        self._topic = kafka.topic("weekly-emails")
        self._partition = TopicPartition(self._topic, shard)

    def entries(self, *, wait: bool = False) -> Iterator[LedgerEntry]:
        """Yield the entries, oldest first."""
        records = self._read(committed=not wait)
        return (record for record in records if isinstance(record, LedgerEntry))

    def closed(self, *, wait: bool = False) -> ClosedShard | None:
        """Return the shard's record that closes the week, or None."""
        records = self._read(committed=not wait)
        return next((record for record in records if isinstance(record, ClosedShard)), None)

    def keys(self) -> list[bytes]:
        """Return the sorted keys of the week's records without tombstones.

        The keys are raw, even where `decode` maps one to another client. Call it only after
        fencing.
        """
        keys: set[bytes] = set()
        for message in read_to_end(self._kafka, self._partition):
            key = message.key()
            if key is None or not is_of_week(key, self._week):
                continue
            (keys.discard if message.value() is None else keys.add)(key)
        return sorted(keys)

    def rows_of(self, client: str, *, start: int | None = None) -> list[dict[str, Any]]:
        """Return the records of one client, oldest first, as `emails` shows them.

        From the offset `start` on if given. For an erased client: those under its hash and later.
        """
        own, erased = (id_.key(self._week) for id_ in (LedgerId(client), LedgerId.erased(client)))
        rows: list[dict[str, Any]] = []
        for message in read_to_end(self._kafka, self._partition, start=start, committed=True):
            if message.key() == erased:
                # Older records are waiting for compaction.
                rows = [row for row in rows if row["client"] != client]
            if message.key() in (own, erased):
                record = record_of(message)
                entry = entry_of(record, self._week)
                assert entry is not None  # noqa: S101 - its key was compared
                rows.append(
                    {
                        "week": str(self._week),
                        "client": entry.client,
                        "shard": record.partition,
                        "offset": record.offset,
                        "timestamp": instant_of(record.timestamp).isoformat(),
                        "state": str(entry.state or "open"),
                        "message_id": entry.message_id or None,
                        "reason": entry.reason,
                        "written": entry.written and entry.written.to_json(),
                    }
                )
        return rows

    def tombstone(self, key: bytes, reason: str) -> Outgoing:
        """Return the tombstone of a key."""
        return Outgoing(self._topic, key, None, [("reason", reason)], self._shard)

    def _read(self, *, committed: bool) -> Iterator[LedgerEntry | ClosedShard]:
        closed = closed_key(self._week)
        for message in read_to_end(self._kafka, self._partition, committed=committed):
            if message.key() == closed and message.value() is not None:
                at = instant_of(record_of(message).timestamp)
                yield ClosedShard(at, closed_counts(message.value()))
                continue
            if is_of_week(message.key() or b"", self._week):
                entry = entry_of(record_of(message), self._week)
                assert entry is not None  # noqa: S101 - its key is of the week
                yield entry


class Ledger(ShardLedger):
    """The ledger of one shard in one week, open for writing."""

    def __init__(self, installation: Installation, week: IsoWeek, shard: int) -> None:
        super().__init__(installation.kafka, week, shard)
        self._transactions = Transactions(
            installation.kafka,
            f"{self._topic}/{week}/{shard}",
            may_write=partial(guards.require_owner, installation),
            fenced=f"fenced: a newer run has taken over shard {shard} of {week}; this run stops"
            " and sends no more mails",
            failed=f"{self._topic}[{shard}]: cannot write to the ledger ({{reason}}); sending"
            " stopped, and the mails in flight become `unknown`: run again when Kafka is"
            " available",
        )

    def open(self) -> LedgerIndex:
        """Fence all older writers, then read to the end of what they wrote.

        Raises WeekClosedError if the week is closed.
        """
        self.fence()
        return LedgerIndex.fold(self._open_entries())

    def fence(self) -> None:
        """Fence all older writers; a caller that does only this must not mail."""
        self._transactions.open()

    def _open_entries(self) -> Iterator[LedgerEntry]:
        for record in self._read(committed=False):
            if isinstance(record, ClosedShard):
                raise WeekClosedError(
                    f"shard {self._shard}: {self._week} was closed on {record.at:%Y-%m-%d} and"
                    " can never be mailed again"
                )
            yield record

    def write(self, entries: Sequence[LedgerEntry], decisions: Sequence[Outgoing] = ()) -> None:
        """Write entries in one transaction; Raises FencedError if a newer run has the shard.

        `decisions` are records of a person's decision for the same transaction. After an error
        nothing more can be written.
        """
        self._transactions.write([*map(self._record, entries), *decisions])

    def close_week(self, value: bytes) -> None:
        """Write the record that closes the week in this shard."""
        closed = Outgoing(self._topic, closed_key(self._week), value, [], self._shard)
        self._transactions.write([closed])

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._transactions.close()

    def _record(self, entry: LedgerEntry) -> Outgoing:
        key = entry.id.key(self._week)
        if entry.state is None:
            return self.tombstone(key, entry.reason or "")
        return Outgoing(self._topic, key, entry.value(), [], self._shard)


def entry_of(record: Record, week: object) -> LedgerEntry | None:
    """Return the entry of a record, or None if it belongs to another week."""
    entry = decode(record.key, record.value, week)
    if entry is None or entry.state is not None:
        return entry
    said = dict(record.headers).get("reason")  # of a tombstone
    return replace(entry, reason=said.decode(errors="replace") if isinstance(said, bytes) else None)


FRESH_SECONDS = 2.0  # the greatest age of the last commit when content is sent
MOST_COMMITS = 5


class StaleLedgerError(ShardpostError):
    """Commits of the ledger take too long to prove that this run still has the shard."""


class FreshCommit:
    """The commit of `sending` for one group of mails; several threads may ask for it."""

    def __init__(
        self, ledger: Ledger, entries: Sequence[LedgerEntry], clock: Callable[[], float]
    ) -> None:
        self._ledger, self._entries, self._clock = ledger, entries, clock
        self._lock = Lock()
        # Taken before the commit, since a pause may come right after it.
        self._begun = clock()
        self._failure: Exception | None = None

    def require(self) -> None:
        """Return if the last commit is fresh or could be renewed.

        Raises FencedError if another run has the shard, StaleLedgerError if no commit is quick
        enough. Later callers get the same error: none of them may send.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            try:
                self._require()
            except Exception as error:
                self._failure = error
                raise

    def _require(self) -> None:
        for _ in range(MOST_COMMITS):
            begun = self._clock()
            if begun - self._begun <= FRESH_SECONDS:
                return
            self._ledger.write(self._entries)
            self._begun = begun
        if self._clock() - self._begun > FRESH_SECONDS:
            raise StaleLedgerError(
                f"no commit to the ledger within {FRESH_SECONDS:g} s: check whether Kafka is"
                " overloaded"
            )
