"""The records of holders with very long lists, and the memory that making them takes."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from shardpost.delta import table_log
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.settings import Settings

IDS = 300_000
PROGRAM = """
import sys
from pathlib import Path

from shardpost.holders.share_holders_topic import HolderRecords
from shardpost.kafka.coordinates import TopicPartition
from shardpost.settings import Settings
from tests.support.histories import snapshot

settings = Settings(home=Path(sys.argv[1]))
place = TopicPartition("share-holders", 0)
found = HolderRecords(settings, snapshot(1, {"share_holders": 1}), place, 8 << 20)
print(sum(len(record.value) > 2_000_000 for record in found.since(0, set())))
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


def peak(home: Path, clients: int) -> int:
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
    made = table_log.opened(settings, SHARE_HOLDERS)
    write_deltalake(made, table.cast(arrow_schema(SHARE_HOLDERS)), mode="append")
    run = [sys.executable, "-c", PROGRAM, str(home)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert int(said[0]) == clients
    return int(said[1])


def test_memory_does_not_follow_the_number_of_clients_with_very_long_lists(tmp_path: Path) -> None:
    few, many = peak(tmp_path / "few", 8), peak(tmp_path / "many", 40)
    assert many - few < 240, (few, many)  # MiB; not bounded, it were 360
