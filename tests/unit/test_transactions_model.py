"""Random interleavings of writers, crashes, timeouts and compactions, beside a plain model.

The writers are real ones, on Kafka in memory: several take turns under one transactional id, and a
stranger under another id writes between them.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import takewhile

from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpost.kafka.offsets import committed_offset
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition
from shardpost.kafka.transactions import Consumed, FencedError, Transactions, anyone
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka

ID, GROUP = "writer", "group"
LEFT, RIGHT, SOURCE = (TopicPartition(name, 0) for name in ("left", "right", "source"))
KEYS = (b"a", b"b", b"c")

Fold = dict[bytes | None, bytes | None]


class CrashError(BaseException):
    """The process dies here; nobody catches it."""


class State(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class Batch:
    """What one transaction writes to a side."""

    key: bytes
    value: bytes
    state: State = State.OPEN


@dataclass
class Model:
    """What has to come of it, said plainly."""

    left: list[Batch] = field(default_factory=list)
    right: list[Batch] = field(default_factory=list)
    offset: int | None = None
    current: Transactions | None = None  # the writer that is not fenced
    left_open: Batch | None = None  # what a dead writer left
    strange: Batch | None = None  # what the stranger has written

    def fence(self) -> None:
        if self.left_open is not None:
            self.left_open.state = State.ABORTED
        self.current = self.left_open = None


def fold(batches: list[Batch]) -> Fold:
    """Return the last value of each key below the first batch that is open."""
    stable = takewhile(lambda batch: batch.state is not State.OPEN, batches)
    return {batch.key: batch.value for batch in stable if batch.state is State.COMMITTED}


@dataclass
class World:
    """The writers that live, and a stranger with a transaction over the left side alone."""

    kafka: MemoryKafka
    stranger: Producer
    model: Model = field(default_factory=Model)
    writers: list[Transactions] = field(default_factory=list)
    count: int = 0

    def next(self, n: int) -> Batch:
        self.count += 1
        return Batch(KEYS[n % len(KEYS)], b"%d" % self.count)

    def open(self, _: int) -> None:
        writer = Transactions(
            installed(self.kafka.settings).kafka,
            ID,
            may_write=anyone,
            fenced="fenced",
            failed="failed: {reason}",
        )
        writer.open()
        self.writers.append(writer)
        self.model.fence()
        self.model.current = writer

    def write(self, n: int) -> None:
        """Have one of the writers write to both sides, with an offset."""
        if self.writers:
            writer, batch = self.writers[n % len(self.writers)], self.next(n)
            if self._commits(writer, batch):
                batch.state = State.COMMITTED
                self.model.left.append(batch)
                self.model.right.append(batch)
                self.model.offset = self.count

    def die(self, n: int) -> None:
        """Have one of the writers die when its records are written and not committed."""
        if self.writers:
            writer, batch = self.writers.pop(n % len(self.writers)), self.next(n)
            with suppress(CrashError):
                assert not self._commits(writer, batch, check=_die)
                return
            self.model.left.append(batch)
            self.model.right.append(batch)
            self.model.current, self.model.left_open = None, batch

    def _commits(
        self, writer: Transactions, batch: Batch, check: Callable[[], None] | None = None
    ) -> bool:
        """Write a batch; False if the writer was fenced, which has to be as the model says."""
        records = [Outgoing(side.topic, batch.key, batch.value, []) for side in (LEFT, RIGHT)]
        with closing(installed(self.kafka.settings).kafka.consumer(GROUP)) as reader:
            try:
                writer.write(records, Consumed(reader, SOURCE, self.count), check)
            except FencedError:
                assert writer is not self.model.current
                return False
        assert writer is self.model.current
        return True

    def time_out(self, _: int) -> None:
        """Let the broker end a transaction that was open for too long."""
        if self.model.left_open is not None:
            self.kafka.broker.coordinator.fence(ID)
            self.model.fence()

    def begin_stranger(self, n: int) -> None:
        if self.model.strange is None:
            self.model.strange = batch = self.next(n)
            self.stranger.begin_transaction()
            self.stranger.produce(LEFT.topic, batch.value, batch.key)
            self.model.left.append(batch)

    def end_stranger(self, n: int) -> None:
        if self.model.strange is not None:
            self.model.strange.state = State.COMMITTED if n % 2 else State.ABORTED
            self.model.strange = None
            if n % 2:
                self.stranger.commit_transaction(1)
            else:
                self.stranger.abort_transaction(1)

    def compact(self, _: int) -> None:
        for side in (LEFT, RIGHT):
            self.kafka.broker.log(side).compact()

    def agree(self) -> None:
        """Hold what readers see against the model."""
        for side, batches in ((LEFT, self.model.left), (RIGHT, self.model.right)):
            assert {r.key: r.value for r in self.kafka.committed(side)} == fold(batches)
        isolation = {"isolation.level": "read_uncommitted"}  # does not wait for who left one open
        with closing(installed(self.kafka.settings).kafka.consumer(GROUP, **isolation)) as reader:
            assert (
                committed_offset(installed(self.kafka.settings).kafka, reader, SOURCE)
                == self.model.offset
            )


def _die() -> None:
    raise CrashError


EVENTS: tuple[Callable[[World, int], None], ...] = (
    World.open,
    World.write,
    World.write,
    World.die,
    World.time_out,
    World.begin_stranger,
    World.end_stranger,
    World.compact,
)


@settings(max_examples=up_to(300, quick=100))
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=30))
def test_readers_see_what_was_committed_by_writers_that_were_not_fenced(
    events: list[tuple[Callable[[World, int], None], int]],
) -> None:
    with memory_kafka(kafka_timeout=1) as kafka:
        for side in (LEFT, RIGHT, SOURCE):
            kafka.broker.create_topic(side.topic, 1, {})
        stranger = installed(kafka.settings).kafka.transactional_producer("stranger")
        stranger.init_transactions(1)
        world = World(kafka, stranger)
        for event, n in events:
            event(world, n)
            world.agree()
        world.open(0)
        world.end_stranger(1)
        world.agree()
        assert all(batch.state is not State.OPEN for batch in world.model.left)
        found = {
            message.key(): message.value()
            for message in read_to_end(installed(kafka.settings).kafka, LEFT)
        }
        assert found == fold(world.model.left)
