"""What a compaction reads: the new records of its inputs and of their retry topics.

And what comes to the inputs after a turn of one that follows: whether the next one is due, and the
wait for it. Kafka is asked where the topics end, which alone decides. Between two looks a record is
waited for, so that a turn begins when it comes and not up to a look later.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import UsageError
from shardpost.holders.model.input_mapping import Mappings, Registry, read_mappings
from shardpost.holders.model.lost_records import compaction_of
from shardpost.holders.model.record_order import require_orderable
from shardpost.holders.model.topic_state import TopicState, Unread, ranges_to_read, require_readable
from shardpost.installation import Installation
from shardpost.kafka import offsets
from shardpost.kafka.clients import AwaitedRecords
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import open_transaction_at
from shardpost.kafka.records import TopicPartition, total_size
from shardpost.kafka.schema_registry import SchemaRegistry
from shardpost.kafka.topic_metadata import (
    changed_topics,
    partition_counts,
    topic_configs,
    topic_ids,
)
from shardpost.settings.forms import read_text
from shardpost.topics import declared
from shardpost.values.topic_names import TopicName


def mappings_of(installation: Installation) -> Mappings:
    """Return how those inputs look that are not plain; UsageError lists the mistakes.

    The file is read anew: a run asks once, and hands them on.
    """
    if (path := installation.settings.inputs) is None:
        return {}
    return read_mappings(path, read_text(path, advice="correct SHARDPOST_INPUTS"))


def registry_of(installation: Installation, name: TopicName, one: Registry) -> SchemaRegistry:
    """Return a client of a registry for a topic, which knows nothing yet."""
    settings, topic = installation.settings, installation.topic(name)
    login = (one.user, settings.registry_password or "") if one.user else None
    return SchemaRegistry(one.url, topic, settings.kafka_timeout, login, one.ca)


def registries(installation: Installation, url: str | None) -> list[Registry]:
    """Return the registry at a URL, with the login that SHARDPOST_INPUTS has for it, if any.

    Without a URL those that the file names.
    """
    named = [one.registry for one in mappings_of(installation).values() if one.registry]
    if url is not None:
        named = [one for one in named if one.url == url][:1] or [Registry(url=url)]
    return [*dict.fromkeys(named)]


def input_topics(kafka: Kafka) -> list[str]:
    """Return the input topics' names in this installation."""
    return [kafka.topic(topic.name) for topic in declared.INPUTS]


def retry_topics(installation: Installation) -> list[str]:
    """Return the retry topics of the inputs: one, or several by SHARDPOST_RETRY_ORIGINS."""
    return sorted(
        set(map(installation.settings.retry_rules.retry_topic, input_topics(installation.kafka)))
    )


def require_plain(installation: Installation, name: TopicName) -> None:
    """Refuse to write plain records to an input whose records look otherwise; UsageError."""
    if name in mappings_of(installation):
        topic = installation.kafka.topic(name)
        raise UsageError(
            f"topic {topic}: expected plain records, found another form in SHARDPOST_INPUTS: what"
            " writes them has to write that form"
        )


