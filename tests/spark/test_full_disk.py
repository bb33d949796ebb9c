"""Processes that can write no file longer than some bytes: as on a full disk."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from shardpost.maintenance import planning
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from tests.support.aged_tables import AgedTables, data_files
from tests.support.how_far import some

MAINTAIN = """
import resource, signal, sys
from datetime import datetime
from pathlib import Path
from shardpost.maintenance import planning
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
planning.noted_snapshots = lambda settings: set()
settings = Settings(home=Path(sys.argv[1]), snapshot_days=30)
now, limit = datetime.fromisoformat(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit("; ".join(maintain(settings, now).errors))
"""

LOCKED = """
import resource, signal, sys
from pathlib import Path
from shardpost.locks import LockedError, exclusive
from shardpost.settings import Settings
settings = Settings(home=Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with exclusive(settings, "it", "the job"):
    try:
        with exclusive(settings, "it", "the job"):
            print("twice")
    except LockedError as error:
        print(error)
"""


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedTables:
    monkeypatch.setattr(planning, "noted_snapshots", lambda _settings: set())
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 30})
    return AgedTables(settings, Random(7))  # noqa: S311


@pytest.mark.parametrize("limit", some([0, 100, 500]))
def test_on_a_full_disk_what_no_snapshot_needs_goes_and_all_stays_readable(
    aged: AgedTables, limit: int
) -> None:
    aged.age_and_die_thinning()
    before = data_files(aged.settings)
    args = [str(aged.settings.home), aged.now.isoformat(), str(limit)]
    done = subprocess.run(
        [sys.executable, "-c", MAINTAIN, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "\nthe tables could not be read or written: " in f"\n{done.stderr}"
    assert len(data_files(aged.settings)) < len(before)
    aged.require_all_kept()
    aged.compact()
    assert maintain(aged.settings, aged.now).dropped
    aged.require_all_kept()


def test_a_lock_is_held_on_a_full_disk_too(tmp_path: Path) -> None:
    args = [sys.executable, "-c", LOCKED, str(tmp_path)]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the job is already running (it holds ")
