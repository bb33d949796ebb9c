"""`letters redrive` and `discard`: who decides, and what --again changes; Kafka in memory."""

import pytest

from shardpost.commands.parked_letters import AGAIN_IN_VAIN
from shardpost.kafka.clients import producer
from tests.support import decisions
from tests.support.command_line import CommandLine
from tests.support.memory_kafka import MemoryKafka

KAFKA = {"partitions": 1}
ORIGIN: list[tuple[str, str | bytes | None]] = [
    ("origin-topic", b"positions"),
    ("origin-partition", b"0"),
    ("origin-offset", b"0"),
]


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


@pytest.mark.parametrize(("times", "said"), [(1, f"{AGAIN_IN_VAIN}\n"), (2, "")])
def test_again_says_so_where_it_changes_nothing(
    kafka: MemoryKafka, shardpost: CommandLine, times: int, said: str
) -> None:
    park(kafka, "one", times)
    if times > 1:
        refused = "parked 2 times by the same error: fix its cause first, or add --again"
        assert refused in shardpost("letters", "redrive", code=3)
    code, out, err = shardpost.answer("letters", "redrive", "--again")
    assert (code, err, "1 would be redriven" in out) == (0, said, True)


@pytest.mark.parametrize("doing", ["redrive", "discard"])
def test_who_decided_is_recorded(doing: str, kafka: MemoryKafka, shardpost: CommandLine) -> None:
    park(kafka, "one", 1)
    shardpost("letters", doing, "--apply", "--why", "x", "--by", " ", code=2)
    out = shardpost("letters", doing, "--apply", "--why", "mended", "--by", "anna")
    assert out.splitlines()[-1][0] == "1"
    [(decision, _)] = decisions.list_all(kafka.settings)
    assert (decision.who, decision.why) == ("anna", "mended")
