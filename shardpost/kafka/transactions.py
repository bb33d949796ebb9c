"""Writing records: in Kafka transactions, or one record alone.

What a fenced writer left can be read afterwards; it has no further effect.
"""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from shardpost.errors import ShardpostError
from shardpost.kafka.clients import connect
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError, Patience
from shardpost.kafka.records import Coordinates, Outgoing, TopicPartition
from shardpost.waiting import answers

_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)
# What librdkafka says of a call that comes after the error: the error itself is to be asked for.
_AFTER_AN_ERROR = frozenset({KafkaError._STATE, KafkaError._FATAL})
FULL_QUEUE_SECONDS = 0.05
# A commit first waits for all records, also where one was refused and those behind it are stuck:
# only a new call says so. Longer, and the broker ends the transaction, as if it had been fenced.
# Between two calls it is seen whether Kafka is gone.
CALL_SECONDS = 5.0
# After the time that the client itself was given.
LATE_SECONDS = 2.0


class TransactionError(ShardpostError):
    """A transaction could not be committed, and nothing can be written any more."""


class FencedError(TransactionError):
    """A newer writer has the transactional id now."""


class LostAnswerError(TransactionError):
    """Kafka's client will never say whether something was done: a new writer has to look."""


class TooLargeError(TransactionError):
    """A record is larger than its topic accepts; smaller ones can still be written."""


class Consumed(NamedTuple):
    """An offset, and metadata, committed with a transaction for the group of that consumer."""

    reader: Consumer
    partition: TopicPartition
    offset: int
    metadata: str | None = None


# Asked before a writer fences others: ShardpostError if this installation may not write.
MayWrite = Callable[[], object]


def anyone() -> None:
    """Allow every installation to write, even if it does not own the topics."""


