"""The lists of a dry run, without the run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shardpost.weekly_email import dry_runs
from shardpost.weekly_email.dry_runs import DryRunLists


def listed_at(folder: Path, lines: Iterable[dict[str, Any]]) -> DryRunLists:
    """Write lines into a folder; return the lists."""
    dry_runs.write(folder / dry_runs.NAME, lines, {})
    return DryRunLists.at(folder / dry_runs.NAME)
