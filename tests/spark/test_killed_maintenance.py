"""A maintenance that is killed for real: what it left is readable."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from shardpost.maintenance import planning
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from tests.support.aged_tables import AgedTables, data_files, needed_files
from tests.support.how_far import some


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedTables:
    monkeypatch.setattr(planning, "noted_snapshots", lambda _settings: set())
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 30})
    return AgedTables(settings, Random(7))  # noqa: S311


def test_killed_in_the_middle_of_removing_all_is_readable(aged: AgedTables) -> None:
    """By kill -9, after so many files were removed."""
    aged.age(9)
    program = (
        "import os, signal, sys; from datetime import datetime; from pathlib import Path\n"
        "from pyarrow import fs; from shardpost.delta import stored_files\n"
        "from shardpost.maintenance import planning; from shardpost.maintenance.maintain import *\n"
        "from shardpost.settings import Settings\n"
        "planning.noted_snapshots = lambda settings: set()\n"
        "left = int(sys.argv[3])\n"
        "class Dying(fs.LocalFileSystem):\n"
        "    def delete_file(self, path):\n"
        "        global left; left -= 1\n"
        "        if left < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        super().delete_file(path)\n"
        "class Systems:\n"
        "    @staticmethod\n"
        "    def from_uri(uri): return Dying(), uri\n"
        "stored_files.fs = type('fs', (), {**vars(fs), 'FileSystem': Systems})\n"
        "settings = Settings(home=Path(sys.argv[1]), snapshot_days=30)\n"
        "maintain(settings, datetime.fromisoformat(sys.argv[2]))\n"
    )
    for left in some((0, 1, 7)):
        done = subprocess.run(
            [sys.executable, "-c", program, aged.settings.home, aged.now.isoformat(), str(left)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -9, done.stderr
        aged.require_all_kept()
        aged.compact()
    maintain(aged.settings, aged.now)
    aged.require_all_kept()
    assert data_files(aged.settings) == needed_files(aged.settings)
