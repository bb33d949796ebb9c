"""What `shardpost email` refuses at once: before spark-submit, and so before Java, starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.cli import run as shardpost
from shardpost.settings import loading
from shardpost.spark import submit
from shardpost.topics.creation import apply_topics
from tests.conftest import environ
from tests.support.memory_kafka import MemoryKafka, memory_kafka

LAST = "2020-W47"


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
        (("--week", LAST, "--early"), 1, "--early is for a week that goes on"),
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
