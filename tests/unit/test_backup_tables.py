"""What `scripts/backup-tables` says; what it copies is in tests/e2e."""

import subprocess
from pathlib import Path

import pytest

from shardpost.checkout import CHECKOUT

SCRIPT = CHECKOUT / "scripts" / "backup-tables"


def backup_tables(*folders: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *folders], capture_output=True, text=True, check=False)


def test_it_says_how_many_tables_it_copied_and_where_to(tmp_path: Path) -> None:
    for table in ("snapshots", "positions"):
        log = tmp_path / "tables" / table / "_delta_log"
        log.mkdir(parents=True)
        (log / "0.json").write_text("{}")
    copy = tmp_path / "copy"
    done = backup_tables(str(tmp_path / "tables"), str(copy))
    assert (done.returncode, done.stdout) == (0, f"backup-tables: 2 tables copied to {copy}\n")
    assert (copy / "positions" / "_delta_log" / "0.json").read_text() == "{}"


@pytest.mark.parametrize("folders", [(), ("one",), ("one", "two", "three")])
def test_other_than_two_folders_are_bad_usage(folders: tuple[str, ...]) -> None:
    done = backup_tables(*folders)
    assert done.returncode == 2
    assert "expected two folders: scripts/backup-tables TABLES COPY" in done.stderr
