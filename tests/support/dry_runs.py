"""The lists of a dry run, without the run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shardpost.weekly_email import dry_run_file
from shardpost.weekly_email.dry_run_file import DryRunLists


def listed_at(folder: Path, lines: Iterable[dict[str, Any]]) -> DryRunLists:
    """Write lines into a folder; return the lists."""
    dry_run_file.write(folder / dry_run_file.NAME, lines, {})
    return DryRunLists.at(folder / dry_run_file.NAME)
