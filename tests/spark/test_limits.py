"""Processes at their limits: memory that does not follow the data; files that cannot be written."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from shardpost.checkout import CHECKOUT
from shardpost.delta import storage
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.maintenance import removable_files
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
from tests.support.aged_tables import AgedTables, data_files
from tests.support.how_far import some
from tests.support.installed import installed

IDS = 300_000
RECORDS = """
import sys
from pathlib import Path

from shardpost.holders.holder_records import HolderRecords
from shardpost.installation import Installation
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from tests.support.histories import snapshot

own = Installation(Settings(home=Path(sys.argv[1])))
place = TopicPartition("share-holders", 0)
found = HolderRecords(own.tables, snapshot(1, {"share_holders": 1}), place, 8 << 20)
print(sum(len(record.value) > 2_000_000 for record in found.since(0, set())))
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""

# Every letter was reported twice, all are of one original key, and each waits for the last one.
SWEEP = """
import re, sys
from pathlib import Path
from tempfile import NamedTemporaryFile
from shardpost import projection
from shardpost.dead_letters.stored_letters import TABLES, LettersNow, fold
from shardpost.dead_letters.sweep import in_origin_order
from tests.unit.test_stored_letters import NOW, RULES, Content, record

def letter(n):
    key = b"positions-0-%d" % (n // 2)
    return record(Content("letter", key, 0, b"x", count - n, "KeyError: x", True), n)

count = int(sys.argv[1])
projection.MEMORY_BYTES = 256 << 10
with NamedTemporaryFile() as file, projection.opened(Path(file.name)) as database:
    for table in TABLES:
        database.execute(f"CREATE TABLE {table}")
    for n in range(0, count, 1_000):
        fold(RULES, database, [*map(letter, range(n, n + 1_000))])
    index = LettersNow(database, NOW)
    index.select()
    letters = ((letter(selected.offset), selected) for selected in index.selected())
    places = [0, 0]
    for one, _ in in_origin_order(letters, index.delayed()):
        places = [count - one.offset, places[0]]
        assert places[0] > places[1]
    assert places[0] == count - 1
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""

MAINTAIN = """
import resource, signal, sys
from datetime import datetime
from pathlib import Path
from shardpost.installation import Installation
from shardpost.maintenance import removable_files
from shardpost.maintenance.maintain import maintain
from shardpost.settings import Settings
removable_files.noted_snapshots = lambda own: set()
own = Installation(Settings(home=Path(sys.argv[1]), snapshot_days=30))
now, limit = datetime.fromisoformat(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit("; ".join(maintain(own, now).errors))
"""

LOCKED = """
import resource, signal, sys
from pathlib import Path
from shardpost.installation import Installation
from shardpost.locks.locks import LockedError, exclusive
from shardpost.settings import Settings
own = Installation(Settings(home=Path(sys.argv[1])))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with exclusive(own.files, "it", "the job"):
    try:
        with exclusive(own.files, "it", "the job"):
            print("twice")
    except LockedError as error:
        print(error)
"""


def said(program: str, *arguments: object) -> str:
    """Return what a process prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return done.stdout


def peak_of_records(home: Path, clients: int) -> int:
    """Return the MiB that a process takes at most that makes records of so many long lists."""
    settings = Settings(home=home)
    ids = pa.array(range(IDS), pa.int64()).cast(pa.string())
    table = pa.table(
        {
            "client": [f"client{n}" for n in range(clients)],
            "positions": pa.ListArray.from_arrays(
                pa.array(range(0, IDS * clients + 1, IDS), pa.int32()),
                pa.concat_arrays([ids] * clients),
            ),
            "snapshot": pa.array([1] * clients, pa.int64()),
            "shard": pa.array([0] * clients, pa.int32()),
        }
    )
    made = storage.writable(installed(settings).tables, SHARE_HOLDERS)
    write_deltalake(made, table.cast(arrow_schema(SHARE_HOLDERS)), mode="append")
    count, mebibytes = map(int, said(RECORDS, home).split())
    assert count == clients
    return mebibytes


@pytest.mark.one_of("limits of memory")
def test_memory_does_not_follow_the_number_of_clients_with_very_long_lists(tmp_path: Path) -> None:
    few, many = peak_of_records(tmp_path / "few", 8), peak_of_records(tmp_path / "many", 40)
    assert many - few < 240, (few, many)  # MiB; not bounded, it were 360


@pytest.mark.one_of("limits of memory")
def test_eight_times_as_many_records_of_a_sweep_take_no_more_memory() -> None:
    few, many = (int(said(SWEEP, count)) << 10 for count in (20_000, 160_000))
    assert many - few < 6 << 20  # caches that fill; not bounded, it were 40


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgedTables:
    monkeypatch.setattr(removable_files, "noted_snapshots", lambda _settings: set())
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
    assert maintain(installed(aged.settings), aged.now).dropped
    aged.require_all_kept()


def test_a_lock_is_held_on_a_full_disk_too(tmp_path: Path) -> None:
    assert said(LOCKED, tmp_path).startswith("the job is already running (it holds ")
