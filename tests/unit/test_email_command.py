"""What `shardpost email` refuses at once: before spark-submit, and so before Java, starts."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shardpost.cli import run as shardpost
from shardpost.delta import snapshots
from shardpost.settings import Settings, loading
from shardpost.spark import submit
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email import ledger_guard
from shardpost.weekly_email.checks import check
from shardpost.weekly_email.model.week import IsoWeek
from tests.conftest import environ
from tests.support.email_requests import email_request
from tests.support.histories import snapshot
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.written_weeks import begin, freeze

LAST = "2020-W47"
WEEK = IsoWeek.parse(LAST)


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryKafka]:
    with memory_kafka(home=tmp_path, partitions=2, kafka_timeout=1) as kafka:
        given = environ(
            home=tmp_path, partitions=2, bootstrap_servers=kafka.settings.bootstrap_servers
        )
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        loading._of_this_process.cache_clear()

        def never(*_: object) -> None:
            raise AssertionError("spark-submit was started")

        monkeypatch.setattr(submit, "submit", never)
        yield kafka
        loading._of_this_process.cache_clear()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--week", "2026-W60"), 2, "week 2026-W60: there is no such week"),
        (("--week", LAST, "--shards", "x"), 2, "shards 'x': expected a form such as"),
        (("--week", LAST, "--shards", "-x"), 2, "shards '-x': expected a form such as"),
        (("--week", LAST, "--shards", "3-1"), 2, "expected the lower number first"),
        (("--week", LAST, "--shards", "0-99"), 2, "shards '0-99': expected 0 to 1, found 0-99"),
        (("--week", LAST, "--early"), 1, "--early is for a week still running"),
        (("--week", "9000-W01"), 1, "has not begun"),
        (("--week", LAST), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "failed"), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "Suppressed"), 1, "`shardpost compact`"),
        (("--week", LAST, "--again", "sent"), 2, "--again"),
    ],
)
def test_what_can_be_known_without_spark_is_refused_without_it(
    kafka: MemoryKafka,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    dry: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    apply_topics(kafka.settings)
    assert shardpost(["email", *arguments, *dry]) == code
    written = capsys.readouterr()
    assert said in written.err
    assert written.out == ""


def test_bad_shards_are_refused_without_kafka_too(
    kafka: MemoryKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    del kafka  # without topics
    assert shardpost(["email", "--week", LAST, "--shards", "x"]) == 2
    assert "expected a form such as" in capsys.readouterr().err


def pruned(settings: Settings, history_from: datetime) -> None:
    """Commit a snapshot of now whose histories were pruned up to a time."""
    made = replace(snapshot(1, {}), looked_at=datetime.now(UTC), history_from=history_from)
    snapshots.commit(settings, made)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_week_whose_history_was_pruned_and_that_is_not_frozen_is_refused(
    kafka: MemoryKafka, dry: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    apply_topics(kafka.settings)
    pruned(kafka.settings, WEEK.end + timedelta(milliseconds=1))
    assert shardpost(["email", "--week", LAST, *dry]) == 1
    written = capsys.readouterr()
    assert "week 2020-W47 is not frozen, and its holders can no longer be computed" in written.err
    assert "snapshot 1 has the whole history from 2020-11-23T00:00:00.001000+00:00" in written.err
    assert "SHARDPOST_HISTORY_DAYS" in written.err
    assert (len(written.err.splitlines()), written.out) == (1, "")
    assert ledger_guard.list_marks(kafka.settings) == []


@pytest.mark.parametrize("mode", ["--dry-run", "--freeze-only"])
def test_a_week_is_mailed_whose_history_is_whole_or_that_was_frozen_before(
    kafka: MemoryKafka, mode: str
) -> None:
    apply_topics(kafka.settings)
    request = email_request(WEEK, mode, now=datetime.now(UTC))
    pruned(kafka.settings, WEEK.end)
    assert check(request, kafka.settings)[0].frozen is None
    newest = snapshots.current(kafka.settings)
    later = replace(newest, number=2, history_from=WEEK.end + timedelta(days=9))
    snapshots.commit(kafka.settings, later)
    begin(kafka.settings, WEEK, WEEK.end)
    frozen = freeze(kafka.settings, WEEK, ["c1"], WEEK.end)
    assert check(request, kafka.settings)[0].frozen == frozen