class Transactions:
    """A writer of transactions: of whom `may_write` lets, which is asked when it is opened.

    Its errors are the two texts; `{reason}` in `failed` becomes what Kafka said.
    """

    def __init__(
        self,
        kafka: Kafka,
        transactional_id: str,
        *,
        may_write: MayWrite,
        fenced: str,
        failed: str,
        **config: Any,
    ) -> None:
        self._kafka, self._may_write = kafka, may_write
        self.say(fenced=fenced, failed=failed)
        # A transaction is open for moments; one left by a dead run times out before a reader does,
        # and one whose broker went silent goes on at the next leader before it does itself.
        milliseconds = max(3000, int(kafka.timeout * 1000 / 2))
        self._transaction_seconds = milliseconds / 1000
        lost = self._lost = Event()
        defaults: dict[str, Any] = {
            "transaction.timeout.ms": milliseconds,
            "socket.timeout.ms": milliseconds // 3,
            "error_cb": lambda _: lost.set(),
        }
        made = defaults | config
        # librdkafka refuses a socket that waits longer than a transaction may last.
        made["socket.timeout.ms"] = min(made["socket.timeout.ms"], made["transaction.timeout.ms"])
        self._producer = kafka.transactional_producer(transactional_id, **made)
        self._broken: TransactionError | None = None

    def say(self, *, fenced: str, failed: str) -> None:
        """Use these texts for later errors."""
        self._fenced_text, self._failed_text = fenced, failed

    @property
    def is_broken(self) -> bool:
        """Whether nothing can be written any more."""
        return self._broken is not None

    def has_lost_a_broker(self) -> bool:
        """Tell whether a connection was lost since it was opened.

        Of a broker that restarts meanwhile, librdkafka 2.16 may then wait for an answer for ever.
        """
        self._producer.poll(0)  # it says so then
        return self._lost.is_set()

    def open(self) -> None:
        """Fence all older writers of this id, and abort what they left open."""
        try:
            self._may_write()
            self._open()
        except KafkaUnreachableError as failure:
            self._broken = TransactionError(str(failure))
            raise

    def _open(self) -> None:
        self._kafka.require_listening()
        patience = Patience(self._kafka)
        try:
            self._patiently(partial(connect, self._producer), patience)
            self._patiently(self._producer.init_transactions, patience)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise self._fenced() from None
            raise self._kafka.unreachable(error) from None
        self._producer.poll(0)
        self._lost.clear()

    def write(
        self,
        records: Iterable[Outgoing],
        consumed: Consumed | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Write records, and offsets, in one transaction; FencedError if a newer writer is there.

        The records are iterated again when a transaction was aborted and is retried, so they must
        not be an iterator. `check` is called when all have their offsets, before they are
        committed; if it raises ShardpostError, they are aborted. Nothing can be written after an
        error, except after one that `check` raised, and TooLargeError.
        """
        if self._broken is not None:
            raise self._broken
        patience = Patience(self._kafka)
        while (records or consumed) and (why := self._tried(records, consumed, check, patience)):
            if patience.is_over:
                raise self._failed(why)

    def close(self) -> None:
        """Close the connection to Kafka; a producer that failed is left as it is."""
        if self._broken is None:
            self._producer.close()

    def _tried(
        self,
        records: Iterable[Outgoing],
        consumed: Consumed | None,
        check: Callable[[], None] | None,
        patience: Patience,
    ) -> str | None:
        """Try one transaction; return why it was aborted if it may be retried."""
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
            if consumed is not None:
                self._send_offset(consumed)
            if check is not None:
                self._check(check, patience)
            self._patiently(self._producer.commit_transaction, patience)
        except KafkaException as error:
            found = self._cause(error.args[0])
            if found.code() in _FENCED:
                raise self._fenced() from None
            if found.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self._abort()
                raise TooLargeError(self._failed_text.format(reason=found.str())) from None
            if not self._may_pass(found, patience):
                raise self._failed(found.str()) from None
            self._abort()
            return found.str()
        return None

    def _may_pass(self, found: KafkaError, patience: Patience) -> bool:
        """Tell whether a transaction may go through once it is aborted and tried again."""
        if found.code() == KafkaError._UNKNOWN_PARTITION:  # to the client, until it asks again
            self._patiently(lambda s: self._producer.list_topics(timeout=s), patience)
            return True
        return found.txn_requires_abort()

    def _send_offset(self, consumed: Consumed) -> None:
        """Add the offset to the transaction; LostAnswerError if there is no answer in time.

        librdkafka 2.16 waits for ever, whatever it is told, if the broker that coordinates the
        group leaves the cluster just then (its issues 5456 and 5511).
        """
        metadata = () if consumed.metadata is None else (consumed.metadata,)
        arguments = (
            [confluent_kafka.TopicPartition(*consumed.partition, consumed.offset, *metadata)],
            consumed.reader.consumer_group_metadata(),
            self._transaction_seconds,
        )
        send = partial(self._producer.send_offsets_to_transaction, *arguments)
        for _, error in answers(
            [partial(_error_of, send)], self._transaction_seconds + LATE_SECONDS
        ):
            if error is not None:
                raise error
            return
        text = self._failed_text.format(reason="Kafka did not answer a commit of an offset")
        self._broken = LostAnswerError(text)
        raise self._broken

    def _cause(self, found: KafkaError) -> KafkaError:
        """Return the error that stopped the transaction, which a later call may have met."""
        if found.code() in _AFTER_AN_ERROR:
            try:
                self._producer.begin_transaction()  # raises it again, and commits nothing
            except KafkaException as error:
                return error.args[0]  # type: ignore[no-any-return]
        return found

    def _produce(self, record: Outgoing) -> None:
        while True:
            try:
                self._producer.produce(**record.arguments())
            except BufferError:
                self._producer.poll(FULL_QUEUE_SECONDS)
            else:
                return

    def _check(self, check: Callable[[], None], patience: Patience) -> None:
        """Wait until what was written has its offsets, then call `check`; abort if it raises."""
        while self._producer.flush(self._call_seconds) and not patience.is_over:
            pass
        try:
            check()
        except ShardpostError:
            self._abort()
            raise

    def _patiently(self, call: Callable[[float], object], patience: Patience) -> None:
        """Make a call that takes a timeout, and resumes when it is repeated."""
        while True:
            try:
                call(self._call_seconds)
            except KafkaException as error:
                found = error.args[0]
                # A broker that is silent may have been asked: the next time it may be another one.
                passes = found.retriable() or found.code() == KafkaError._TIMED_OUT
                if not passes or patience.is_over:
                    raise
            else:
                return

    @property
    def _call_seconds(self) -> float:
        return min(CALL_SECONDS, self._kafka.timeout)

    def _abort(self) -> None:
        try:
            self._patiently(self._producer.abort_transaction, Patience(self._kafka))
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise self._fenced() from None
            raise self._failed(error.args[0].str()) from None

    def _fenced(self) -> TransactionError:
        self._broken = FencedError(self._fenced_text)
        return self._broken

    def _failed(self, reason: str) -> TransactionError:
        self._broken = TransactionError(self._failed_text.format(reason=reason))
        return self._broken


def _error_of(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None


def produce(kafka: Kafka, record: Outgoing) -> Coordinates:
    """Write one record and return its coordinates; ShardpostError if Kafka does not accept it.

    For what anyone may write: no owner of the topics is asked for.
    """
    delivered: list[tuple[KafkaError | None, Message]] = []
    client = kafka.producer()
    client.produce(
        **record.arguments(), on_delivery=lambda error, message: delivered.append((error, message))
    )
    client.flush(kafka.timeout)
    reason: object = f"no answer within {kafka.timeout:g} s"
    for error, message in delivered:
        if error is None:
            return Coordinates(record.topic, message.partition() or 0, message.offset() or 0)
        reason = error
    raise ShardpostError(f"{record.topic}: Kafka did not accept the record: {reason}")
