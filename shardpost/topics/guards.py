"""Guards before a run begins: its lock is free, its topics are its own and complete. No JVM.

`run` asks all of it, for each job by the table GUARDS. What a run asks again on its way keeps out
what comes meanwhile (docs/architecture.md, Guards).

The owner of the topics is the installation that publishes to `share-holders`. Another one on the
same topics would publish what it has over what the owner has published. An installation is its
tables, by the id that Delta gave to the table `snapshots`: a restored copy has the same one,
whatever its folder or machine. Kafka keeps the owner's id as metadata of an offset of the group
GROUP, which every compaction commits again. Kafka forgets the offset some days after the last
compaction; then an installation that has no snapshot is refused if `share-holders` has records
(decision 0035 says why the id is kept there).

A store is a topic whose records are written nowhere else: docs/stores.md has what is asked of it.
"""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial

from deltalake.exceptions import TableNotFoundError
from pydantic import TypeAdapter, ValidationError

from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.delta.storage import open_table
from shardpost.errors import ShardpostError, first_line, single_line
from shardpost.installation import Installation
from shardpost.kafka import offsets
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError
from shardpost.kafka.records import TopicMark, TopicPartition
from shardpost.kafka.topic_metadata import partition_counts, topic_configs, topic_ids
from shardpost.locks.locks import exclusive
from shardpost.locks.shared_files import SharedFile
from shardpost.values.topic_names import TopicName

GROUP = "shardpost-owner"
# Kafka takes metadata of 4096 bytes, and JSON needs up to 6 for a character.
LONGEST = 250
TAKE_OVER = (
    "If that home will never publish again, take over with `shardpost compact --take-over`: that "
    "home is refused from then on"
)


class NotOwnerError(ShardpostError):
    """The topics belong to another installation."""


@dataclass(frozen=True)
class Owner:
    """An installation: the id of its table `snapshots`, and where it was when it wrote that."""

    tables: str
    home: str
    host: str


def this_installation(installation: Installation) -> Owner | None:
    """Return this installation; None before its first snapshot."""
    try:
        table = open_table(installation.tables, SNAPSHOTS)
    except TableNotFoundError:
        return None
    home = single_line(str(installation.files.home), LONGEST)
    return Owner(str(table.metadata().id), home, single_line(socket.gethostname(), LONGEST))


def owner(kafka: Kafka) -> Owner | None:
    """Return the owner of the topics, None if there is none."""
    place = _place(kafka)
    with kafka.kept_consumer(GROUP) as reader:
        found = offsets.committed_offsets(kafka, reader, [place]).get(place)
    if found is None or not found.metadata:
        return None
    return Owner(**json.loads(found.metadata))


def require_owner(installation: Installation) -> tuple[Owner | None, Owner | None]:
    """Return the owner of the topics, and this installation; NotOwnerError names another one."""
    # In this order: a first compaction commits its snapshot before it takes the topics.
    known = owner(installation.kafka)
    own = this_installation(installation)
    if known is not None and (own is None or own.tables != known.tables):
        raise NotOwnerError(
            f"topic {installation.kafka.topic('share-holders')} belongs to the home {known.home}"
            f" on {known.host}, but this is {installation.files.home} on {socket.gethostname()},"
            " with other tables: nothing is written to Kafka. Work in that home"
            f" (SHARDPOST_HOME={known.home}). {TAKE_OVER}"
        )
    return known, own


def require_owner_to_begin(installation: Installation) -> None:
    """Refuse as `require_owner` does; for topics without an owner, also without a snapshot.

    That is if somebody has published already.
    """
    if require_owner(installation) != (None, None):
        return
    counts = partition_counts(installation.kafka, [], if_there=[_place(installation.kafka).topic])
    if offsets.partitions_with_records(installation.kafka, counts):
        raise NotOwnerError(
            f"topic {installation.kafka.topic('share-holders')} has records, but"
            f" {installation.tables.root} has no snapshot: another installation published them."
            f" Work in its home (SHARDPOST_HOME). {TAKE_OVER}"
        )


def take_topics(installation: Installation, *, take_over: bool = False) -> None:
    """Record this installation as the owner; NotOwnerError, or ShardpostError without snapshot."""
    own = this_installation(installation) if take_over else require_owner(installation)[1]
    if own is None:
        raise ShardpostError(
            f"no snapshot in {installation.tables.root} yet: run `shardpost compact"
            f"{' --take-over' * take_over}`"
        )
    topic, partition = _place(installation.kafka)
    said = json.dumps(asdict(own))
    offsets.commit_offsets(installation.kafka, GROUP, {topic: {partition: 0}}, said)


def _place(kafka: Kafka) -> TopicPartition:
    return TopicPartition(kafka.topic("share-holders"), 0)


