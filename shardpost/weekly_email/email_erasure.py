"""The erasure of one client from the audiences and from the ledger.

Its rows are removed from the files of all kept weeks. The steps, each of which may be the last
before a crash; the next run continues:

1. files without the client, and a version of `audiences` that has them in place of the others;
2. the row of each of these weeks names that version;
3. the files that no week needs leave the disk.

What the ledger says of it is put under a hash of the client. That a mail was sent must stay: else
the client could be mailed again. Its id, and reasons, which often have its address, must not.
"""

import re
import uuid
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyarrow import fs

from shardpost.delta import file_statistics, parquet_files, table_log
from shardpost.delta.query import exists
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.offsets import watermarks_of
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.logs import step
from shardpost.settings import Settings
from shardpost.weekly_email.audience_files import (
    audience_folders,
    files_have_client,
    is_of_week,
    located,
)
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import (
    DeliveryState,
    LedgerEntry,
    decode,
    erased_id,
    ledger_id,
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


def find_in_audiences(settings: Settings, client: str) -> list[AudienceOfClient]:
    """Return the weeks in which something of the client is left, as it is now."""
    if not exists(settings, AUDIENCES):
        return []
    newest = list(table_log.sizes(settings, AUDIENCES, FrozenWeeks(settings).audience_version()))
    on_disk = _on_disk(settings)
    weeks = (one for one in FrozenWeeks(settings).list_all() if one.audience_erased_at is None)
    found = (_find(settings, client, one, newest, on_disk) for one in weeks)
    return [one for one in found if not one.is_done]


def erase_from_audiences(settings: Settings, client: str, one: AudienceOfClient) -> None:
    """Write a week's audience anew, without the client; nobody else may freeze or mail it."""
    version = FrozenWeeks(settings).audience_version()
    step(f"write audience {one.week}")
    added = list(_write(settings, client, one))
    step(f"commit audience {one.week}")
    version = table_log.commit(settings, AUDIENCES, version, added, one.files)
    step(f"repoint {one.week}")
    if one.files or one.is_behind:
        FrozenWeeks(settings).repoint(one.week, version)
    step(f"remove files {one.week}")
    named = set(table_log.sizes(settings, AUDIENCES, version))
    system, root = located(settings)
    for name in _on_disk(settings):
        if name not in named and is_of_week(name, one.week):
            system.delete_file(f"{root}/{name}")


def _find(
    settings: Settings,
    client: str,
    frozen: FrozenWeek,
    newest: Collection[str],
    on_disk: Collection[str],
) -> AudienceOfClient:
    own = {name for name in newest if is_of_week(name, frozen.week)}
    known = table_log.sizes(settings, AUDIENCES, frozen.audience_version)
    is_behind = own != {name for name in known if is_of_week(name, frozen.week)}
    left = {name for name in on_disk if is_of_week(name, frozen.week)} - own
    shard = f"/group={partition_of(client, frozen.shards)}/"
    system, root = located(settings)
    in_shard = (name for name in sorted(own) if shard in name)
    files = [name for name in in_shard if files_have_client(system, f"{root}/{name}", client)]
    return AudienceOfClient(frozen, tuple(files), is_behind, tuple(sorted(left)))


def _write(settings: Settings, client: str, one: AudienceOfClient) -> Iterator[AddAction]:
    """Write the files of a week anew without the client; yield what adds them to the table."""
    folder = f"{one.frozen.week}-{uuid.uuid4()}"
    for number, name in enumerate(one.files):
        rows = parquet_files.read(settings, AUDIENCES, name)
        kept = rows.filter(pc.not_equal(rows.column("client"), client))
        if kept.num_rows:
            path = f"{folder}/{name.split('/')[1]}/part-{number}.parquet"
            action = parquet_files.write(settings, AUDIENCES, kept, path)
            yield file_statistics.reduced(action, AUDIENCE_STATISTICS)


def _on_disk(settings: Settings) -> list[str]:
    """Return the Parquet files that are there, by their paths within the table."""
    system, root = located(settings)
    return [
        info.path.removeprefix(f"{root}/")
        for folder in audience_folders(settings)
        for info in system.get_file_info(fs.FileSelector(folder.path, recursive=True))
        if info.type == fs.FileType.File and info.path.endswith(".parquet")
    ]


REASON = "erased"
Entries = dict[str, dict[IsoWeek, LedgerEntry]]
_KEY = re.compile(rb"([0-9]{4}-W[0-9]{2})/")


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


def find_in_ledger(settings: Settings, client: str) -> ClientLedger:
    """Return what the ledger says of a client under its own id."""
    topic = settings.topic("weekly-emails")
    shard = partition_of(client, partition_counts(settings, [topic])[topic])
    _, end = watermarks_of(settings, TopicPartition(topic, shard), committed=False)
    found: Entries = {client: {}, erased_id(client): {}}
    for own, week, entry in _entries(settings, client, shard, None):
        found[own][week] = entry
    erased = frozenset(week for week, entry in found[erased_id(client)].items() if entry.state)
    return ClientLedger(client, shard, end, found[client], erased)


def erase_from_ledger(
    settings: Settings, known: ClientLedger, week: IsoWeek, *, is_member: bool
) -> bool:
    """Put what the ledger says of a client in a week under its hash; False if it says nothing.

    A member of the audience that was not mailed yet becomes `suppressed`: it is not mailed. Behind
    the fence of a sender: a run that has begun can commit nothing more.
    """
    with closing(Ledger(settings, week, known.shard)) as ledger:
        ledger.fence()
        last = known.entries.get(week)
        for own, one, entry in _entries(settings, known.client, known.shard, known.end):
            last = entry if (own, one) == (known.client, week) else last
        entries = list(_under_hash(known, week, last, is_member=is_member))
        ledger.write(entries)
        return bool(entries)


def _under_hash(
    known: ClientLedger, week: IsoWeek, last: LedgerEntry | None, *, is_member: bool
) -> Iterator[LedgerEntry]:
    name = erased_id(known.client)
    if last is not None and last.state is not None:
        is_sending = last.state is DeliveryState.SENDING  # nobody is sending it any more
        state = DeliveryState.UNKNOWN if is_sending else last.state
        erased = replace(last, client=name, state=state, reason=REASON)
    elif is_member and week not in known.erased:
        erased = LedgerEntry(name, DeliveryState.SUPPRESSED, reason=REASON)
    else:
        return
    if last is not None:
        yield LedgerEntry(known.client, None, reason=REASON)
    yield erased


def _entries(
    settings: Settings, client: str, shard: int, start: int | None
) -> Iterator[tuple[str, IsoWeek, LedgerEntry]]:
    """Yield the client's entries from an offset on, oldest first: under which id, week, entry."""
    ids = {ledger_id(client): client, erased_id(client): erased_id(client)}
    own = {name.encode(errors="surrogatepass"): one for name, one in ids.items()}
    partition = TopicPartition(settings.topic("weekly-emails"), shard)
    for message in read_to_end(settings, partition, start=start):
        key = message.key() or b""
        found = _KEY.match(key)
        if not found or key[found.end() :] not in own:
            continue
        week = IsoWeek.parse(found[1].decode())
        entry = decode(key, message.value(), week)
        assert entry is not None  # noqa: S101 - its key has the week
        yield own[key[found.end() :]], week, entry
