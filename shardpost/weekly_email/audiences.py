"""The audiences of weeks: their files, and who is in one, without a JVM.

The files of `audiences`: a folder for each freeze, named for its week.

Audiences that no frozen week has: what killed freezes left, and killed erasures of old weeks.

Nobody reads them, and each has names and addresses as they were then. Only under the lock of
freezes are they not those of a freeze that goes on.

Who is in a week's audience, without a JVM: as it was frozen, or of an early week as of now.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from shardpost.delta import snapshots, table_log
from shardpost.delta.query import exists, path_of
from shardpost.delta.snapshot import Snapshot
from shardpost.kafka.partitioning import partition_of
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.weekly_email import frozen_weeks, ledger_guard
from shardpost.weekly_email.model.audience import why_no_mail_can_be_written
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES

_FOLDER = re.compile(r"([0-9]{4}-W[0-9]{2})-")


@dataclass(frozen=True)
class AudienceFolder:
    """One folder of the table, with files of one week; `path` is that of its file system."""

    week: str
    path: str
    files: int
    bytes: int


def is_of_week(name: str, week: object) -> bool:
    """Tell whether a file, by its path within the table, has rows of that week; and of no other."""
    return name.startswith(f"{week}-")


def week_of(name: str) -> str | None:
    """Return the week of a file or folder, by its path within the table; None of another's."""
    found = _FOLDER.match(name)
    return found[1] if found else None


def audience_folders(settings: Settings) -> Iterator[AudienceFolder]:
    """Yield all folders that are there, also those that no version of the table names."""
    system, root = located(settings)
    for folder in system.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        week = week_of(folder.base_name)
        if week is None or folder.type != fs.FileType.Directory:
            continue
        inside = system.get_file_info(fs.FileSelector(folder.path, recursive=True))
        files = [info for info in inside if info.type == fs.FileType.File]
        yield AudienceFolder(week, folder.path, len(files), sum(info.size for info in files))


def remove_folders(settings: Settings, folder: AudienceFolder) -> None:
    """Remove a folder from the disk."""
    system, _ = located(settings)
    system.delete_dir(folder.path)


def located(settings: Settings) -> tuple[fs.FileSystem, str]:
    """Return the file system of the table, and its folder there."""
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path_of(settings, AUDIENCES))
    return found


def files_have_client(system: fs.FileSystem, path: str, client: str) -> bool:
    """Tell whether a file has a client, by its path in its file system."""
    with system.open_input_file(path) as file:
        rows = pq.ParquetFile(file).read(["client"], use_threads=False)
    return bool(pc.any(pc.equal(rows.column("client"), client)).as_py())


def find_unfrozen(settings: Settings) -> list[AudienceFolder]:
    """Return their folders."""
    weeks = frozen_weeks.list_all(settings)
    frozen = {one.week for one in weeks if one.audience_erased_at is None}
    return [one for one in audience_folders(settings) if one.week not in frozen]


def weeks_of_unfrozen(
    settings: Settings, folders: Collection[AudienceFolder], client: str
) -> set[str]:
    """Return the weeks of those folders that have the client."""
    return {one.week for one in folders if _has(settings, one, client)}


def remove_unfrozen(settings: Settings, folders: Collection[AudienceFolder]) -> None:
    """Remove folders from the table, and then from the disk."""
    if not folders or not exists(settings, AUDIENCES):
        return
    step("commit without audiences that were never frozen")
    weeks = {one.week for one in folders}
    version = frozen_weeks.audience_version(settings)
    names = table_log.sizes(settings, AUDIENCES, version)
    named = [name for name in names if week_of(name) in weeks]
    if named:
        table_log.commit(settings, AUDIENCES, version, (), named)
    step("remove audiences that were never frozen")
    for folder in folders:
        remove_folders(settings, folder)


def _has(settings: Settings, folder: AudienceFolder, client: str) -> bool:
    system, _ = located(settings)
    found = system.get_file_info(fs.FileSelector(folder.path, recursive=True))
    paths = (info.path for info in found if info.path.endswith(".parquet"))
    return any(files_have_client(system, path, client) for path in paths)


# Why a client is open of which the ledger says nothing.
NOT_MAILED = "not mailed yet"


@dataclass(frozen=True)
class EarlyAudience:
    """The audience of a week that was begun early and is not frozen: who held as of an instant."""

    source: Snapshot
    as_of: datetime

    @property
    def snapshot(self) -> int:
        """The number of the snapshot that it is of, named as a frozen week names it."""
        return self.source.number


@dataclass(frozen=True)
class ShardAudience:
    """The clients of one shard, and of an early week why no mail can be written to some yet."""

    clients: list[str] = field(default_factory=list)
    without_contact: dict[str, str] = field(default_factory=dict)


WeekAudience = FrozenWeek | EarlyAudience | None


def audience_of(settings: Settings, week: IsoWeek, now: datetime) -> WeekAudience:
    """Return the audience of a week; None if no run has begun it.

    Of an early week it is the one that a run of now would have: as of now, of the week's end, or
    of the time up to which the newest snapshot has all records, whichever is first.
    """
    if frozen := frozen_weeks.find(settings, week):
        return frozen
    if not any(mark.week == str(week) for mark in ledger_guard.list_marks(settings)):
        return None
    snapshot = snapshots.current(settings)
    return EarlyAudience(snapshot, min(now, week.end, snapshot.looked_at))


def by_shard(
    settings: Settings, audience: WeekAudience, partitions: int
) -> Callable[[int], ShardAudience]:
    """Return a function that returns the audience of a shard.

    Of an audience that was erased nobody is known any more. ShardpostError if it was frozen with
    another number of partitions.
    """
    match audience:
        case FrozenWeek():
            if audience.audience_erased_at is not None:
                return lambda _shard: ShardAudience()
            audience.require_shards(partitions)
            return lambda shard: ShardAudience(frozen_weeks.clients(settings, audience, shard))
        case EarlyAudience():
            found = _early(settings, audience, partitions)
            return lambda shard: found.get(shard, ShardAudience())
        case None:
            return lambda _shard: ShardAudience()


def _early(
    settings: Settings, audience: EarlyAudience, partitions: int
) -> dict[int, ShardAudience]:
    found: dict[int, ShardAudience] = defaultdict(ShardAudience)
    for client, email, has_contact in _holding(settings, audience):
        shard = found[partition_of(client, partitions)]
        shard.clients.append(client)
        if why := why_no_mail_can_be_written(email, has_contact=has_contact):
            shard.without_contact[client] = why
    return found


def _holding(
    settings: Settings, audience: EarlyAudience, client: str | None = None
) -> Iterable[tuple[str, str | None, bool]]:
    from shardpost.holders.spark.held_positions import holding_clients  # imports PySpark

    for batch in holding_clients(settings, audience.source, audience.as_of, client):
        columns = (batch.column(name).to_pylist() for name in ("client", "email", "has_contact"))
        yield from zip(*columns, strict=True)


def why_open(settings: Settings, audience: WeekAudience, client: str) -> str | None:
    """Return why a member of the audience is open yet; None if the client is no known member."""
    match audience:
        case FrozenWeek(audience_erased_at=None):
            return NOT_MAILED if frozen_weeks.member(settings, audience, client) else None
        case EarlyAudience():
            for _, email, has_contact in _holding(settings, audience, client):
                return why_no_mail_can_be_written(email, has_contact=has_contact) or NOT_MAILED
    return None
