"""The tables: how large they are, and how long the disk lasts at the rate of the last week."""

import shutil
from datetime import datetime
from pathlib import Path

from shardpost.maintenance.table_sizes import table_sizes
from shardpost.settings import Settings
from shardpost.watch.model.found import Found


def look(settings: Settings, _now: datetime) -> Found:
    """Measure the tables, and the disk unless they are in an object store."""
    found = Found()
    for size in table_sizes(settings):
        found.measure("table_rows", size.rows, table=size.table)
        found.measure("table_files", size.files, table=size.table)
        found.measure("table_bytes", size.bytes + size.log_bytes, table=size.table)
    if "://" not in settings.tables_root and Path(settings.tables_root).exists():
        found.measure("disk_free_bytes", shutil.disk_usage(settings.tables_root).free)
    return found
