"""What `shardpost compact` prints, and its exit code, by how its job ended."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from shardpost.commands import positions
from shardpost.errors import ShardpostError
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.spark import compaction
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka, KafkaUnreachableError
from shardpost.settings import Settings
from shardpost.spark.job import JobSpec
from shardpost.topics import guards
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed

RESULT: dict[str, Any] = {
    "snapshot": {"snapshot": 4, "positions": 1_000_002, "holders": 2},
    "changed": True,
    "published": 2,
    "too_large": 0,
    "rejected": 0,
    "reconciled": 0,
    "uncertain": 0,
    "open_transactions": [],
    "unknown_exchanges": {},
}


# Its arguments, and how its job ended; its exit code, standard output and standard error.
Compact = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compact(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Compact:
    def compact(*arguments: str, code: int = 0, **result: object) -> tuple[int, str, str]:
        monkeypatch.setattr(positions, "submit", lambda *_: (code, RESULT | result))
        return CommandLineHere(settings.environ()).answer("compact", *arguments)

    return compact


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_list_that_is_too_large_is_told_and_the_exit_code_is_3(
    compact: Compact, arguments: list[str]
) -> None:
    code, out, err = compact(*arguments, code=3, too_large=1)
    assert code == 3
    assert "1 too large for a record of share-holders" in err
    if arguments:
        assert json.loads(out) == RESULT | {"too_large": 1}
    else:
        assert out.startswith("snapshot 4: 1000002 open positions, 2 holders, 2 records published")


def test_rejected_records_are_in_the_summary_with_where_to_look(compact: Compact) -> None:
    code, out, err = compact(rejected=3)
    assert (code, err) == (0, "3 records rejected\n")
    assert "(' NASDAQ' 2): they count for" in compact(unknown_exchanges={" NASDAQ": 2})[2]
    assert out.endswith("2 records published, 3 rejected (`shardpost letters list` has them)\n")


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (timedelta(minutes=-5), "snapshot 4 (nothing new): "),
        (timedelta(minutes=5), "snapshot 4 (made by another run meanwhile; nothing new since): "),
    ],
)
def test_a_snapshot_that_another_run_made_meanwhile_is_not_nothing_new(
    since: timedelta, said: str, compact: Compact
) -> None:
    made = RESULT["snapshot"] | {"committed_at": (datetime.now(UTC) + since).isoformat()}
    assert compact(changed=False, snapshot=made)[1].startswith(said)


def test_what_needs_a_person_is_told_on_standard_error(compact: Compact) -> None:
    hidden = {"topic": "positions", "partition": 1, "offset": 7, "since": None}
    code, _, err = compact("--reconcile", code=3, uncertain=2, open_transactions=[hidden])
    assert code == 3
    assert "2 keys may have lost records" in err
    assert "open transaction at positions[1]@7: later records are not read yet" in err


def fail(error: Exception) -> Callable[..., None]:
    def failing(*_: object) -> None:
        raise error

    return failing


GONE = [KafkaUnreachableError("no answer"), PySparkException("a timeout")]
OTHERS = [ShardpostError("the tables"), PySparkException("out of memory"), OSError("disk full")]


@pytest.mark.parametrize("gone", GONE)
def test_without_kafka_it_says_that_nothing_was_changed(
    gone: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guards, "run", lambda *_, **__: nullcontext())
    monkeypatch.setattr("shardpost.holders.compaction.Inputs", fail(gone))
    monkeypatch.setattr(Kafka, "why_nobody_listens", lambda *_: "connection refused")
    with pytest.raises(KafkaUnreachableError) as found:
        compaction.compact(installed(Settings(home=tmp_path)))
    assert str(found.value).startswith("nothing was changed: ")
    assert str(found.value).endswith("; then run it again")
    assert isinstance(gone, PySparkException) == ("(connection refused)" in str(found.value))


@pytest.mark.parametrize("error", OTHERS)
def test_any_other_error_stays_as_it_is(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(guards, "run", lambda *_, **__: nullcontext())
    monkeypatch.setattr("shardpost.holders.compaction.Inputs", fail(error))
    monkeypatch.setattr(Kafka, "why_nobody_listens", lambda *_: None)
    with pytest.raises(type(error)) as found:
        compaction.compact(installed(Settings(home=tmp_path)))
    assert found.value is error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "2s"], "--for and --every need --follow"),
        (["--for", "0s"], "--for and --every need --follow"),
        (["--follow", "--for", "0s"], "--for: expected a time above 0, found 0"),
        (["--follow", "--every", "0s"], "--every: expected a time above 0, found 0"),
        (["--follow", "--reconcile"], "--reconcile cannot be used with --follow"),
    ],
)
def test_how_to_follow_is_refused_where_it_says_nothing(
    compact: Compact, arguments: list[str], said: str
) -> None:
    code, out, err = compact(*arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(("given", "hours"), [([], 8), (["--for", "36h"], 36)])
def test_it_follows_for_eight_hours_unless_it_is_to_follow_for_another_time(
    given: list[str], hours: int, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[CompactionRequest] = []

    def submit(_: Installation, __: JobSpec, request: CompactionRequest) -> tuple[int, object]:
        asked.append(request)
        return 0, RESULT

    monkeypatch.setattr(positions, "submit", submit)
    before = datetime.now(UTC)
    CommandLineHere(settings.environ())("compact", "--follow", *given)
    [follow] = [one.follow for one in asked]
    assert follow is not None
    assert before <= follow.until - timedelta(hours=hours) <= datetime.now(UTC)
