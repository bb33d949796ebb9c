"""Which small files become one, and what merging them leaves and costs."""

from hypothesis import given
from hypothesis import strategies as st

from shardpost.delta.parquet_files import FILES_PER_TIER, TIER_BYTES, to_merge
from shardpost.delta.table import Table, columns

PLAIN = Table("things", columns("number BIGINT"))
GROUPED = Table("grouped", columns("number BIGINT, shard INT"), "shard")
SMALL, LARGE = 1000, TIER_BYTES[-1]
FOOTER = 4096  # of the smallest file; rows beside each other have one


def test_a_tier_is_merged_once_it_is_full() -> None:
    files = {f"{number:02d}.parquet": SMALL for number in range(FILES_PER_TIER)}
    assert to_merge(PLAIN, files) == [sorted(files)]
    del files["00.parquet"]
    assert to_merge(PLAIN, files) == []


def test_smaller_files_go_with_a_full_tier_and_larger_ones_do_not() -> None:
    full = {f"full{number}": TIER_BYTES[0] for number in range(FILES_PER_TIER)}
    assert to_merge(PLAIN, full | {"small": SMALL, "next": TIER_BYTES[1]}) == [
        sorted([*full, "small"])
    ]
    assert to_merge(PLAIN, {f"large{number}": LARGE for number in range(100)}) == []


def test_groups_stay_apart() -> None:
    one = {f"{number:02d}/group=1/a.parquet": SMALL for number in range(FILES_PER_TIER)}
    other = {"00/group=2/a.parquet": SMALL}
    assert to_merge(GROUPED, one | other) == [sorted(one)]


@given(st.lists(st.integers(1, 1 << 20), min_size=200, max_size=1500))
def test_few_files_are_left_and_few_bytes_written_again(rows: list[int]) -> None:
    files: dict[str, int] = {}
    again = 0
    for number, size in enumerate(rows):
        for group in to_merge(PLAIN, files):
            merged = sum(files.pop(path) - FOOTER for path in group) + FOOTER
            files[f"merged{number}"] = merged
            again += merged
        files[f"new{number}"] = size + FOOTER
    large = sum(size >= LARGE for size in files.values())
    assert len(files) - large <= FILES_PER_TIER * len(TIER_BYTES)
    assert sum(files.values()) == sum(rows) + FOOTER * len(files)
    assert again <= 3 * sum(size + FOOTER for size in rows)
