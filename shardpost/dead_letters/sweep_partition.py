"""The sweep of one partition: fence, then read to the end, then publish what is due, in batches.

The order matters. Fencing first ends what an older sweep left open and keeps it from writing more;
so what is read then is all that was ever done, and nothing is sent twice.
"""

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from shardpost.dead_letters.batches import BATCH_BYTES, batches, size_of
from shardpost.dead_letters.model import transitions
from shardpost.dead_letters.model.key_fold import STAYING, Outcome
from shardpost.dead_letters.model.letters import Letter, parse
from shardpost.dead_letters.model.retry_policy import Park, decide
from shardpost.dead_letters.model.transitions import LetterState, Routes
from shardpost.dead_letters.origin_order import Found, in_origin_order
from shardpost.dead_letters.reread import reread
from shardpost.dead_letters.sweep_index import Chosen, SweepIndex
from shardpost.dead_letters.temporary_database import on_disk
from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import headers_of, record_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Headers, Outgoing, Record
from shardpost.kafka.transactions import TooLargeError, Transactions
from shardpost.retry_settings import RetryRules
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.topics.declared import PASSED_ON_BYTES

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger(__name__)

# Objects that Python makes before it looks for cycles among them: some twenty batches.
COLLECTED = 500_000
# Why a letter is parked that is due, if its retry topic does not take it.
TOO_LARGE = "too large for its retry topic, with its original key"


@dataclass(frozen=True)
class Sweep:
    """What the partitions of one sweep share: its time, and the fingerprints that are held."""

    settings: Settings
    routes: Routes
    now: datetime
    held: frozenset[str] = frozenset()

    @cached_property
    def rules(self) -> RetryRules:
        """When letters of which origin are retried."""
        return self.settings.retry_rules

    def index(self) -> SweepIndex:
        """Return an empty index of a partition."""
        is_guarded = self.settings.retry_flood is not None
        return SweepIndex(self.rules, self.now, self.held, is_guarded)

    def where(self, partition: int) -> str:
        """Return what a partition of the store is called."""
        return f"{self.routes.store}[{partition}]"


