"""Random streams of records, as they come to real topics, and the fold of the same records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from confluent_kafka.cimpl import NewPartitions
from hypothesis import strategies

from shardpost.kafka import offsets
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from tests.support.compacting import agree, run, starter
from tests.support.installed import installed
from tests.support.reference import (
    Fold,
    Raw,
    Retry,
    closed,
    exchange,
    position,
    produce,
    produce_retry,
)

KEYS = strategies.sampled_from(["1", "2", "03", "3", "10", "x", "größe"])
CLIENTS = strategies.sampled_from(["client1", "client2", "client3"])
EXCHANGES = strategies.sampled_from(["NASDAQ", "LON", "NEW"])
AMOUNTS = strategies.sampled_from([0, -1, 2.5])
TIMES = strategies.integers(1_700_000_000_000, 1_790_000_000_000)
BAD = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b'"text"',
    b'{"Client":5}',
    b"{} {}",
    b'{"Client":"c"}',
]


@dataclass(frozen=True)
class Again:
    """A retry of the record so many before it; with a value of its own."""

    back: int
    value: bytes | None


@dataclass(frozen=True)
class Growth:
    """Twice as many partitions of `positions`, from the next record on; once between two runs.

    Of more, a run cannot tell in which order a key had its partitions (decision 0033).
    """


MAX_PARTITIONS = 16

VALUES = strategies.one_of(
    strategies.builds(lambda c, e: position("", c, e).value, CLIENTS, EXCHANGES),
    strategies.sampled_from([None, b'{"Country":"US"}', *BAD]),
)
RECORDS = strategies.one_of(
    strategies.builds(Again, strategies.integers(0, 9), VALUES),
    strategies.builds(position, KEYS, CLIENTS, EXCHANGES, timestamp_ms=TIMES),
    strategies.builds(position, KEYS, CLIENTS, EXCHANGES, AMOUNTS, timestamp_ms=TIMES),
    strategies.builds(closed, KEYS, timestamp_ms=TIMES),
    strategies.builds(Growth),
    strategies.builds(
        exchange, EXCHANGES, strategies.sampled_from(["US", "GB", None]), timestamp_ms=TIMES
    ),
    strategies.builds(
        lambda key, value: Raw("positions", key.encode(), value), KEYS, strategies.sampled_from(BAD)
    ),
)


@dataclass
class Stream:
    """What was sent to the topics of settings, and its fold."""

    settings: Settings
    fold: Fold = field(default_factory=Fold)
    _sent: list[Raw] = field(default_factory=list)
    _places: dict[int, tuple[int, int]] = field(default_factory=dict)
    _partitions: int = 0

    def __post_init__(self) -> None:
        self.fold.add(starter())
        self._partitions = self.settings.partitions

    def send(self, records: Iterable[Raw | Again | Growth]) -> None:
        """Send the records that come between two runs."""
        most = 2 * self._partitions
        for _, some in groupby(records, type):
            together = [*some]
            if again := [one for one in together if isinstance(one, Again)]:
                self.fold.add(_retried(self.settings, again, self._sent, self._places))
            elif isinstance(together[0], Growth):
                self.grow(min(2 * self._partitions, most, MAX_PARTITIONS))
            else:
                raw = [one for one in together if isinstance(one, Raw)]
                new = [placed(one, self._partitions) for one in raw]
                self._places |= produce(self.settings, new)
                self._sent += new
                self.fold.add(new)

    def grow(self, partitions: int) -> None:
        """Let `positions` have so many partitions, unless it has."""
        if partitions <= self._partitions:
            return
        topic = self.settings.topic("positions")
        admin = installed(self.settings).kafka.admin()  # it has to outlive what it does
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        offsets.watermarks(
            installed(self.settings).kafka, {topic: partitions}, committed=True
        )  # they have leaders
        self._partitions = partitions

    def compact(
        self,
        *records: Raw | Again | Growth,
        asked: Mapping[str, bool] | None = None,
        reconcile: bool = False,
        code: int = 0,
        **other: Any,
    ) -> dict[str, object]:
        """Send records, compact with other settings, hold what is there against the fold."""
        self.send(records)
        settings = self.settings.model_copy(update=other)
        result = run(settings, reconcile=reconcile, code=code, **asked or {})
        agree(settings, self.fold)
        return result


def placed(record: Raw, partitions: int) -> Raw:
    """Return a record of `positions` with its partition; a producer may not know the new ones."""
    if record.topic != "positions":
        return record
    return replace(record, partition=partition_of(record.key or b"", partitions))


def _retried(
    settings: Settings, again: Iterable[Again], sent: list[Raw], places: dict[int, tuple[int, int]]
) -> list[Retry]:
    """Send retries of what was sent, if anything was; return them."""
    found = [Retry(sent[-1 - one.back % len(sent)], one.value) for one in again if sent]
    for retry in found:
        produce_retry(settings, retry, places[id(retry.origin)])
    return found
