"""A result that collapses leaves nothing behind until a person accepts it: tables, topic, week."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shardpost.delta import snapshots
from shardpost.holders.plausibility import CollapseError
from shardpost.settings import Settings
from shardpost.watch.sources import collect_snapshot
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.email_run import run as weekly_email
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.compacting import agree
from tests.support.installed import installed
from tests.support.jobs_here import CommandsHere
from tests.support.record_streams import Stream
from tests.support.reference import closed, position, published

LONG_AGO = 1_760_000_000_000
MANY = [position(str(n), f"client{n}", "NASDAQ", timestamp_ms=LONG_AGO) for n in range(12)]


def freeze(settings: Settings, week: IsoWeek, **asked: Any) -> bool:
    """Freeze a week; return whether it was not frozen before."""
    request = EmailRequest(week, datetime.now(UTC), Mode.FREEZE, **asked)
    code, result = weekly_email(request, installed(settings))
    assert code == 0
    return bool(result["is_new"])


def test_nothing_is_published_or_frozen_of_a_result_that_collapses_until_it_is_accepted(
    stream: Stream, spark: SparkSession
) -> None:
    del spark  # the jobs find it
    settings, week = stream.settings, IsoWeek.last_ended(datetime.now(UTC))
    mistyped = CommandsHere(settings.model_copy(update={"country": "us"}).environ())
    stream.send(MANY)
    assert "country us: no exchange has it: did you mean US?" in mistyped.refused("compact", code=2)
    assert snapshots.newest(installed(settings).tables) is None
    stream.compact()
    assert "and snapshot 1 is for country US" in mistyped.refused("compact", code=2)
    assert [freeze(settings, week.previous) for _ in range(2)] == [True, False]

    before, shardpost = published(settings), CommandsHere(settings.environ())
    stream.send(closed(str(n), timestamp_ms=LONG_AGO + 1) for n in range(12))
    line = shardpost.refused("compact", code=3)
    assert (
        "snapshot 2: open positions fall from 12 to 0, holders fall from 12 to 0, by more" in line
    )
    assert (published(settings), snapshots.current(installed(settings).tables).number) == (
        before,
        1,
    )
    [told] = collect_snapshot(installed(settings), datetime.now(UTC)).conditions
    assert (told.rule, told.text in line) == ("compaction-refused", True)
    assert shardpost.json("compact", "--accept-drop")["published"] == 12
    agree(settings, stream.fold)
    assert collect_snapshot(installed(settings), datetime.now(UTC)).conditions == []

    with pytest.raises(CollapseError, match="recipients fall from 12 to 0"):
        freeze(settings, week)
    assert FrozenWeeks(installed(settings).tables).find(week) is None
    for accepts, code in ((False, 3), (True, 0)):
        looks = EmailRequest(week, datetime.now(UTC), Mode.DRY_RUN, accept_drop=accepts)
        found = weekly_email(looks, installed(settings))
        assert (found[0], found[1]["recipients"]) == (code, [])
        assert ("recipients fall from 12 to 0" in str(found[1].get("would_be_refused"))) != accepts
    freeze(settings, week, accept_drop=True)
    frozen = FrozenWeeks(installed(settings).tables).find(week)
    assert frozen is not None
    assert frozen.recipients == 0

    stream.send(position(str(n), "client1", "TSE") for n in range(12))
    made = shardpost.json("compact")
    named = made["unknown_exchanges"], shardpost.json("snapshots")[-1]["unknown_exchanges"]
    assert named == ({"TSE": 12}, {"TSE": 12})
    agree(settings, stream.fold)
    with pytest.raises(CollapseError, match=r"12 open .* \('TSE' 12\): 12 more, by more than"):
        freeze(settings, week.previous.previous)