@dataclass(frozen=True)
class StoreTopic(TopicMark):
    """A store as it is now."""

    name: str
    cleanup_policy: str

    def require_compacted(self) -> None:
        """Refuse a topic in which Kafka may delete the last record of a key."""
        if self.cleanup_policy != "compact":
            raise ShardpostError(
                f"topic {self.name}: expected cleanup.policy=compact only, found"
                f" {self.cleanup_policy!r}: Kafka deletes records that are needed. Set it with"
                f" `kafka-configs.sh --alter --entity-type topics --entity-name {self.name}"
                " --add-config cleanup.policy=compact`"
            )


_FORM = TypeAdapter(TopicMark)


def require_stores(installation: Installation, *names: TopicName) -> None:
    """Refuse, by name, a store that is not compacted only, or has lost records since its first use.

    ShardpostError says what was found, and the way out. What is there now is written down.
    """
    for store, before in inspect_stores(installation, *names):
        file = SharedFile(installation.files, f"stores/{store.name}.json")
        first = before or TopicMark(store.topic_id, store.low, store.high)
        file.change(partial(_merged, file, replace(first, high=store.high)))


def inspect_stores(
    installation: Installation, *names: TopicName
) -> list[tuple[StoreTopic, TopicMark | None]]:
    """Return each store and its known state; refuse as `require_stores` does, and write nothing."""
    known = {}
    for topic in map(installation.kafka.topic, names):
        file = SharedFile(installation.files, f"stores/{topic}.json")
        try:  # before Kafka is asked: another process may write down a later end
            known[topic] = _parsed(file.read(), file)
        except OSError as error:
            raise ShardpostError(f"{file}: cannot be read: {error!r}") from None
    found = describe_stores(installation.kafka, list(known))
    for store in found:
        store.require_compacted()
        before = known[store.name]
        if before and (lost := store.lost_since(before)):
            file = SharedFile(installation.files, f"stores/{store.name}.json")
            raise ShardpostError(
                f"topic {store.name}: {lost}. Its former records are lost. If this is intended,"
                f" remove {file} to accept the topic as it is now"
            )
    return [(store, known[store.name]) for store in found]


def describe_stores(kafka: Kafka, topics: Sequence[str]) -> list[StoreTopic]:
    """Return each topic as it is now; ShardpostError for one that does not exist."""
    counts = partition_counts(kafka, list(topics))
    ids, configs = topic_ids(kafka, topics), topic_configs(kafka, topics)
    found = offsets.watermarks(kafka, counts, committed=False)
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


def _merged(file: SharedFile, mark: TopicMark, text: str | None) -> str:
    """Return the state to store: another process may have stored a later end meanwhile."""
    return _FORM.dump_json(mark.merged(_parsed(text, file))).decode()


def _parsed(text: str | None, file: SharedFile) -> TopicMark | None:
    try:
        return None if text is None else _FORM.validate_json(text)
    except ValidationError as error:
        raise ShardpostError(f"{file}: cannot be read: {first_line(error)}") from None


@dataclass(frozen=True)
class Guards:
    """What must hold before a job begins, behind the lock of a name, by default the job's.

    `what` says what is running to whoever finds the lock, by default that name; with `waits` the
    run comes after it, by `lock_wait`. `owner` refuses an installation that does not own the
    topics; None if it only reads them, or its writer asks. `stores` have to be compacted only, and
    to have lost nothing.
    """

    lock: str = ""
    what: str = ""
    waits: bool = False
    owner: Callable[[Installation], object] | None = None
    stores: tuple[TopicName, ...] = ()


_COMPACTION = Guards("compact_positions", waits=True)
GUARDS = {
    "compact_positions": replace(_COMPACTION, owner=require_owner_to_begin),
    "rebuild_swap": replace(_COMPACTION, owner=require_owner),
    "sweep_dead_letters": Guards(owner=require_owner, stores=("dead-letters", "parking-lot")),
    "dispatch_run_requests": Guards(
        what="the dispatch of run requests",
        waits=True,
        owner=require_owner,
        stores=("run-commands",),
    ),
    "import_positions": Guards(),
    "maintain_tables": Guards(what="the maintenance of the tables"),
    "erase_client": Guards("freeze", "erasing a client", waits=True, owner=require_owner),
}


@contextmanager
def run(installation: Installation, job: str, *, asks_owner: bool = True) -> Iterator[None]:
    """Hold the lock of a job after all its guards have passed; nothing was changed before.

    LockedError beside another run, NotOwnerError in a home of others, ShardpostError for a store
    that has lost something, KafkaUnreachableError. A run that takes the topics over, or changes
    nothing, does not ask for their owner.
    """
    guards = GUARDS[job]
    lock, wait = guards.lock or job, installation.files.lock_wait if guards.waits else 0
    with exclusive(installation.files, lock, guards.what or lock, wait=wait):
        try:
            if asks_owner and guards.owner:
                guards.owner(installation)
            if guards.stores:
                require_stores(installation, *guards.stores)
        except KafkaUnreachableError as error:
            raise nothing_changed(error) from None
        yield


def nothing_changed(error: KafkaUnreachableError) -> KafkaUnreachableError:
    """Return the error for a run that had changed nothing when Kafka became unreachable."""
    return KafkaUnreachableError(f"nothing was changed: {error}; then run it again")
