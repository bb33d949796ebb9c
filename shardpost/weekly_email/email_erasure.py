"""The erasure of one client from the audiences and from the ledger.

The files of all kept weeks that have it are written anew without it, in one commit of the week's
table; then the old ones leave the disk. A run that is killed in between is continued by the next.

What the ledger says of it is put under a hash of the client. That a mail was sent must stay: else
the client could be mailed again. Its id, and reasons, which often have its address, must not.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, storage
from shardpost.delta.object_store import Tables
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.storage import data_files
from shardpost.delta.table_log import row_files
from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermark_of
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.logs import step
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
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES, audience_table


@dataclass(frozen=True)
class AudienceOfClient:
    """A week whose audience, in that folder, is to be written anew, or an interrupted run began to.

    `files` have the client; `left` are files on the disk that no run reads.
    """

    week: IsoWeek
    folder: str
    version: int
    files: tuple[str, ...]
    left: tuple[str, ...]


def find_in_audiences(tables: Tables, client: str) -> list[AudienceOfClient]:
    """Return the weeks in which something of the client is left, as it is now."""
    on_disk, found = {*storage.folder_names(tables, AUDIENCES)}, []
    for frozen in FrozenWeeks(tables).with_audience():
        folder, week = frozen.audience, IsoWeek.parse(frozen.week)
        if folder not in on_disk:
            continue
        opened = storage.opened(tables, audience_table(folder))
        named, shard = row_files(opened, "shard"), partition_of(client, frozen.shards)
        left = {*_parquet(tables, folder)} - {file.path for file in named}
        in_shard = [file.path for file in named if file.lowest <= shard <= file.highest]
        files = (tuple(_having(tables, folder, in_shard, client)), tuple(sorted(left)))
        if any(files):
            found.append(AudienceOfClient(week, folder, opened.version(), *files))
    return found


def erase_from_audience(tables: Tables, client: str, audience: AudienceOfClient) -> None:
    """Rewrite a week's audience without the client; no run may freeze or mail it meanwhile."""
    table = audience_table(audience.folder)
    if audience.files:

        def without(rows: pa.Table) -> pa.Table:
            return rows.filter(pc.not_equal(rows["client"], client))

        changes = dict.fromkeys(audience.files, without)
        commit_files(tables, table, audience.version, changes, f"{uuid.uuid4()}")
    step(f"remove files {audience.week}")
    storage.delete(tables, table, [*audience.files, *audience.left])


def erase_unfrozen(tables: Tables, client: str, *, dry_run: bool) -> set[str]:
    """Remove the audiences that no week has, unless `dry_run`; return whose had the client."""
    weeks = FrozenWeeks(tables)
    left = weeks.unnamed()
    having = [name for name in left if _having(tables, name, _parquet(tables, name), client)]
    if left and not dry_run:
        step("remove audiences that were never frozen")
        weeks.remove_unnamed()
    return {name.split(".")[0] for name in having}


def _having(tables: Tables, folder: str, paths: Iterable[str], client: str) -> list[str]:
    table = audience_table(folder)
    return [
        path
        for path in paths
        if any(
            pc.any(pc.equal(rows["client"], client)).as_py()
            for rows in parquet_files.parts(tables, table, path, ["client"])
        )
    ]


def _parquet(tables: Tables, folder: str) -> list[str]:
    """Return all Parquet files of an audience, also those that its table does not name."""
    files = data_files(tables, audience_table(folder), lambda _: False)
    return [file.path for file in files if file.path.endswith(".parquet")]


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
        about = LedgerEntry(erased_id(known.client), None, reason=REASON, is_erased=True)
        if last is not None and last.state is not None:
            is_sending = last.state is DeliveryState.SENDING  # nobody is sending it any more
            state = DeliveryState.UNKNOWN if is_sending else last.state
            erased = replace(about, state=state, message_id=last.message_id, resends=last.resends)
        elif is_member and week not in known.erased:
            erased = replace(about, state=DeliveryState.SUPPRESSED)
        else:
            return False
        own = [LedgerEntry(known.client, None, reason=REASON)] if last is not None else []
        ledger.write([*own, erased])
        return True


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
