"""`letters redrive` and `discard`: who decides, and what --again changes; Kafka in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardpost import cli
from shardpost.commands.parked_letters import AGAIN_IN_VAIN
from shardpost.kafka.clients import producer
from shardpost.topics.creation import apply_topics
from tests.support import decisions
from tests.support.memory_kafka import MemoryKafka, memory_kafka

Answer = tuple[int, str, str]
ORIGIN: list[tuple[str, str | bytes | None]] = [
    ("origin-topic", b"positions"),
    ("origin-partition", b"0"),
    ("origin-offset", b"0"),
]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with memory_kafka(home=tmp_path, partitions=1) as made:
        apply_topics(made.settings)
        yield made


@pytest.fixture
def letters(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    monkeypatch.setattr("shardpost.settings.load", lambda: kafka.settings)

    def letters(*argv: str) -> Answer:
        code = cli.run(["letters", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return letters


def park(kafka: MemoryKafka, letter_id: str, times: int) -> None:
    """Put a letter into the parking lot that one error has parked so often."""
    counted: list[tuple[str, str | bytes | None]] = [
        ("parked-error", b"ValueError-0"),
        ("parked-count", str(times).encode()),
    ]
    headers = [*ORIGIN, *counted, ("letter-id", letter_id.encode()), ("attempt", b"1")]
    headers += [("origin-key", b"k"), ("error", b"ValueError: x")]
    headers.append(("failed-at", b"2026-11-21T12:00:00Z"))
    producer(kafka.settings).produce("parking-lot", b"v", letter_id.encode(), 0, headers=headers)


def test_again_says_so_where_it_changes_nothing(
    kafka: MemoryKafka, letters: Callable[..., Answer]
) -> None:
    park(kafka, "once", 1)
    code, out, err = letters("redrive", "--again")
    assert (code, err) == (0, f"{AGAIN_IN_VAIN}\n")
    assert "1 would be redriven" in out


def test_again_redrives_what_one_error_has_parked_twice(
    kafka: MemoryKafka, letters: Callable[..., Answer]
) -> None:
    park(kafka, "twice", 2)
    code, out, _ = letters("redrive")
    assert code == 3
    assert "parked 2 times by the same error: fix its cause first, or add --again" in out
    code, out, err = letters("redrive", "--again")
    assert (code, err) == (0, "")
    assert "1 would be redriven" in out


@pytest.mark.parametrize("doing", ["redrive", "discard"])
def test_who_decided_is_recorded(
    doing: str, kafka: MemoryKafka, letters: Callable[..., Answer]
) -> None:
    park(kafka, "one", 1)
    assert letters(doing, "--apply", "--why", "x", "--by", " ")[0] == 2
    code, out, _ = letters(doing, "--apply", "--why", "mended", "--by", "anna")
    assert (code, out.splitlines()[-1][0]) == (0, "1")
    [(decision, _)] = decisions.list_all(kafka.settings)
    assert (decision.who, decision.why) == ("anna", "mended")
