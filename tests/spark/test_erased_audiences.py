"""Audiences that Spark froze are erased, and Spark reads the others as they were frozen."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shardpost.delta.query import path_of
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.arguments import parser, request_of
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.tables import AUDIENCES
from shardpost.weekly_email.old_audiences import erase_old
from shardpost.weekly_email.old_weeks import close_old
from shardpost.weekly_email.run import run as weekly_email
from tests.support.mail_server import MailServer
from tests.support.week_tables import World

OLD, WEEK = IsoWeek(2024, 30), IsoWeek(2026, 45)
NOW = WEEK.end + timedelta(hours=8)
LONG_AGO = datetime.fromisoformat("2024-01-01T00:00:00+00:00")
NAMES = ("client1", "client2", "client3")


@pytest.fixture
def world(settings: Settings, spark: SparkSession, server: MailServer) -> World:
    """Give a world in which three weeks are frozen, and nobody of the last one is mailed yet."""
    apply_topics(settings)
    found = World(spark, settings.model_copy(update={"smtp_port": server.port}))
    for number, name in enumerate(NAMES):
        found.position(str(number), name, at=LONG_AGO)
        found.client(name)
    for week in (OLD, WEEK.previous, WEEK):
        found.commit(looked_at=week.end + timedelta(hours=8))
        assert run(found, "--freeze-only", week=week)[1]["recipients"] == 3
    return found


def run(world: World, *arguments: str, week: IsoWeek = WEEK) -> tuple[int, dict[str, Any]]:
    now = (week.end + timedelta(hours=8)).isoformat()
    request = request_of(parser().parse_args(["--week", str(week), "--now", now, *arguments]))
    return weekly_email(request, world.settings)


def test_an_old_audience_goes_and_the_next_one_is_mailed_as_it_was_frozen(
    world: World, server: MailServer
) -> None:
    assert erase_old(world.settings, NOW).weeks == [str(OLD)]
    assert str(OLD) not in "".join(
        path.name for path in Path(path_of(world.settings, AUDIENCES)).iterdir()
    )
    assert close_old(world.settings, NOW).weeks == [str(OLD)]
    code, listed = run(world, "--dry-run")
    assert (code, listed["compared_with"]) == (0, str(WEEK.previous))
    assert len(listed["recipients"]) == 3
    assert run(world)[0] == 0
    assert server.taken == {f"{name}@x.example": 1 for name in NAMES}
    for more in ((), ("--dry-run",), ("--shards", "0")):
        with pytest.raises(ShardpostError, match="2024-W30 was closed on"):
            run(world, *more, week=OLD)
    assert "2024-W30 was closed on" in run(world, "--freeze-only", week=OLD)[1]["skipped"]
    assert sum(server.taken.values()) == 3
