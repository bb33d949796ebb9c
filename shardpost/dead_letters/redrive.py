"""What a person decided about parked letters, carried out: redriven, edited or discarded.

As a sweep, each partition of the parking lot is fenced first, then read, then written. One
transaction holds the retry, the tombstone of the parked letter, and the record of the decision.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from shardpost.dead_letters.batches import batches, itself
from shardpost.dead_letters.model import transitions
from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.letters import Letter, attempt_of
from shardpost.dead_letters.model.redrive_request import RedriveRequest, error_of, origin_of
from shardpost.dead_letters.model.transitions import LetterState, Routes
from shardpost.dead_letters.parked_again import PARKED_AGAIN, ParkedAgainError, ParkedSince
from shardpost.dead_letters.reread import reread
from shardpost.dead_letters.temporary_database import on_disk, scratch
from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, Record
from shardpost.kafka.transactions import TooLargeError, Transactions
from shardpost.settings import Settings
from shardpost.topics.declared import PASSED_ON_BYTES

REFUSED_SHOWN = 100

# From a parked letter to the records by which it is dealt with.
Dealing = Callable[[Record], Sequence[Outgoing]]


@dataclass
class RedrivePlan:
    """What is chosen, by (origin, fingerprint): how many letters and one of them; what is refused.

    Of what is chosen, at most `canary` letters move.
    """

    canary: int | None = None
    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: dict[tuple[str, str], str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    refused_count: int = 0

    @property
    def count(self) -> int:
        """How many letters would move."""
        chosen = self.groups.total()
        return chosen if self.canary is None else min(chosen, self.canary)

    def refuse(self, key: str, reason: str) -> None:
        """Count a letter that does not move; the first of them are kept with their reasons."""
        self.refused_count += 1
        if len(self.refused) < REFUSED_SHOWN:
            self.refused[key] = reason


@dataclass(frozen=True)
class RedriveLimits:
    """At most `canary` letters, and `rate` of them a second."""

    canary: int | None = None
    rate: float | None = None


def plan(
    settings: Settings, routes: Routes, verdict: RedriveRequest, limits: RedriveLimits
) -> RedrivePlan:
    """Return what the verdict means as things stand; an id that is not parked is refused."""
    found = RedrivePlan(limits.canary)
    missing = set(verdict.choice.ids)
    for partition in range(routes.partitions[routes.parking_lot]):
        for letter in _meant(settings, routes, verdict, partition):
            missing.discard(letter.id)
            if letter.refusal is not None:
                found.refuse(letter.id, letter.refusal)
                continue
            group = letter.origin, letter.error
            found.groups[group] += 1
            found.samples.setdefault(group, letter.id)
    for key in sorted(missing):
        life = f"`shardpost letters show {key}` tells its life, if it has one"
        found.refuse(key, f"expected a parked letter, found none; {life}")
    return found


@dataclass
class RedriveResult:
    """How many letters have moved so far, and which did not, with the reasons."""

    count: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def carry_out(
    settings: Settings,
    routes: Routes,
    verdict: RedriveRequest,
    limits: RedriveLimits,
    done: RedriveResult,
) -> None:
    """Deal with the letters that are meant; `done` is kept up to date."""
    for partition in range(routes.partitions[routes.parking_lot]):
        left = None if limits.canary is None else limits.canary - done.count
        if left == 0:
            break
        _partition(settings, routes, verdict, RedriveLimits(left, limits.rate), partition, done)


def _partition(
    settings: Settings,
    routes: Routes,
    verdict: RedriveRequest,
    limits: RedriveLimits,
    partition: int,
    done: RedriveResult,
) -> None:
    where = f"{routes.parking_lot}[{partition}]"
    writer = Transactions(
        settings,
        f"{routes.parking_lot}/redrive/{partition}",
        fenced=f"fenced: somebody else redrives or discards {where} now; this one stops",
        failed=f"{where}: cannot be written ({{reason}}); what is not committed has not moved:"
        " do it again when Kafka is well",
        **{"message.max.bytes": PASSED_ON_BYTES},
    )
    with closing(writer):
        writer.open()
        tail = ParkedSince(settings, routes.parking_lot, partition)
        meant = _meant(settings, routes, verdict, partition)
        first = islice((one for one in meant if one.refusal is None), limits.canary)
        found = reread(settings, routes.parking_lot, partition, first, attrgetter("offset"))
        letters = (record for record, _ in found)
        for batch in batches(letters, _batch_size(settings, limits), itself):
            _move(writer, tail, partial(_dealt, settings, routes, verdict), batch, done)
            if limits.rate is not None:
                time.sleep(len(batch) / limits.rate)


def _move(
    writer: Transactions,
    tail: ParkedSince,
    dealt: Dealing,
    batch: Sequence[Record],
    done: RedriveResult,
) -> None:
    """Write one batch; a letter that was parked anew, or is too large, is left and refused."""
    newest = [record for record in batch if not tail.has_newer(record)]
    done.refused |= {name_of(r.key): PARKED_AGAIN for r in batch if tail.has_newer(r)}
    try:
        records = [out for record in newest for out in dealt(record)]
        writer.write(records, check=partial(tail.require_newest, newest))
    except ParkedAgainError:
        _move(writer, tail, dealt, newest, done)
    except TooLargeError:
        if len(newest) == 1:
            done.refused[name_of(newest[0].key)] = "too large for its retry topic"
            return
        for record in newest:
            _move(writer, tail, dealt, [record], done)
    else:
        done.count += len(newest)


def _batch_size(settings: Settings, limits: RedriveLimits) -> int:
    if limits.rate is None:
        return settings.retry_batch
    return max(1, min(settings.retry_batch, int(limits.rate)))


class _Meant(NamedTuple):
    """A parked letter that is chosen; `refusal` is why it does not move."""

    id: str
    origin: str
    error: str
    refusal: str | None
    offset: int


# Of a record that is none of those meant, all but id and offset is null.
_PARKED = "parked (id TEXT, origin TEXT, error TEXT, refusal TEXT, offset INTEGER PRIMARY KEY)"
# Where there is one max, SQLite takes the other columns from the row that has it.
_LAST = """
SELECT id, origin, error, refusal, max(offset) AS offset FROM parked
GROUP BY id HAVING origin NOT NULL ORDER BY offset"""


def _meant(
    settings: Settings, routes: Routes, verdict: RedriveRequest, partition: int
) -> Iterator[_Meant]:
    """Yield the letters meant, in the order of the parking lot, when it is read to its end."""
    messages = read_to_end(settings, TopicPartition(routes.parking_lot, partition))
    rows = (_row(record_of(message), settings, verdict) for message in messages)
    where = f"{routes.parking_lot}[{partition}]"
    with on_disk(where), closing(scratch(_PARKED)) as disk:
        disk.executemany("INSERT INTO parked VALUES (?, ?, ?, ?, ?)", rows)
        yield from map(_Meant._make, disk.execute(_LAST))


def _row(
    record: Record, settings: Settings, verdict: RedriveRequest
) -> tuple[str | int | None, ...]:
    key = name_of(record.key)
    if record.value is None or not verdict.choice.takes(record):
        return key, None, None, None, record.offset
    headers = dict(record.headers)
    refusal = verdict.refusal(record, settings.retry_rules)
    return key, origin_of(headers), error_of(headers), refusal, record.offset


def _dealt(
    settings: Settings, routes: Routes, verdict: RedriveRequest, record: Record
) -> Sequence[Outgoing]:
    decision = Decision(record.key or b"", verdict.kind, verdict.who, verdict.now, verdict.why)
    decided = decisions_topic.written(settings, decision, {})
    attempt = attempt_of(record.headers, even_alone=True)
    letter = transitions.read_parked(record)
    if not verdict.is_redrive or not isinstance(letter, Letter):
        gone = transitions.tombstone(record, attempt, LetterState.DISCARDED, verdict.now)
        return [gone, decided]
    sent = record
    if verdict.value is not None:
        sent, letter = record._replace(value=verdict.value), letter._replace(is_null=False)
    topic = settings.retry_rules.retry_topic(letter.origin_topic)
    retry = transitions.retry(letter, sent, topic, routes)
    return [
        retry,
        transitions.tombstone(record, attempt, LetterState.REDRIVEN, verdict.now),
        decided,
    ]
