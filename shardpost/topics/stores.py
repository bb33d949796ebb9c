"""Topics that are stores, whose records are written nowhere else; checked before each use.

Such a topic is compacted and nothing more, so its low watermarks never move. What it was is kept
since its first use in the shared file `stores/<topic>.json`: one that was recreated, emptied or cut
off since is noticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from shardpost.errors import ShardpostError, first_line
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicMark
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermarks
from shardpost.kafka.topic_metadata import partition_counts, topic_configs, topic_ids
from shardpost.locks.shared_files import Files, SharedFile
from shardpost.values.topic_names import TopicName


@dataclass(frozen=True)
class StoreTopic(TopicMark):
    """A store as it is now."""

    name: str
    cleanup_policy: str

    def require_compacted(self) -> None:
        """Refuse a topic of which Kafka may delete the last record of a key."""
        if self.cleanup_policy != "compact":
            raise ShardpostError(
                f"topic {self.name}: expected cleanup.policy=compact and nothing else, found"
                f" {self.cleanup_policy!r}: Kafka deletes records that are needed. Set it with"
                f" `kafka-configs.sh --alter --entity-type topics --entity-name {self.name}"
                " --add-config cleanup.policy=compact`"
            )


def require_stores(installation: Installation, *names: TopicName) -> None:
    """Refuse, by name, a store that is not compacted only, or has lost records since its first use.

    ShardpostError says what was found, and the way out. What is there now is written down.
    """
    for store, before in inspect_stores(installation, *names):
        _remember(store, before, _file(installation.files, store.name))


def inspect_stores(
    installation: Installation, *names: TopicName
) -> list[tuple[StoreTopic, TopicMark | None]]:
    """Return each store and what was known of it; refuse as `require_stores`, and write nothing."""
    topics = map(installation.kafka.topic, names)
    files = {topic: _file(installation.files, topic) for topic in topics}
    # First: another process may write down a later end.
    known = {}
    for topic, file in files.items():
        try:
            known[topic] = _parsed(file.read(), file)
        except OSError as error:
            raise ShardpostError(f"{file}: cannot be read: {error!r}") from None
    found = describe_stores(installation.kafka, list(files))
    for store in found:
        store.require_compacted()
        before = known[store.name]
        if before and (lost := store.lost_since(before)):
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
            ids.get(topic, ""),  # none of a broker that knows no ids
            tuple(low for low, _ in found[topic].values()),
            tuple(high for _, high in found[topic].values()),
            topic,
            str(configs[topic]["cleanup.policy"]),
        )
        for topic in topics
    ]


_FORM = TypeAdapter(TopicMark)


def _file(files: Files, topic: str) -> SharedFile:
    return SharedFile(files, f"stores/{topic}.json")


def _remember(store: StoreTopic, before: TopicMark | None, file: SharedFile) -> None:
    known = replace(before or TopicMark(store.topic_id, store.low, store.high), high=store.high)
    file.change(lambda text: _FORM.dump_json(known.merged(_parsed(text, file))).decode())


def _parsed(text: str | None, file: SharedFile) -> TopicMark | None:
    try:
        return None if text is None else _FORM.validate_json(text)
    except ValidationError as error:
        raise ShardpostError(f"{file}: cannot be read: {first_line(error)}") from None
