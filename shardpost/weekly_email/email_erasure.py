"""Erasure of one client from the audiences and the ledger.

In all kept weeks, the files that contain the client are rewritten without it, in one commit of the
week's table; then the old files are deleted. If a run is killed in between, the next one continues.

Its ledger records are moved under a hash of the client. The fact that a mail was sent must be kept,
else the client could be mailed again. Its id, and the reasons, which often contain its address,
must not.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import parquet_files, storage, stored_files
from shardpost.delta.rewritten_files import commit_files
from shardpost.delta.storage import Tables, row_files
from shardpost.errors import UsageError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import watermark_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.kafka.topic_metadata import partition_with
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
    """A week whose audience in that folder is to be rewritten, or is partly rewritten.

    `files` contain the client; `left` are files on the disk that no run reads.
    """

    week: IsoWeek
    folder: str
    version: int
    files: tuple[str, ...]
    left: tuple[str, ...]


def find_in_audiences(tables: Tables, client: str) -> list[AudienceOfClient]:
    """Return the weeks that still contain data of the client."""
    on_disk, found = {*stored_files.folder_names(tables, AUDIENCES)}, []
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
    """Rewrite a week's audience without the client while no run freezes or mails it."""
    table = audience_table(audience.folder)
    if audience.files:

        def without(rows: pa.Table) -> pa.Table:
            return rows.filter(pc.not_equal(rows["client"], client))

        changes = dict.fromkeys(audience.files, without)
        commit_files(tables, table, audience.version, changes, f"{uuid.uuid4()}")
    step(f"remove files {audience.week}")
    stored_files.delete(tables, table, [*audience.files, *audience.left])


def erase_unfrozen(tables: Tables, client: str, *, dry_run: bool) -> set[str]:
    """Remove audiences without a week unless `dry_run`; return those with the client."""
    weeks = FrozenWeeks(tables)
    left = weeks.unnamed()
    having = [name for name in left if _having(tables, name, _parquet(tables, name), client)]
    if left and not dry_run:
        step("remove audiences that were never frozen")
        weeks.remove_unnamed()
    return {name.split(".")[0] for name in having}


def _having(tables: Tables, folder: str, paths: Iterable[str], client: str) -> list[str]:
    def has_client(path: str) -> bool:
        parts = parquet_files.parts(tables, audience_table(folder), path, ["client"])
        return any(pc.any(pc.equal(rows["client"], client)).as_py() for rows in parts)

    return [*filter(has_client, paths)]


def _parquet(tables: Tables, folder: str) -> list[str]:
    """Return all Parquet files of an audience, including those not in its table."""
    files = stored_files.data_files(tables, audience_table(folder), lambda _: False)
    return [file.path for file in files if file.path.endswith(".parquet")]


REASON = "erased"


@dataclass(frozen=True)
class ClientLedger:
    """The last entry of a client in each week, up to the ledger offsets `end`.

    `erased` are the weeks that already have an entry under its hash.
    """

    client: str
    shard: int
    end: int
    entries: dict[IsoWeek, LedgerEntry]
    erased: frozenset[IsoWeek]


def find_in_ledger(kafka: Kafka, client: str) -> ClientLedger:
    """Return the ledger entries of a client under its own id."""
    place = partition_with(kafka, kafka.topic("weekly-emails"), client)
    _, end = watermark_of(kafka, place, committed=False)
    entries: dict[bool, dict[IsoWeek, LedgerEntry]] = {False: {}, True: {}}
    for week, entry in _entries(kafka, client, place.partition, None):
        entries[entry.is_erased][week] = entry
    erased = frozenset(week for week, entry in entries[True].items() if entry.state)
    return ClientLedger(client, place.partition, end, entries[False], erased)


def erase_from_ledger(
    installation: Installation, known: ClientLedger, week: IsoWeek, *, is_member: bool
) -> bool:
    """Move a client's ledger entry of a week under its hash; False if there is none.

    An audience member not mailed yet becomes `suppressed`. It is fenced like a send: a run that has
    started can no longer commit.
    """
    with closing(Ledger(installation, week, known.shard)) as ledger:
        ledger.fence()
        last = known.entries.get(week)
        for of_week, entry in _entries(installation.kafka, known.client, known.shard, known.end):
            last = entry if of_week == week and not entry.is_erased else last
        about = LedgerEntry(erased_id(known.client), None, reason=REASON, is_erased=True)
        if last is not None and last.state is not None:
            is_sending = last.state is DeliveryState.SENDING  # nobody is sending any more
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
    """Yield the client's entries by week from an offset on, under its id and its hash."""
    own = {id_.key("") for id_ in (LedgerId(client), LedgerId.erased(client))}
    partition = TopicPartition(kafka.topic("weekly-emails"), shard)
    for message in read_to_end(kafka, partition, start=start):
        key = message.key() or b""
        if key[WEEK_BYTES:] not in own:
            continue
        try:
            week = IsoWeek.parse(key[:WEEK_BYTES].decode(errors="replace"))
        except UsageError:  # no valid week: written by another program and never read
            continue
        entry = decode(key, message.value(), week)
        assert entry is not None  # noqa: S101 - its key has the week
        yield week, entry