class Inputs:
    """The inputs of an installation and their retry topics, as Kafka has them now."""

    def __init__(self, installation: Installation) -> None:
        self._kafka = installation.kafka
        self._tables = installation.tables
        self._named = {topic.name: self._kafka.topic(topic.name) for topic in declared.INPUTS}
        self._topics = [*self._named.values()]
        self._retries = retry_topics(installation)

    def former_retries(self, last: Snapshot | None) -> list[str]:
        """Return retry topics that were read up to the last snapshot and that no setting names now.

        Corrections may still be in them. In `end_offsets` the inputs come first.
        """
        read = list(last.end_offsets)[len(declared.INPUTS) :] if last else []
        return [topic for topic in read if topic not in {*self._topics, *self._retries}]

    def state(
        self, *, reconcile: bool = False, now: datetime | None = None
    ) -> tuple[TopicState, Unread]:
        """Return what came after the last snapshot; raises what `look` and `unread` raise.

        The time of the look is before all that it asks for.
        """
        at, last = now or datetime.now(UTC), snapshots.newest(self._tables)
        state = self.look(at, last, reconcile=reconcile)
        return state, self.unread(state)

    def look(self, at: datetime, last: Snapshot | None, *, reconcile: bool = False) -> TopicState:
        """Return the state of the topics in Kafka after the last snapshot.

        ShardpostError if `share-holders` has other partitions than the snapshot has shards. A
        `looked_at` that is ahead of the time of the look counts as unknown.
        """
        holders, former = self._kafka.topic("share-holders"), self.former_retries(last)
        topics = [*self._topics, *self._retries, holders]
        counts = partition_counts(self._kafka, topics, if_there=former)
        ids = topic_ids(self._kafka, [topic for topic in counts if topic != holders])
        changed = changed_topics(last.topic_ids if last else {}, ids)
        configs = topic_configs(self._kafka, self._topics)
        if last:
            last.require_shards(counts[holders])
        return TopicState(
            at,
            last.as_known(at) if last else None,
            counts,
            reconcile,
            max(last.looked_at, last.read_at) if last and last.is_ahead(at) else None,
            ids,
            changed,
            {topic: compaction_of(configs[topic]) for topic in self._topics},
        )

    def unread(self, state: TopicState) -> Unread:
        """Return what came after the last snapshot.

        ShardpostError, naming every topic concerned, if holders would be wrong: records were
        deleted before being read, or a topic was replaced. A look that reconciles takes the
        latter as a new incarnation, and refuses topics of which Kafka deletes more than compaction
        does.

        The ids of topics were asked for before, and are again before the commit: that says if one
        was recreated since. The ends of retries are asked for before those of the inputs: so the
        origin of each is below those.
        """
        former = self.former_retries(state.last)
        gone = [topic for topic in former if topic not in state.counts]
        retries = [*self._retries, *(topic for topic in former if topic not in gone)]
        counts = {topic: state.counts[topic] for topic in [*retries, *self._topics]}
        reached = offsets.stable_ends(self._kafka, counts)
        of_inputs, of_retries = (
            {topic: reached.stable[topic] for topic in topics} for topics in (self._topics, retries)
        )
        ends = offsets.ends_of({**of_inputs, **of_retries})
        hidden = [open_transaction_at(self._kafka, begins) for begins in reached.open]
        compactions = state.strict()
        if state.reconcile:
            require_readable(self._topics, hidden)
        restarted = state.restarted(of_inputs)
        read = state.read_of_others(restarted)
        unread = Unread(
            ranges_to_read(read, of_inputs) + state.retries(of_retries),
            ends,
            state.generations({name for name, topic in self._named.items() if topic in restarted}),
            compactions,
            state.reconciliation(of_inputs, compactions, restarted),
            reached.high,
            hidden,
            gone,
            read,
        )
        for name, topic in self._named.items():
            require_orderable(topic, unread.generations.get(name, 0), ends)
        return unread

    def unread_originals(self, last: Snapshot | None) -> int:
        """Return how many offsets of the inputs came after that snapshot."""
        counts = partition_counts(self._kafka, self._topics)
        ends = offsets.watermarks(self._kafka, counts, committed=True)
        return total_size(ranges_to_read(last.end_offsets if last else {}, ends))

    def has_new_originals(self) -> bool:
        """Tell whether the inputs have unread offsets, or no snapshot exists yet."""
        last = snapshots.newest(self._tables)
        return last is None or self.unread_originals(last) > 0

    def other_ends(self, last: Snapshot) -> dict[TopicPartition, int]:
        """Return the ends of partitions that end elsewhere than where that snapshot has read to."""
        former = self.former_retries(last)
        counts = partition_counts(self._kafka, [*self._topics, *self._retries], if_there=former)
        partitions = [
            TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)
        ]
        listed = offsets.endings(self._kafka, partitions, committed=True)
        ends = listed.require_all(self._kafka).offsets
        read = last.end_offsets
        return {
            at: end
            for at, end in ends.items()
            if end != read.get(at.topic, {}).get(at.partition, 0)
        }


# While each look finds this share more than the look before, a turn waits for the rest of a burst,
# which would else wait for the turn: seconds between two such looks, and at most.
BURST_SHARE = 0.15
BURST_LOOK = 0.05
LONGEST_BURST = 0.6


class Arrivals:
    """What has come to the inputs since the newest snapshot; to be closed."""

    def __init__(self, installation: Installation) -> None:
        self._inputs = Inputs(installation)
        self._records = AwaitedRecords(installation.kafka.consumer)
        # Where partitions end that end elsewhere than read: now, and when a turn found nothing.
        self._ends: dict[TopicPartition, int] = {}
        self._ends_of_nothing: dict[TopicPartition, int] = {}
        self._came = False  # a record, since a turn was due

    def close(self) -> None:
        """Close the consumer."""
        self._records.close()

    def look(self, last: Snapshot) -> bool:
        """Tell whether something new has arrived since the last turn; raises Kafka's errors.

        While much more comes it waits, as a turn of more records takes hardly longer.
        """
        self._ends = self._inputs.other_ends(last)
        if not self._ends or self._ends == self._ends_of_nothing:
            return False
        self._came = False
        read, is_burst = _read(last), True
        until = time.monotonic() + LONGEST_BURST
        while is_burst and time.monotonic() < until:
            time.sleep(BURST_LOOK)
            before = _size(read, self._ends)
            self._ends = self._inputs.other_ends(last)
            is_burst = _size(read, self._ends) - before > BURST_SHARE * before
        return True

    def note(self, *, is_changed: bool) -> None:
        """Note whether a turn has found something: if not, topics may end there for long."""
        self._ends_of_nothing = {} if is_changed else self._ends

    def wait(self, last: Snapshot, seconds: float) -> bool:
        """Wait for something new, at most that long; tell whether it is known to have arrived.

        After a record with which no turn was due, it waits for the next look.
        """
        if self._came:
            time.sleep(seconds)
            return False
        offsets = _read(last)
        for partition, end in self._ends_of_nothing.items():  # another run may have read on
            offsets[partition] = max(end, offsets.get(partition, 0))
        self._came = self._records.wait(offsets, seconds)
        return self._came


def _read(last: Snapshot) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): end
        for topic, ends in last.end_offsets.items()
        for number, end in ends.items()
    }


def _size(read: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(abs(end - read.get(partition, 0)) for partition, end in ends.items())
