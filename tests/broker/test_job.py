"""Whether a job has much to do, as its launcher sees it."""

import pytest

from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.settings import Settings
from shardpost.spark import job as spark_job
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import WEEKLY_EMAIL
from tests.support.installed import installed
from tests.support.letter_world import failed, original, put
from tests.support.reference import position, produce


def test_a_compaction_is_long_from_so_many_records_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_topics(installed(settings))  # 13 exchanges, and what marks their transaction
    produce(settings, [position(str(number), "client1", "NASDAQ") for number in range(10)])
    monkeypatch.setattr(spark_job, "LONG_RUN_RECORDS", 23)
    assert COMPACT_POSITIONS.is_long(installed(settings))
    monkeypatch.setattr(spark_job, "LONG_RUN_RECORDS", 100)
    assert not COMPACT_POSITIONS.is_long(installed(settings))


def test_where_nobody_can_say_it_is_not_long(settings: Settings) -> None:
    assert not COMPACT_POSITIONS.is_long(installed(settings))  # its topics do not exist


def test_a_sweep_is_long_by_what_its_table_has_not_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_topics(installed(settings))
    put(settings, [failed(settings, original(number)) for number in range(10)])
    monkeypatch.setattr(spark_job, "LONG_RUN_RECORDS", 10)
    assert SWEEP_DEAD_LETTERS.is_long(installed(settings))
    assert not WEEKLY_EMAIL.is_long(installed(settings))
    monkeypatch.setattr(spark_job, "LONG_RUN_RECORDS", 11)
    assert not SWEEP_DEAD_LETTERS.is_long(installed(settings))