@dataclass(frozen=True)
class PartitionReport:
    """What became of the letters of a partition; `error` is what stopped it."""

    partition: int
    retried: int = 0
    parked: int = 0
    dropped: int = 0
    waiting: int = 0
    held: int = 0
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the report in the form of `letters sweep --json`."""
        return asdict(self)


def sweep_partition(sweep: Sweep, partition: int) -> PartitionReport:
    """Sweep one partition; never raises: what stopped it is in the report."""
    done: Counter[Outcome] = Counter()
    try:
        with _rarely_collected(), on_disk(sweep.where(partition)):
            counts = _sweep(sweep, partition, done)
    except ShardpostError as error:
        return _report(partition, done, Counter(), str(error))
    except Exception as error:
        log.exception("partition %d", partition)
        return _report(partition, done, Counter(), f"unexpected {type(error).__name__}: {error}")
    return _report(partition, done, counts)


def due_by_error(sweep: Sweep, partition: int) -> Counter[str]:
    """Return how many letters of each fingerprint are due in a partition; changes nothing."""
    where = on_disk(sweep.where(partition))
    with _rarely_collected(), where, closing(sweep.index()) as index:
        for message in read_to_end(sweep.settings, TopicPartition(sweep.routes.store, partition)):
            _add(index, message, headers_of(message))
        return index.due_by_error()


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Let Python seldom look for cycles: letters make none, and looking is a quarter of a sweep."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _report(
    partition: int, done: Counter[Outcome], there: Counter[Outcome], error: str | None = None
) -> PartitionReport:
    waiting = there[Outcome.WAIT] + there[Outcome.RESTORE]
    return PartitionReport(
        partition,
        retried=done[Outcome.RETRY],
        parked=done[Outcome.PARK],
        dropped=done[Outcome.DROP],
        waiting=waiting,
        held=there[Outcome.HOLD] + done[Outcome.HOLD],
        error=error,
    )


def _sweep(sweep: Sweep, partition: int, done: Counter[Outcome]) -> Counter[Outcome]:
    step("fence")
    with closing(_writer(sweep, partition)) as writer, closing(sweep.index()) as index:
        writer.open()
        step("read")
        kept = _read(sweep, partition, index)
        counts = index.counts()
        if counts.keys() - STAYING:
            step("publish")
            letters = _letters(sweep, partition, index, kept)
            _publish(sweep, writer, in_origin_order(letters, index.late()), done)
    log.info("%s: %s", sweep.where(partition), _in_words(counts))
    return counts


def _writer(sweep: Sweep, partition: int) -> Transactions:
    where = sweep.where(partition)
    return Transactions(
        sweep.settings,
        f"{sweep.routes.store}/sweep/{partition}",
        fenced=f"fenced: a newer sweep has taken over {where}; this one stops and sends nothing"
        " more",
        failed=f"{where}: the sweep cannot be written ({{reason}}); what is not"
        " committed was not sent: sweep again when Kafka is well",
        **{"message.max.bytes": PASSED_ON_BYTES},
    )


def _read(sweep: Sweep, partition: int, index: SweepIndex) -> dict[int, Record] | None:
    """Fill the index; return what is due, by offset, where it is no more than one batch."""
    kept: dict[int, Record] | None = {}
    size = 0
    for message in read_to_end(sweep.settings, TopicPartition(sweep.routes.store, partition)):
        headers = headers_of(message)
        fate = _add(index, message, headers)
        if kept is not None and fate not in STAYING:
            record = record_of(message, headers)
            kept[record.offset] = record
            size += size_of(record)
            if len(kept) > sweep.settings.retry_batch or size > BATCH_BYTES:
                kept = None
    return kept


def _add(index: SweepIndex, message: "Message", headers: Headers) -> Outcome:
    is_letter = message.value() is not None
    at = message.timestamp()[1]
    return index.add(message.offset() or 0, message.key(), headers, at, is_letter=is_letter)


def _letters(
    sweep: Sweep, partition: int, index: SweepIndex, kept: dict[int, Record] | None
) -> Iterator[Found]:
    """Return the chosen letters in the order of the store: as kept, or read once more."""
    if kept is not None and all(one.offset in kept for one in index.chosen()):
        return ((kept[one.offset], one) for one in index.chosen())
    where = sweep.routes.store, partition
    return reread(sweep.settings, *where, index.chosen(), attrgetter("offset"))


def _publish(
    sweep: Sweep, writer: Transactions, letters: Iterable[Found], done: Counter[Outcome]
) -> None:
    for batch in batches(letters, sweep.settings.retry_batch, itemgetter(0)):
        records = [out for record, chosen in batch for out in dealt(sweep, record, chosen)]
        try:
            writer.write(records)
        except TooLargeError:
            done.update(_publish_one(sweep, writer, *one) for one in batch)
        else:
            done.update(chosen.fate for _, chosen in batch)
        step("committed")


def _publish_one(sweep: Sweep, writer: Transactions, record: Record, chosen: Chosen) -> Outcome:
    """Write one letter of a batch of which some record is too large; return what became of it.

    What cannot be retried is parked; what cannot be parked either is left where it is.
    """
    try:
        writer.write(dealt(sweep, record, chosen))
    except TooLargeError:
        if chosen.fate is not Outcome.RETRY:
            place, size = f"{record.topic}[{record.partition}]@{record.offset}", _size(record)
            log.warning("held: %s: too large for the parking lot: %d bytes", place, size)
            return Outcome.HOLD
    else:
        return chosen.fate
    return _publish_one(sweep, writer, record, chosen._replace(fate=Outcome.PARK))


def dealt(sweep: Sweep, record: Record, chosen: Chosen) -> Sequence[Outgoing]:
    """Return the records by which a letter is dealt with."""
    routes, now, fate = sweep.routes, sweep.now, chosen.fate
    if fate is Outcome.DROP:
        return [transitions.tombstone(record, chosen.dealt, LetterState.DROPPED, now)]
    if fate is Outcome.RESTORE:
        return [transitions.restored(record)]
    letter = parse(record.key, record.headers, record.timestamp)
    if fate is Outcome.RETRY and isinstance(letter, Letter):
        topic = sweep.rules.retry_topic(letter.origin_topic)
        again = transitions.retry(letter, record, topic, routes)
        return [again, transitions.tombstone(record, letter.attempt, LetterState.RETRIED, now)]
    attempt = letter.attempt if isinstance(letter, Letter) else None
    decided = decide(letter, now, sweep.rules)
    reason = decided.reason if isinstance(decided, Park) else TOO_LARGE
    parked = transitions.parked(letter, record, reason, routes)
    return [parked, transitions.tombstone(record, attempt, LetterState.PARKED, now)]


def _size(record: Record) -> int:
    return len(record.value or b"")


def _in_words(counts: Counter[Outcome]) -> str:
    found = (f"{counts[fate]} {fate.name.lower()}" for fate in Outcome if counts[fate])
    return ", ".join(found) or "nothing there"
