"""What `scripts/backup-tables` says; what it copies is in tests/e2e."""

import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from shardpost.checkout import CHECKOUT
from shardpost.delta import snapshots
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.settings import Settings
from tests.support.aged_rebuilds import AgedRebuilds
from tests.support.aged_tables import AgedTables

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


def test_tables_beside_those_in_use_are_copied_after_what_names_them(tmp_path: Path) -> None:
    settings = Settings.model_validate({"home": tmp_path / "home"})
    aged = AgedTables(settings, Random(1))  # noqa: S311
    beside = AgedRebuilds(aged)
    aged.compact()
    beside.begin(SHARE_HOLDERS.name)
    beside.build()
    copy = tmp_path / "copy"
    command = ["bash", "-x", str(SCRIPT), settings.tables_root, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    copied = re.findall(r"^\+ copy_table (\S+)$", done.stderr, re.MULTILINE)
    assert copied[:2] == ["rebuilds", "snapshots"]
    assert "share_holders.2" in copied
    restored = settings.model_copy(update={"tables": str(copy)})
    aged.settings = restored
    beside.require_readable()
    beside.swap()
    assert snapshots.current(restored).folders == {SHARE_HOLDERS.name: "share_holders.2"}
    assert snapshots.current(settings).number == 1


@pytest.mark.parametrize("folders", [(), ("one",), ("one", "two", "three")])
def test_other_than_two_folders_are_bad_usage(folders: tuple[str, ...]) -> None:
    done = backup_tables(*folders)
    assert done.returncode == 2
    assert "expected two folders: scripts/backup-tables TABLES COPY" in done.stderr
