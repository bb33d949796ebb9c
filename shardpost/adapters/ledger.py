"""The ledger of the weekly e-mail in Kafka: one shard of one week, written ahead of the mail.

Whoever opens a shard fences everybody who had it before, and only then reads what they did. Every
write is one transaction; nothing may be said to the mail server before it returned.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from shardpost.adapters.kafka import read_to_end, transactional_producer, unreachable
from shardpost.domain.book import Book
from shardpost.domain.ledger import Entry, decode
from shardpost.domain.topics import WEEKLY_EMAILS
from shardpost.domain.weeks import IsoWeek
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)


class LedgerError(ShardpostError):
    """The ledger could not be written: no mail may go out on it."""


class FencedError(LedgerError):
    """A newer run has taken the shard over."""


class Ledger:
    """The ledger of one shard in one week, open for writing."""

    def __init__(self, settings: Settings, week: IsoWeek, shard: int) -> None:
        self._settings, self._week, self._shard = settings, week, shard
        self._topic = settings.topic(WEEKLY_EMAILS.name)
        # A transaction is open for moments; one left by a dead run ends well within our patience.
        patience = {"transaction.timeout.ms": max(1000, int(settings.kafka_timeout * 1000 / 2))}
        self._producer = transactional_producer(
            settings, f"{self._topic}/{week}/{shard}", **patience
        )
        self._broken: LedgerError | None = None

    def open(self) -> Book:
        """Fence all older writers, then read what they left, up to the end as of then."""
        try:
            self._producer.init_transactions(self._settings.kafka_timeout)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise self._fenced() from None
            raise unreachable(self._settings, error) from None
        return Book.fold(_entries(self._settings, self._week, self._shard, committed=False))

    def write(self, entries: Sequence[Entry]) -> None:
        """Write entries in one transaction; FencedError if a newer run has the shard.

        After an error nothing can be written any more.
        """
        if self._broken is not None:
            raise self._broken
        deadline = time.monotonic() + self._settings.kafka_timeout
        while entries and not self._written(entries, deadline):
            if time.monotonic() > deadline:
                raise self._failed("no transaction went through in time")

    def close(self) -> None:
        """Let go of the connection to Kafka; a producer that broke can only be left to itself."""
        if self._broken is None:
            self._producer.close()

    def _written(self, entries: Sequence[Entry], deadline: float) -> bool:
        """Try one transaction; False if it was aborted and may be tried again."""
        try:
            self._producer.begin_transaction()
            for entry in entries:
                self._produce(entry)
            self._commit(deadline)
        except KafkaException as error:
            found = error.args[0]
            if found.code() in _FENCED:
                raise self._fenced() from None
            if not found.txn_requires_abort():
                raise self._failed(found.str()) from None
            self._abort()
            return False
        return True

    def _produce(self, entry: Entry) -> None:
        headers: dict[str, str | bytes | None] = {}
        if entry.state is None:
            headers["reason"] = entry.reason or ""
        self._producer.produce(
            self._topic,
            key=entry.key(self._week),
            value=entry.value(),
            partition=self._shard,
            headers=headers,
        )

    def _commit(self, deadline: float) -> None:
        while True:
            try:
                self._producer.commit_transaction(self._settings.kafka_timeout)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(self._settings.kafka_timeout)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise self._fenced() from None
            raise self._failed(error.args[0].str()) from None

    def _fenced(self) -> LedgerError:
        self._broken = FencedError(
            f"fenced: a newer run has taken over shard {self._shard} of {self._week};"
            " this one stops and mails nobody any more"
        )
        return self._broken

    def _failed(self, reason: str) -> LedgerError:
        self._broken = LedgerError(
            f"{self._topic}[{self._shard}]: the ledger cannot be written ({reason}); nothing more"
            " is mailed, and what was being sent becomes `unknown`: run again when Kafka is well"
        )
        return self._broken


def read(settings: Settings, week: IsoWeek, shard: int) -> Iterator[Entry]:
    """Yield the shard's entries of that week, oldest first, without waiting for open transactions.

    For looking only: what was not committed, no mail server has heard of.
    """
    return _entries(settings, week, shard, committed=True)


def _entries(settings: Settings, week: IsoWeek, shard: int, *, committed: bool) -> Iterator[Entry]:
    topic = settings.topic(WEEKLY_EMAILS.name)
    for message in read_to_end(settings, topic, shard, committed=committed):
        entry = decode(message.key(), message.value(), week)
        if entry is not None:
            yield entry


def rows_of(settings: Settings, week: IsoWeek, shard: int, client: str) -> list[dict[str, Any]]:
    """Return the ledger's records of one client and week, oldest first, as `emails` shows them."""
    key = Entry(client, None).key(week)
    return [
        _row(message, week)
        for message in read_to_end(
            settings, settings.topic(WEEKLY_EMAILS.name), shard, committed=True
        )
        if message.key() == key
    ]


def _row(message: Message, week: IsoWeek) -> dict[str, Any]:
    entry = decode(message.key(), message.value(), week)
    assert entry is not None  # noqa: S101 - its key was compared
    headers = dict(message.headers() or [])
    reason = headers.get("reason")
    at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return {
        "week": str(week),
        "client": entry.client,
        "shard": message.partition(),
        "offset": message.offset(),
        "timestamp": at.isoformat(),
        "state": str(entry.state or "open"),
        "message_id": entry.message_id or None,
        "reason": entry.reason
        or (reason.decode(errors="replace") if isinstance(reason, bytes) else None),
    }
