"""Audiences that Spark froze are erased, whole or of one client, and Spark reads the others."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from shardpost.delta.storage import path_of
from shardpost.errors import ShardpostError
from shardpost.locks.locks import exclusive
from shardpost.maintenance.erasure import ErasureRequest, erase
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_run import run as weekly_email
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES
from shardpost.weekly_email.spark import audience_freeze
from shardpost.weekly_email.week_retention import close_old_weeks, erase_old_audiences
from shardpost.weekly_email.week_state import WeekState
from tests.support.email_requests import email_request
from tests.support.installed import installed
from tests.support.mail_server import MailServer
from tests.support.week_tables import World

pytestmark = pytest.mark.usefixtures("spark")

OLD, WEEK = IsoWeek(2024, 30), IsoWeek(2026, 45)
NOW = WEEK.end + timedelta(hours=8)
LONG_AGO = datetime.fromisoformat("2024-01-01T00:00:00+00:00")
NAMES = ("client1", "client2", "client3")


@pytest.fixture
def world(settings: Settings, server: MailServer) -> World:
    """Give a world in which three weeks are frozen, and nobody of the last one is mailed yet."""
    apply_topics(installed(settings))
    found = World(settings.model_copy(update={"smtp_port": server.port}))
    for number, name in enumerate(NAMES):
        found.position(str(number), name, at=LONG_AGO)
        found.client(name)
    for week in (OLD, WEEK.previous, WEEK):
        found.commit(looked_at=week.end + timedelta(hours=8))
        assert run(found, "--freeze-only", week=week)[1]["recipients"] == 3
    return found


def run(world: World, *arguments: str, week: IsoWeek = WEEK) -> tuple[int, dict[str, Any]]:
    now = week.end + timedelta(hours=8)
    return weekly_email(email_request(week, *arguments, now=now), installed(world.settings))


def in_files(world: World) -> str:
    """Return all that is in all files of the audiences, and in the table's log."""
    table = Path(path_of(installed(world.settings).tables, AUDIENCES))
    files = map(parquet.ParquetFile, table.rglob("*.parquet"))
    rows = [str(row) for file in files for row in file.read().to_pylist()]
    logs = [file.read_text() for file in table.glob("*/_delta_log/*.json")]
    return "\n".join([*rows, *logs])


@pytest.mark.one_of("erasures of an audience")
def test_an_old_audience_goes_and_the_next_one_is_mailed_as_it_was_frozen(
    world: World, server: MailServer
) -> None:
    assert erase_old_audiences(installed(world.settings), NOW).weeks == [str(OLD)]
    assert str(OLD) not in "".join(
        path.name for path in Path(path_of(installed(world.settings).tables, AUDIENCES)).iterdir()
    )
    assert close_old_weeks(installed(world.settings), NOW).weeks == [str(OLD)]
    code, listed = run(world, "--dry-run")
    assert (code, len(listed["recipients"])) == (0, 3)
    assert run(world)[0] == 0
    assert server.taken == {f"{name}@x.example": 1 for name in NAMES}
    for more in ((), ("--dry-run",), ("--shards", "0")):
        with pytest.raises(ShardpostError, match="2024-W30 was closed on"):
            run(world, *more, week=OLD)
    assert "2024-W30 was closed on" in run(world, "--freeze-only", week=OLD)[1]["skipped"]
    assert sum(server.taken.values()) == 3


@pytest.mark.one_of("erasures of an audience")
def test_one_client_goes_and_the_others_are_mailed(world: World, server: MailServer) -> None:
    assert "client2@x.example" in in_files(world)
    request = ErasureRequest("client2", "anna", "it asked for it", NOW)
    result = erase(installed(world.settings), request)
    assert result.audiences == [str(OLD), str(WEEK.previous), str(WEEK)]
    found = in_files(world)
    assert "client1@x.example" in found
    assert "client2" not in found
    assert run(world)[0] == 0
    assert server.taken == {"client1@x.example": 1, "client3@x.example": 1}
    assert run(world, "--again", "SUPPRESSED")[0] == 0
    assert sum(server.taken.values()) == 2


def test_the_logs_of_freezes_have_bounds_of_weeks_and_shards_alone(world: World) -> None:
    root = Path(path_of(installed(world.settings).tables, AUDIENCES))
    logs = root.glob("*/_delta_log/*.json")
    actions = [json.loads(line) for file in logs for line in file.read_text().splitlines()]
    found = [json.loads(one["add"]["stats"]) for one in actions if "add" in one]
    assert found
    for stats in found:
        for each in ("minValues", "maxValues"):
            assert set(stats[each]) <= {"week", "shard"}


@pytest.mark.one_of("erasures of an audience")
def test_a_run_whose_audience_loses_a_client_before_its_lock_mails_the_others(
    world: World, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def and_then_it_is_erased(guard: WeekState, shards: Sequence[int]) -> Iterator[None]:
        monkeypatch.undo()
        erase(installed(world.settings), ErasureRequest("client2", "anna", "x", NOW))
        with guard.locked(shards):
            yield

    monkeypatch.setattr(WeekState, "locked", and_then_it_is_erased)
    assert run(world)[0] == 0
    assert server.taken == {"client1@x.example": 1, "client3@x.example": 1}
    assert FrozenWeeks(installed(world.settings).tables).find(WEEK) is not None


@pytest.mark.one_of("erasures of an audience")
def test_a_freeze_that_began_before_an_erasure_has_behind_its_lock_what_the_erasure_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = IsoWeek(2026, 46)
    world.commit(looked_at=later.end + timedelta(hours=8))

    @contextmanager
    def after_an_erasure(*given: Any, **more: Any) -> Iterator[None]:
        monkeypatch.undo()
        erase(installed(world.settings), ErasureRequest("client2", "anna", "x", NOW))
        with exclusive(*given, **more):
            yield

    monkeypatch.setattr(audience_freeze, "exclusive", after_an_erasure)
    assert run(world, "--freeze-only", week=later)[1]["recipients"] == 3
    assert str(later) in in_files(world)
    assert "client1@x.example" in in_files(world)
    assert "client2@x.example" not in in_files(world)
