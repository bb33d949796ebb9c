"""The public module `shardpost.tables`, over real Delta tables; no JVM."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost import tables
from shardpost.checkout import CHECKOUT
from shardpost.delta import snapshots
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.model.view_tables import REJECTED_RECORDS
from shardpost.settings import Settings
from tests.support.histories import START, Batch, close, country_of, overwrite, put, snapshot, write

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
    row = {"topic": topic, "partition": 0, "offset": offset, "timestamp": START}
    return row | {"key": b"1", "value": b"{}", "headers": [], "reason": REASON, "snapshot": 3}


def test_a_snapshot_is_the_newest_or_the_one_asked_for(at: Settings) -> None:
    assert [one.number for one in tables.snapshots(at)] == [1, 2, 3]
    assert tables.snapshot(settings=at).number == 3
    assert tables.snapshot(1, at) == tables.snapshots(at)[0]
    with pytest.raises(ShardpostError, match="no snapshot 4: there are 1 to 3"):
        tables.snapshot(4, at)


def test_holders_are_a_dict_of_any_snapshot_client_shard_and_time(at: Settings) -> None:
    first = {"client1": ["1"], "client2": ["2"]}
    assert tables.holders(settings=at) == {"client2": ["2", "3"]}
    assert tables.holders(snapshot=1, settings=at) == first
    assert tables.holders("client1", snapshot=1, settings=at) == {"client1": ["1"]}
    assert tables.holders(shard=7, settings=at) == {}
    assert tables.holders(as_of=datetime(2026, 11, 17, tzinfo=UTC), settings=at) == first


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


def test_an_explanation_is_a_list_of_what_put_and_took(at: Settings) -> None:
    found = tables.explain("client1", settings=at)
    assert [(one.change, str(one.coordinates)) for one in found] == [
        ("put", "positions[0]@0"),
        ("took", "positions[2]@2"),
    ]
    assert [one.change for one in tables.explain("client1", "1", 1, at)] == ["put"]
    assert tables.explain("nobody", settings=at) == []


def test_before_the_first_snapshot_it_says_to_compact(tmp_path: Path) -> None:
    empty = Settings.model_validate({"home": tmp_path})
    assert tables.snapshots(empty) == []
    for read in (tables.snapshot, tables.holders, tables.rejected):
        with pytest.raises(ShardpostError, match="yet: run `shardpost compact`"):
            read(settings=empty)


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
