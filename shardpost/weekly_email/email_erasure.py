"""The erasure of one client from the audiences and from the ledger.

Its rows are removed from the files of all kept weeks. The steps, each of which may be the last
before a crash; the next run continues:

1. files without the client, and a version of `audiences` that has them in place of the others;
2. the row of each of these weeks names that version;
3. the files that no week needs leave the disk.

What the ledger says of it is put under a hash of the client. That a mail was sent must stay: else
the client could be mailed again. Its id, and reasons, which often have its address, must not.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow.compute as pc
from deltalake.transaction import AddAction

from shardpost.delta import file_statistics, parquet_files
from shardpost.delta.object_store import Tables
from shardpost.delta.storage import exists
from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermark_of
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.logs import step
from shardpost.weekly_email.audience_files import AudienceFiles, is_of_week
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import (
    WEEK_BYTES,
    DeliveryState,
    LedgerEntry,
    LedgerId,
    decode,
    erased_id,
)
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCE_STATISTICS, AUDIENCES


@dataclass(frozen=True)
class AudienceOfClient:
    """A week whose audience is to be written anew, or an interrupted run began to.

    `files` have the client; `is_behind`: the week's row names files that are to go; `left` are
    unreferenced files on the disk.
    """

    frozen: FrozenWeek
    files: tuple[str, ...]
    is_behind: bool
    left: tuple[str, ...]

    @property
    def week(self) -> IsoWeek:
        """The week."""
        return IsoWeek.parse(self.frozen.week)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.files or self.is_behind or self.left)


def find_in_audiences(tables: Tables, client: str) -> list[AudienceOfClient]:
    """Return the weeks in which something of the client is left, as it is now."""
    if not exists(tables, AUDIENCES):
        return []
    files = AudienceFiles(tables)
    newest, on_disk = files.names(), _on_disk(files)
    weeks = FrozenWeeks(tables).with_audience()
    audiences = (_find(files, client, frozen, newest, on_disk) for frozen in weeks)
    return [audience for audience in audiences if not audience.is_done]


def erase_from_audiences(tables: Tables, client: str, audience: AudienceOfClient) -> None:
    """Rewrite a week's audience without the client; no run may freeze or mail it meanwhile."""
    week, files = audience.week, AudienceFiles(tables)
    step(f"write audience {week}")
    added = list(_write(tables, client, audience))
    step(f"commit audience {week}")
    version = files.replace(audience.files.__contains__, added)
    step(f"repoint {week}")
    if audience.files or audience.is_behind:
        FrozenWeeks(tables).repoint(week, version)
    step(f"remove files {week}")
    for name in sorted({*_on_disk(files)} - {*files.names(version)}):
        if is_of_week(name, week):
            files.delete(name)


def erase_unfrozen(tables: Tables, client: str, *, dry_run: bool) -> set[str]:
    """Remove the audiences that no week has, from the table and the disk, unless `dry_run`.

    Return the weeks whose had the client.
    """
    files = AudienceFiles(tables)
    frozen = {week.week for week in FrozenWeeks(tables).with_audience()}
    left = [folder for folder in files.folders() if folder.week not in frozen]
    weeks = {
        folder.week
        for folder in left
        if any(files.has_client(name, client) for name in folder.parquet)
    }
    if left and not dry_run and exists(tables, AUDIENCES):
        step("commit without audiences that were never frozen")
        files.remove_weeks({folder.week for folder in left})
        step("remove audiences that were never frozen")
        for folder in left:
            files.delete_folder(folder)
    return weeks


def _find(
    files: AudienceFiles,
    client: str,
    frozen: FrozenWeek,
    newest: Iterable[str],
    on_disk: Iterable[str],
) -> AudienceOfClient:
    def of_week(names: Iterable[str]) -> set[str]:
        return {name for name in names if is_of_week(name, frozen.week)}

    own, left = of_week(newest), of_week(on_disk)
    is_behind = own != of_week(files.names(frozen.audience_version))
    shard = f"/group={partition_of(client, frozen.shards)}/"
    in_shard = (name for name in sorted(own) if shard in name)
    having = tuple(name for name in in_shard if files.has_client(name, client))
    return AudienceOfClient(frozen, having, is_behind, tuple(sorted(left - own)))


