"""Small files of the installation: one that all machines see where the tables are on a store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from shardpost.alerts import channels
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError, UsageError
from shardpost.kafka.records import TopicPartition
from shardpost.locks import refused_runs
from shardpost.locks.shared_files import SharedFile
from shardpost.settings import Settings
from shardpost.topics.guards import require_stores
from shardpost.values.topic_names import TopicName
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_store import memory_store

STORE: TopicName = "dead-letters"


@pytest.fixture
def machines(kafka: MemoryKafka, tmp_path: Path) -> Iterator[list[Settings]]:
    """Give the settings of two machines of one installation."""
    with memory_store(kafka.settings) as first:
        yield [first, first.model_copy(update={"home": tmp_path / "second"})]


def test_what_one_machine_knows_of_a_store_another_one_misses(
    kafka: MemoryKafka, machines: list[Settings]
) -> None:
    first, second = machines
    for number in range(3):
        installed(first).kafka.producer().produce(STORE, b"v", f"{number}".encode(), 0)
    require_stores(installed(first), STORE)
    kafka.broker.log(TopicPartition(STORE, 0)).delete_before(3)
    with pytest.raises(ShardpostError, match="the records from 0 to 2 were deleted") as refused:
        require_stores(installed(second), STORE)
    assert f"remove s3://bucket/tables/_home/stores/{STORE}.json to accept" in str(refused.value)
    objects = installed(second).tables.objects()
    objects.delete([f"_home/stores/{STORE}.json"])
    require_stores(installed(second), STORE)
    assert not (first.home / "stores").exists()


def test_jobs_that_are_refused_at_once_on_two_machines_are_all_noted(
    machines: list[Settings],
) -> None:
    def note(number: int) -> None:
        refused_runs.note(installed(machines[number % 2]).files, f"job {number}", "no country")

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(note, range(24))]
    found = refused_runs.refusals(installed(machines[0]).files, datetime.now(UTC))
    assert {*found} == {f"job {number}" for number in range(24)}


def test_why_a_compaction_was_refused_is_known_on_all_machines(machines: list[Settings]) -> None:
    first, second = machines
    with (
        pytest.raises(UsageError),
        refused_runs.noting(installed(first).files, "compact_positions"),
    ):
        raise UsageError("no such country")
    now = datetime.now(UTC)
    assert (
        refused_runs.refusals(installed(second).files, now)["compact_positions"].why
        == "no such country"
    )
    refused_runs.note_result(installed(second).files, "compact_positions", 0, {})
    assert refused_runs.refusals(installed(first).files, now) == {}


def test_a_part_of_a_job_ends_its_own_note_and_the_whole_job_those_of_all_parts(
    settings: Settings,
) -> None:
    for shards in ("0-3", "4-7", "8"):
        refused_runs.note(
            installed(settings).files, f"weekly_email shards {shards}", "no such address"
        )
    refused_runs.note(installed(settings).files, "weekly_email_of_others", "no such address")
    refused_runs.note_result(installed(settings).files, "weekly_email shards 4-7", 0, {})
    left = ["weekly_email shards 0-3", "weekly_email shards 8", "weekly_email_of_others"]
    assert [*refused_runs.refusals(installed(settings).files, datetime.now(UTC))] == left
    refused_runs.note_result(installed(settings).files, "weekly_email", 0, {})
    assert [*refused_runs.refusals(installed(settings).files, datetime.now(UTC))] == left[2:]


def test_a_run_that_was_not_refused_writes_nothing(settings: Settings) -> None:
    refused_runs.note_result(installed(settings).files, "compact_positions", 0, {})
    assert not (settings.home / refused_runs.FOLDER).exists()


def stored_lines(machine: Settings) -> list[str]:
    """Return the lines of alerts.log on the store."""
    now = datetime.now(UTC)
    text = SharedFile(installed(machine).files, f"{now:{channels.STORED_LOG}}").read()
    return (text or "").splitlines()


def test_alerts_of_all_machines_are_on_the_store_and_here_if_the_store_is_down(
    machines: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, machine in enumerate(machines):
        channels.append(installed(machine).files, f"alert {number}\nline", datetime.now(UTC))
    channels.append(installed(machines[0]).files, "alert 2", datetime.now(UTC))
    logged = stored_lines(machines[1])
    assert [line[21:] for line in logged] == ["alert 0", "line", "alert 1", "line", "alert 2"]

    def is_down(*_: object) -> None:
        raise ShardpostError("object store https://store: it does not answer")

    monkeypatch.setattr(Tables, "objects", is_down)
    channels.append(installed(machines[1]).files, "the store is down", datetime.now(UTC))
    assert (machines[1].home / "alerts.log").read_text().endswith("Z the store is down\n")


def test_alerts_of_two_machines_at_once_are_both_kept(
    machines: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, read, both_read = datetime.now(UTC), SharedFile.read, Barrier(2, timeout=0.5)

    def read_at_once(own: SharedFile) -> str | None:
        found = read(own)
        with suppress(BrokenBarrierError):  # the other one waits for its turn to read
            both_read.wait()
        return found

    with monkeypatch.context() as patched, ThreadPoolExecutor(2) as pool:
        patched.setattr(SharedFile, "read", read_at_once)
        files = [installed(machine).files for machine in machines]
        [*pool.map(channels.append, files, ["one", "two"], [now, now])]
    logged = stored_lines(machines[0])
    assert sorted(line[21:] for line in logged) == ["one", "two"]


def test_an_alert_after_a_line_that_was_cut_off_stands_on_a_line_of_its_own(
    settings: Settings,
) -> None:
    now, log = datetime.now(UTC), settings.home / "alerts.log"
    channels.append(installed(settings).files, "one", now)
    log.write_text(log.read_text() + "2026-11-2")
    channels.append(installed(settings).files, "two", now)
    channels.append(installed(settings).files, "three", now)
    assert [line[21:] for line in log.read_text().splitlines()] == ["one", "", "two", "three"]
