"""Audiences that no frozen week has: what killed freezes left, and killed erasures of old weeks.

Nobody reads them, and each has names and addresses as they were then. Only under the lock of
freezes are they not those of a freeze that goes on.
"""

from collections.abc import Collection

from pyarrow import fs

from shardpost.delta import table_log
from shardpost.delta.query import exists
from shardpost.settings import Settings
from shardpost.steps import step
from shardpost.weekly_email import audience_files, frozen_weeks
from shardpost.weekly_email.audience_files import AudienceFolder
from shardpost.weekly_email.model.tables import AUDIENCES


def find(settings: Settings) -> list[AudienceFolder]:
    """Return their folders."""
    weeks = frozen_weeks.list_all(settings)
    frozen = {one.week for one in weeks if one.audience_erased_at is None}
    return [one for one in audience_files.folders(settings) if one.week not in frozen]


def weeks_of(settings: Settings, folders: Collection[AudienceFolder], client: str) -> set[str]:
    """Return the weeks of those folders that have the client."""
    return {one.week for one in folders if _has(settings, one, client)}


def remove(settings: Settings, folders: Collection[AudienceFolder]) -> None:
    """Remove folders from the table, and then from the disk."""
    if not folders or not exists(settings, AUDIENCES):
        return
    step("commit without audiences that were never frozen")
    weeks = {one.week for one in folders}
    version = frozen_weeks.audience_version(settings)
    names = table_log.sizes(settings, AUDIENCES, version)
    named = [name for name in names if audience_files.week_of(name) in weeks]
    if named:
        table_log.commit(settings, AUDIENCES, version, (), named)
    step("remove audiences that were never frozen")
    for folder in folders:
        audience_files.remove(settings, folder)


def _has(settings: Settings, folder: AudienceFolder, client: str) -> bool:
    system, _ = audience_files.located(settings)
    found = system.get_file_info(fs.FileSelector(folder.path, recursive=True))
    paths = (info.path for info in found if info.path.endswith(".parquet"))
    return any(audience_files.has_client(system, path, client) for path in paths)