def _write(tables: Tables, client: str, audience: AudienceOfClient) -> Iterator[AddAction]:
    """Write the files of a week anew without the client; yield what adds them to the table."""
    folder = f"{audience.week}-{uuid.uuid4()}"
    for number, name in enumerate(audience.files):
        rows = parquet_files.read(tables, AUDIENCES, name)
        kept = rows.filter(pc.not_equal(rows.column("client"), client))
        if kept.num_rows:
            path = f"{folder}/{name.split('/')[1]}/part-{number}.parquet"
            action = parquet_files.write(tables, AUDIENCES, kept, path)
            yield file_statistics.reduced(action, AUDIENCE_STATISTICS)


def _on_disk(files: AudienceFiles) -> list[str]:
    return [name for folder in files.folders() for name in folder.parquet]


REASON = "erased"


@dataclass(frozen=True)
class ClientLedger:
    """The last entry of a client in each week that has one, as the ledger was up to `end`.

    `erased` are the weeks that have one under its hash already.
    """

    client: str
    shard: int
    end: int
    entries: dict[IsoWeek, LedgerEntry]
    erased: frozenset[IsoWeek]


def find_in_ledger(kafka: Kafka, client: str) -> ClientLedger:
    """Return what the ledger says of a client under its own id."""
    topic = kafka.topic("weekly-emails")
    shard = partition_of(client, partition_counts(kafka, [topic])[topic])
    _, end = watermark_of(kafka, TopicPartition(topic, shard), committed=False)
    entries: dict[bool, dict[IsoWeek, LedgerEntry]] = {False: {}, True: {}}
    for week, entry in _entries(kafka, client, shard, None):
        entries[entry.is_erased][week] = entry
    erased = frozenset(week for week, entry in entries[True].items() if entry.state)
    return ClientLedger(client, shard, end, entries[False], erased)


def erase_from_ledger(
    installation: Installation, known: ClientLedger, week: IsoWeek, *, is_member: bool
) -> bool:
    """Put what the ledger says of a client in a week under its hash; False if it says nothing.

    A member of the audience that was not mailed yet becomes `suppressed`: it is not mailed. Behind
    the fence of a sender: a run that has begun can commit nothing more.
    """
    with closing(Ledger(installation, week, known.shard)) as ledger:
        ledger.fence()
        last = known.entries.get(week)
        for of_week, entry in _entries(installation.kafka, known.client, known.shard, known.end):
            last = entry if of_week == week and not entry.is_erased else last
        entries = list(_under_hash(known, week, last, is_member=is_member))
        ledger.write(entries)
        return bool(entries)


def _under_hash(
    known: ClientLedger, week: IsoWeek, last: LedgerEntry | None, *, is_member: bool
) -> Iterator[LedgerEntry]:
    about = LedgerEntry(erased_id(known.client), None, reason=REASON, is_erased=True)
    if last is not None and last.state is not None:
        is_sending = last.state is DeliveryState.SENDING  # nobody is sending it any more
        state = DeliveryState.UNKNOWN if is_sending else last.state
        erased = replace(about, state=state, message_id=last.message_id, resends=last.resends)
    elif is_member and week not in known.erased:
        erased = replace(about, state=DeliveryState.SUPPRESSED)
    else:
        return
    if last is not None:
        yield LedgerEntry(known.client, None, reason=REASON)
    yield erased


def _entries(
    kafka: Kafka, client: str, shard: int, start: int | None
) -> Iterator[tuple[IsoWeek, LedgerEntry]]:
    """Yield the client's entries from an offset on, its own and those under its hash, by week."""
    own = {id_.key("") for id_ in (LedgerId(client), LedgerId.erased(client))}
    partition = TopicPartition(kafka.topic("weekly-emails"), shard)
    for message in read_to_end(kafka, partition, start=start):
        key = message.key() or b""
        if key[WEEK_BYTES:] not in own:
            continue
        try:
            week = IsoWeek.parse(key[:WEEK_BYTES].decode(errors="replace"))
        except UsageError:  # there is no such week: another program wrote it, and nobody reads it
            continue
        entry = decode(key, message.value(), week)
        assert entry is not None  # noqa: S101 - its key has the week
        yield week, entry
