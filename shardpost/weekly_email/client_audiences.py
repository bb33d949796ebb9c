"""One client in the audiences: its rows leave the files of all weeks that are kept.

The steps, each of which may be the last before a crash; the next run goes on:

1. files without the client, and a version of `audiences` that has them in place of the others;
2. the row of each of these weeks names that version;
3. the files that no week needs leave the disk.
"""

import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyarrow import fs

from shardpost.delta import log_statistics, parquet_files, table_log
from shardpost.delta.query import exists
from shardpost.kafka.partitioning import partition_of
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.audience_files import folders, has_client, is_of_week, located
from shardpost.weekly_email.model.frozen_week import FrozenWeek
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.tables import AUDIENCE_STATISTICS, AUDIENCES


@dataclass(frozen=True)
class AudienceOfClient:
    """A week whose audience is to be written anew, or an interrupted run began to.

    `files` have the client; `is_behind`: the week's row names files that are to go; `left` are
    files on the disk that the table does not name any more.
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


def find(settings: Settings, client: str) -> list[AudienceOfClient]:
    """Return the weeks in which something of the client is left, as it is now."""
    if not exists(settings, AUDIENCES):
        return []
    newest = list(table_log.sizes(settings, AUDIENCES, frozen_weeks.audience_version(settings)))
    on_disk = _on_disk(settings)
    weeks = (one for one in frozen_weeks.list_all(settings) if one.audience_erased_at is None)
    found = (_find(settings, client, one, newest, on_disk) for one in weeks)
    return [one for one in found if not one.is_done]


def erase(settings: Settings, client: str, one: AudienceOfClient) -> None:
    """Write a week's audience anew, without the client; nobody else may freeze or mail it."""
    version = frozen_weeks.audience_version(settings)
    step(f"write audience {one.week}")
    added = list(_write(settings, client, one))
    step(f"commit audience {one.week}")
    version = table_log.commit(settings, AUDIENCES, version, added, one.files)
    step(f"repoint {one.week}")
    if one.files or one.is_behind:
        frozen_weeks.repoint(settings, one.week, version)
    step(f"remove files {one.week}")
    named = set(table_log.sizes(settings, AUDIENCES, version))
    system, root = located(settings)
    for name in _on_disk(settings):
        if name not in named and is_of_week(name, one.week):
            system.delete_file(f"{root}/{name}")


def reduce_log(settings: Settings) -> None:
    """Remove names and addresses from the table's log, where older releases wrote them."""
    if exists(settings, AUDIENCES):
        step("reduce log")
        log_statistics.reduce_log(settings, AUDIENCES, AUDIENCE_STATISTICS)


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
    files = [name for name in in_shard if has_client(system, f"{root}/{name}", client)]
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
            yield log_statistics.reduced(action, AUDIENCE_STATISTICS)


def _on_disk(settings: Settings) -> list[str]:
    """Return the Parquet files that are there, by their paths within the table."""
    system, root = located(settings)
    return [
        info.path.removeprefix(f"{root}/")
        for folder in folders(settings)
        for info in system.get_file_info(fs.FileSelector(folder.path, recursive=True))
        if info.type == fs.FileType.File and info.path.endswith(".parquet")
    ]
