"""The lists of the last dry run of each week, kept for who looks at them page by page.

Files beside the tables: a folder per week and run, in it one of dry_run_file.py per group of
shards. They have addresses and holdings, so they go with the audience of the week, and all of them
when a client is erased: a dry run is soon made again.
"""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from pyarrow import fs

from shardpost.delta import snapshots, storage
from shardpost.delta.object_store import Tables
from shardpost.delta.table import Table
from shardpost.errors import UsageError
from shardpost.weekly_email.dry_run_file import DryRunLists
from shardpost.weekly_email.model.email_request import shard_text
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.prepared_week import PreparedWeek

# No table of Delta's, but where one would be.
FOLDER = Table("dry_runs", ())
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def keep(tables: Tables, week: PreparedWeek, run: str, lists: Path) -> None:
    """Keep the lists of a run, which are in that file, in place of those of the week's others.

    Not if a client was erased since the week was prepared: it may be in them.
    """
    name = str(week.iso_week)
    folder = f"{name}/{_NOT_IN_NAMES.sub('-', run)}"
    for other in _folders(tables, name):
        if other != folder:
            storage.delete_folder(tables, FOLDER, other)
    part = f"{folder}/{shard_text(week.shards)}.parquet"
    storage.make_folder_of(tables, FOLDER, part)
    system, path = storage.folder(tables, FOLDER, part)
    # Under its name it is whole, wherever a run is killed.
    fs.copy_files(str(lists), f"{path}.new", destination_filesystem=system)
    system.move(f"{path}.new", path)
    if snapshots.current(tables).erased_in != week.snapshot.erased_in:
        storage.delete(tables, FOLDER, [part])


def find(tables: Tables, week: IsoWeek) -> DryRunLists | None:
    """Return the last dry run of a week, by the groups of shards that are done; None if none is.

    `about` has the `counts` of its lists, and `shards` for each group.
    """
    system, path = storage.folder(tables, FOLDER, str(week))
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    parts = [DryRunLists.at(info.path, system) for info in found if info.extension == "parquet"]
    if not parts:
        return None
    newest = max((part.about for part in parts), key=lambda about: str(about["made_at"]))
    own = [part for part in parts if part.about["run"] == newest["run"]]
    own.sort(key=lambda part: list(part.about["shards"]))
    lists = DryRunLists(newest, [file for part in own for file in part.files])
    shards = [shard_text(part.about["shards"]) for part in own]
    return DryRunLists({**newest, "counts": lists.counts, "shards": shards}, lists.files)


def forget(tables: Tables) -> None:
    """Delete the lists of all weeks."""
    storage.delete_folder(tables, FOLDER)


def forget_old(tables: Tables, now: datetime, days: float) -> None:
    """Delete the lists of the weeks that ended more than so many days ago."""
    for name in _folders(tables, ""):
        with suppress(UsageError):  # a folder that is named for no week is not ours
            if now - IsoWeek.parse(name).end > timedelta(days=days):
                storage.delete_folder(tables, FOLDER, name)


def _folders(tables: Tables, inside: str) -> list[str]:
    """Return the folders within one, by their paths below all."""
    system, path = storage.folder(tables, FOLDER, inside)
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    names = (info.base_name for info in infos if info.type == fs.FileType.Directory)
    return [f"{inside}/{name}" if inside else name for name in names]
