"""What `shardpost doctor` says of an open rebuild."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from shardpost.settings import Settings
from shardpost.watch import table_checks
from tests.support.aged_rebuilds import AgedRebuilds
from tests.support.aged_tables import AgedTables


@pytest.fixture
def beside(tmp_path: Path) -> AgedRebuilds:
    settings = Settings.model_validate({"home": tmp_path})
    return AgedRebuilds(AgedTables(settings, Random(1)))  # noqa: S311


def said(beside: AgedRebuilds, **later: int) -> list[str]:
    """Return what is said so much later, all of which is well."""
    found = [
        *table_checks.check_rebuild(beside.aged.settings, datetime.now(UTC) + timedelta(**later))
    ]
    assert {one.state for one in found} <= {"ok"}
    return [one.found for one in found]


def test_without_a_rebuild_nothing_is_said(beside: AgedRebuilds) -> None:
    assert said(beside) == []
    beside.aged.compact()
    assert said(beside) == []


def test_one_that_is_built_without_progress_or_open_for_long_is_named(
    beside: AgedRebuilds,
) -> None:
    beside.aged.compact()
    beside.begin("share_holders")
    [line] = said(beside)
    assert line.startswith("2 is building, begun ")
    assert "no progress" not in line
    [line] = said(beside, hours=7)
    assert "no progress for 7 h: `shardpost rebuild start` goes on" in line
    beside.build()
    assert "take disk" not in said(beside, days=6)[0]
    assert "2 is ready" in said(beside, days=8)[0]
    assert "take disk until `shardpost rebuild drop`" in said(beside, days=8)[0]
    beside.drop()
    assert said(beside, days=8) == []
