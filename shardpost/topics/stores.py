"""Topics that are stores, whose records are written nowhere else; checked before each use.

Such a topic is compacted and nothing more, so its low watermarks never move. What it was is kept
since its first use in the shared file `stores/<topic>.json`: one that was recreated, emptied or cut
off since is noticed.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.topic_metadata import partition_counts, topic_configs, topic_ids
from shardpost.locks.shared_files import Files, SharedFile
from shardpost.topic_names import TopicName
from shardpost.wording import counted


@dataclass(frozen=True)
class StoreTopic:
    """A store as it is now; `low` and `high` are the watermarks of its partitions.

    `topic_id` is empty where the broker gives none.
    """

    name: str
    topic_id: str
    cleanup_policy: str
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.low)

    def require_compacted(self) -> None:
        """Refuse a topic of which Kafka may delete the last record of a key."""
        if self.cleanup_policy != "compact":
            raise ShardpostError(
                f"topic {self.name}: expected cleanup.policy=compact and nothing else, found"
                f" {self.cleanup_policy!r}: Kafka deletes records that are needed. Set it with"
                f" `kafka-configs.sh --alter --entity-type topics --entity-name {self.name}"
                " --add-config cleanup.policy=compact`"
            )

    def what_is_lost(self, known: "KnownStore") -> str | None:
        """Return what was lost of what is known to have been there, or None."""
        is_told = bool(self.topic_id and known.topic_id)
        if is_told and self.topic_id != known.topic_id:
            return (
                f"it was deleted and created again: its topic id is {self.topic_id}, and was"
                f" {known.topic_id}"
            )
        if self.partitions != len(known.low):
            return f"it has {counted(self.partitions, 'partition')}, and had {len(known.low)}"
        for partition in range(self.partitions):
            low, first = self.low[partition], known.low[partition]
            if low > first:
                return (
                    f"of partition {partition} the records from {first} to {low - 1} were deleted"
                )
            high, end = self.high[partition], known.high[partition]
            if high < end:
                return f"partition {partition} ends at {high}, and ended at {end}"
        return None


@dataclass(frozen=True)
class KnownStore:
    """What is known of a store from before: since `low`, and up to `high`, it had records."""

    topic_id: str
    low: tuple[int, ...]
    high: tuple[int, ...]

    def merged(self, other: "KnownStore | None") -> "KnownStore":
        """Return what is known with what another process wrote down meanwhile.

        That of another topic stays as it is: who wrote it has looked at the topic since.
        """
        if other is None:
            return self
        if (other.topic_id, len(other.low)) != (self.topic_id, len(self.low)):
            return other
        low = tuple(map(min, self.low, other.low))
        return KnownStore(self.topic_id, low, tuple(map(max, self.high, other.high)))


def require_stores(installation: Installation, *names: TopicName) -> None:
    """Refuse, by name, a store that is not compacted only, or has lost records since its first use.

    ShardpostError says what was found, and the way out. What is there now is written down.
    """
    for store, before in inspect_stores(installation, *names):
        _remember(store, before, _file(installation.files, store.name))


def inspect_stores(
    installation: Installation, *names: TopicName
) -> list[tuple[StoreTopic, KnownStore | None]]:
    """Return each store and what was known of it; refuse as `require_stores`, and write nothing."""
    files = {
        topic: _file(installation.files, topic) for topic in map(installation.kafka.topic, names)
    }
    # First: another process may write down a later end.
    known = {topic: _read(file) for topic, file in files.items()}
    found = describe_stores(installation.kafka, list(files))
    for store in found:
        store.require_compacted()
        before = known[store.name]
        if before and (lost := store.what_is_lost(before)):
            raise ShardpostError(
                f"topic {store.name}: {lost}. What it held is lost. If that is intended, remove"
                f" {files[store.name]}: then it is taken as it is now"
            )
    return [(store, known[store.name]) for store in found]


def describe_stores(kafka: Kafka, topics: Sequence[str]) -> list[StoreTopic]:
    """Return each topic as it is now; ShardpostError for one that does not exist."""
    counts = partition_counts(kafka, list(topics))
    ids, configs = topic_ids(kafka, topics), topic_configs(kafka, topics)
    found = watermarks(kafka, counts, committed=False)
    return [
        StoreTopic(
            topic,
            ids.get(topic, ""),  # none of a broker that knows no ids
            str(configs[topic]["cleanup.policy"]),
            *zip(*(found[topic][partition] for partition in range(counts[topic])), strict=True),
        )
        for topic in topics
    ]


def _file(files: Files, topic: str) -> SharedFile:
    return SharedFile(files, f"stores/{topic}.json")


def _remember(store: StoreTopic, before: KnownStore | None, file: SharedFile) -> None:
    known = replace(before or KnownStore(store.topic_id, store.low, store.high), high=store.high)

    def merged(text: str | None) -> str:
        return json.dumps(asdict(known.merged(_parsed(text, file))))

    file.change(merged)


def _read(file: SharedFile) -> KnownStore | None:
    try:
        return _parsed(file.read(), file)
    except OSError as error:
        raise ShardpostError(f"{file}: cannot be read: {error!r}") from None


def _parsed(text: str | None, file: SharedFile) -> KnownStore | None:
    if text is None:
        return None
    try:
        form = json.loads(text)
        return KnownStore(str(form["topic_id"]), tuple(form["low"]), tuple(form["high"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ShardpostError(f"{file}: cannot be read: {error!r}") from None
