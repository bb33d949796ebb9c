"""The memory that a sweep takes, in a process of its own."""

import subprocess
import sys
from pathlib import Path

# Every letter was reported twice, all are of one original key, and each waits for the last one.
SWEEP = """
import re, sys
from pathlib import Path
from shardpost.dead_letters import temporary_database
from shardpost.dead_letters.sweep_index import SweepIndex
from shardpost.dead_letters.sweep_partition import in_origin_order
from tests.unit.test_sweep_index import NOW, RULES, Content, record

def letter(n):
    key = b"positions-0-%d" % (n // 2)
    return record(Content("letter", key, 0, b"x", count - n, "KeyError: x", True), n)

count = int(sys.argv[1])
temporary_database.MEMORY_BYTES = 256 << 10
index = SweepIndex(RULES, NOW)
for n in range(count):
    index.add(letter(n))
letters = ((letter(selected.offset), selected) for selected in index.selected())
places = [0, 0]
for one, _ in in_origin_order(letters, index.delayed()):
    places = [count - one.offset, places[0]]
    assert places[0] > places[1]
assert places[0] == count - 1
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def peak_bytes(count: int) -> int:
    """Return how much memory a process has needed to sweep so many records."""
    command = [sys.executable, "-c", SWEEP, str(count)]
    root = Path(__file__).parents[2]
    return int(subprocess.run(command, cwd=root, check=True, capture_output=True).stdout) << 10


def test_eight_times_as_many_records_take_no_more_memory() -> None:
    assert peak_bytes(80_000) - peak_bytes(10_000) < 2 << 20
