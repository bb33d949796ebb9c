"""Whether a job has much to do, as its launcher sees it."""

import pytest

from shardpost.adapters import backlog, topics
from shardpost.settings import Settings
from tests.letter_world import failed, original, put
from tests.reference import position, produce


def test_a_compaction_is_long_from_so_many_records_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply(settings)  # 13 exchanges, and what marks their transaction
    produce(settings, [position(str(number), "client1", "NASDAQ") for number in range(10)])
    monkeypatch.setattr(backlog, "MANY", 23)
    assert backlog.is_long(settings, "compact_positions")
    monkeypatch.setattr(backlog, "MANY", 100)
    assert not backlog.is_long(settings, "compact_positions")


def test_where_nobody_can_say_it_is_not_long(settings: Settings) -> None:
    assert not backlog.is_long(settings, "compact_positions")  # its topics do not exist


def test_a_sweep_is_long_by_what_its_table_has_not_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.apply(settings)
    put(settings, [failed(settings, original(number)) for number in range(10)])
    monkeypatch.setattr(backlog, "MANY", 10)
    assert backlog.is_long(settings, "sweep_dead_letters")
    assert not backlog.is_long(settings, "weekly_email")
    monkeypatch.setattr(backlog, "MANY", 11)
    assert not backlog.is_long(settings, "sweep_dead_letters")
