"""The public module `shardpost.tables`, over real Delta tables; no JVM."""

import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from shardpost import tables
from shardpost.checkout import CHECKOUT
from shardpost.delta import snapshots
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.model.view_tables import REJECTED_RECORDS
from shardpost.settings import Settings
from tests.support.histories import (
    Batch,
    close,
    country_of,
    overwrite,
    put,
    rejected_row,
    snapshot,
    write,
)

COUNTRIES = [country_of("NASDAQ", "US"), country_of("LON", "GB")]
BATCHES = [
    Batch([put("1", "client1", "NASDAQ", 1), put("2", "client2", "NASDAQ", 2)], COUNTRIES),
    Batch([close("1", 30), put("3", "client2", "NASDAQ", 31)]),
]
REASON = 'expected a number for Amount, found "1,5"'


@pytest.fixture
def at(tmp_path: Path) -> Settings:
    """Give tables with two snapshots of holders, and a third with rejected records."""
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 36500})
    write(settings, BATCHES)
    rows = [rejected("positions", 9), rejected("clients", 1), rejected("positions", 2)]
    versions = dict(tables.snapshot(settings=settings).tables)
    versions[REJECTED_RECORDS.name] = overwrite(settings, REJECTED_RECORDS, rows)
    snapshots.commit(settings, snapshot(3, versions))
    return settings


def rejected(topic: str, offset: int) -> dict[str, object]:
    return rejected_row(topic, offset, 3, value=b"{}", reason=REASON)


def test_a_snapshot_is_the_newest_or_the_one_asked_for(at: Settings) -> None:
    assert [one.number for one in tables.snapshots(at)] == [1, 2, 3]
    assert tables.snapshot(settings=at).number == 3
    assert tables.snapshot(1, at) == tables.snapshots(at)[0]
    with pytest.raises(ShardpostError, match="no snapshot 4: there are 1 to 3"):
        tables.snapshot(4, at)


def test_a_time_without_a_zone_is_refused(at: Settings) -> None:
    naive = datetime(2026, 11, 17)  # noqa: DTZ001 - that is the test
    with pytest.raises(UsageError, match="expected a time with its zone"):
        tables.holders(as_of=naive, settings=at)


def test_rejected_records_are_an_arrow_table_in_the_order_of_their_coordinates(
    at: Settings,
) -> None:
    found = tables.rejected(settings=at)
    assert found["topic"].to_pylist() == ["clients", "positions", "positions"]
    assert found["offset"].to_pylist() == [1, 2, 9]
    assert found["reason"].to_pylist() == [REASON] * 3
    assert found["value"].to_pylist() == [b"{}"] * 3


def test_before_the_first_snapshot_it_says_to_compact_of_python_too(settings: Settings) -> None:
    assert tables.snapshots(settings) == []
    for read in (tables.snapshot, tables.holders, tables.rejected):
        with pytest.raises(ShardpostError, match="yet: run `shardpost compact`"):
            read(settings=settings)


def test_the_snippet_of_the_documentation_prints_the_rejected_records(at: Settings) -> None:
    page = (CHECKOUT / "docs" / "compaction.md").read_text()
    [snippet] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", snippet],
        env={**at.environ(), "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        f"{coordinates} {REASON} b'{{}}'"
        for coordinates in ("clients[0]@1", "positions[0]@2", "positions[0]@9")
    ]
