"""The page of a dry run's lists: what the dry run said, kept until a client is erased."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shardpost.maintenance.erasure import ErasureRequest, erase
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email import dry_runs
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.email_run import run
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.installed import installed
from tests.support.page_client import page_client
from tests.support.week_tables import World

WEEK = IsoWeek(2026, 46)
NOW = WEEK.end + timedelta(hours=8)
KINDS = ("recipients", "suppressed", "failed", "unchanged", "new", "left")
EVIL = "<script>alert(1)</script>"


@pytest.mark.also_on_store
def test_each_list_is_the_dry_runs_and_goes_when_a_client_is_erased(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # the job finds it
    apply_topics(installed(settings))
    world = World(settings)
    for number in range(120):
        world.position(f"{number:03}", f"client{number:03}")
        world.client(f"client{number:03}", subscribed=number != 7)
    world.position(EVIL, EVIL)  # has no contact
    world.commit(looked_at=NOW)
    request = EmailRequest(WEEK, NOW, Mode.DRY_RUN)
    code, said = run(request, installed(settings))
    assert code == 0
    listed: dict[str, list[Any]] = {kind: said[kind] for kind in KINDS}

    with page_client(settings, monkeypatch) as page:
        assert "No dry run of this week is stored" in page.get("emails/lists", week=WEEK)
        for shards, name in (
            ("0-1", "manual__a"),
            ("0-1", "manual__b+00:00"),
            ("2-3", "manual__b+00:00"),
        ):
            run(replace(request, shards=shards, kept_as=name), installed(settings))
        for kind in KINDS:
            first = page.json("emails/lists", week=WEEK, list=kind)
            lines = (
                first["lines"] + page.json("emails/lists", week=WEEK, list=kind, page=2)["lines"]
            )
            key = lambda line: line if isinstance(line, str) else line["client"]  # noqa: E731
            assert sorted(lines, key=key) == sorted(listed[kind], key=key)
            csv = page.csv("emails/lists", week=WEEK, list=kind)
            assert len(csv) == 1 + len(listed[kind])
        kept = first["dry_run"]
        assert (kept["run"], kept["shards"]) == ("manual__b+00:00", ["0-1", "2-3"])
        assert {kind: kept["counts"][kind] for kind in KINDS} == {k: len(listed[k]) for k in KINDS}
        found = page.json("emails/lists", week=WEEK, q="client11")["lines"]
        assert sorted(line["client"] for line in found) == [f"client11{n}" for n in range(10)]
        assert "<b>" not in page.response("emails/lists", week=WEEK, q="<b>").text
        assert EVIL not in page.response("emails/lists", week=WEEK, list="failed").text
        assert "expected one of" in page.get("emails/lists", 400, week=WEEK, list="all")

        erase(installed(settings), ErasureRequest("client001", "bob", "asked for it", NOW))
        assert "No dry run of this week is stored" in page.get("emails/lists", week=WEEK)
    run(replace(request, kept_as="manual__c"), installed(settings))
    assert dry_runs.find(installed(settings).tables, WEEK) is not None
    dry_runs.forget_old(installed(settings).tables, WEEK.end + timedelta(days=3), 4)
    assert dry_runs.find(installed(settings).tables, WEEK) is not None
    dry_runs.forget_old(installed(settings).tables, WEEK.end + timedelta(days=5), 4)
    assert dry_runs.find(installed(settings).tables, WEEK) is None
