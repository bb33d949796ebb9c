"""One installation owns its topics, whatever other homes do with the same Kafka; no JVM."""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shardpost.checkout import CHECKOUT
from shardpost.dead_letters.model.letter_history import ListFilters
from shardpost.dead_letters.model.redrive_request import RedriveRequest
from shardpost.dead_letters.redrive import RedriveResult, carry_out_redrive
from shardpost.dead_letters.redrive_plan import prepared
from shardpost.dead_letters.sweep import sweep_dead_letters
from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.delta import snapshots
from shardpost.holders import publishing
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.locks.refused_runs import refusals
from shardpost.maintenance.erasure import ErasureRequest, erase
from shardpost.rebuilds import run as rebuilds
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.run_requests.dispatch import dispatch
from shardpost.run_requests.request_client import release
from shardpost.settings import Settings
from shardpost.spark.job import BY_DEFAULT
from shardpost.spark.submit import submit
from shardpost.topics import guards
from shardpost.topics.guards import GROUP, NotOwnerError
from shardpost.watch.audit import check_owner
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_decisions import accept_ledger, pause
from tests.support.command_line import CommandLineHere
from tests.support.committed_snapshot import SHARDS, commit_snapshot, held, published
from tests.support.email_requests import preview
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_kafka.coordinator import GroupPartition

KAFKA = {"partitions": SHARDS}
NOW = datetime.now(UTC)
WEEK = IsoWeek.last_ended(NOW)


@pytest.fixture
def other(kafka: MemoryKafka, tmp_path: Path) -> MemoryKafka:
    """Give another home with the same Kafka, where somebody else holds."""
    made = home(kafka, tmp_path / "other")
    commit_snapshot(made, stranger=["9"])
    return made


def home(kafka: MemoryKafka, folder: Path) -> MemoryKafka:
    folder.mkdir(exist_ok=True)
    return replace(kafka, settings=kafka.settings.model_copy(update={"home": folder}))


def compact(of: MemoryKafka, **asked: Any) -> Any:
    """Compact where there is nothing new to read."""
    code, result = submit(installed(of.settings), COMPACT_POSITIONS, CompactionRequest(**asked))
    assert code == 0
    return result


def forget_owner(kafka: MemoryKafka) -> None:
    """Let Kafka forget the owner, as it does some days after the last compaction."""
    kafka.broker.coordinator.forget_group(GROUP)


def test_another_home_is_refused_until_it_takes_over_and_then_the_first_one_is(
    kafka: MemoryKafka, other: MemoryKafka
) -> None:
    commit_snapshot(kafka, client=["1"])
    compact(kafka)
    line = CommandLineHere(other.settings.environ()).refused("compact", code=1)
    assert f"topic share-holders belongs to the home {kafka.settings.home} on " in line
    assert f"SHARDPOST_HOME={kafka.settings.home}). If that home will never" in line
    assert "`shardpost compact --take-over`" in line
    assert set(published(kafka)) == {"client"}
    assert [one.check for one in check_owner(installed(other.settings))] == ["owner"]

    compact(other, take_over=True)
    assert set(published(kafka)) == {"stranger"}
    with pytest.raises(NotOwnerError, match=f"belongs to the home {other.settings.home} on "):
        compact(kafka)
    compact(other)
    assert [*check_owner(installed(other.settings))] == []


WRITERS: dict[str, Callable[[Settings], object]] = {
    "e-mail": lambda at: preview(EmailRequest(WEEK, NOW), installed(at)),
    "sweep": lambda at: sweep_dead_letters(installed(at), NOW),
    "dispatch": lambda at: dispatch(installed(at), NOW),
    "swap": lambda at: rebuilds.run(RebuildRequest(Action.SWAP, "me"), installed(at)),
    "erasure": lambda at: erase(installed(at), ErasureRequest("client", "me", "asked", NOW)),
    "accepted ledger": lambda at: accept_ledger(installed(at), WEEK, "me", "checked", NOW),
    "pause": lambda at: pause(installed(at), WEEK, "me", "wait", NOW),
    "release": lambda at: release(installed(at), "key", "me", "stuck", NOW),
    "redrive": lambda at: decided(at, is_redrive=True),
    "discard": lambda at: decided(at, is_redrive=False),
}
# What any installation may write: requests, and what is only about itself.
OF_ANYONE = {
    "alerts/notifier.py",
    "embedded/demo.py",  # plays a producer
    "holders/publishing.py",  # asks once for all its writers
    "page/mails.py",
    "run_requests/request_client.py",
    "topics/creation.py",
}


def decided(at: Settings, *, is_redrive: bool) -> None:
    request = RedriveRequest(ListFilters(), is_redrive, "me", "why", NOW)
    carry_out_redrive(prepared(installed(at), request), RedriveResult())


def test_each_writer_asks_for_the_owner_but_those_that_are_named_here() -> None:
    package = CHECKOUT / "shardpost"
    anyones = re.compile(
        r"\banyone\b|\.(transactional_)?producer\(|\bproduce\((installation\.)?kafka\b"
    )
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.parent.name != "kafka" and anyones.search(path.read_text())
    }
    assert found == OF_ANYONE


@pytest.mark.parametrize("name", WRITERS)
def test_whatever_writes_to_kafka_is_refused_in_another_home(
    kafka: MemoryKafka, other: MemoryKafka, name: str
) -> None:
    commit_snapshot(kafka)
    compact(kafka)
    seen = replace(snapshots.current(installed(other.settings).tables), looked_at=NOW)
    snapshots.update_looked_at(installed(other.settings).tables, seen)
    with pytest.raises(NotOwnerError):
        WRITERS[name](other.settings)
    if name == "dispatch":
        assert {*refusals(installed(other.settings).files, datetime.now(UTC))} == {
            "dispatch_run_requests"
        }


def test_a_dry_run_of_the_e_mail_looks_from_any_home(
    kafka: MemoryKafka, other: MemoryKafka
) -> None:
    commit_snapshot(kafka)
    compact(kafka)
    seen = replace(snapshots.current(installed(other.settings).tables), looked_at=NOW)
    snapshots.update_looked_at(installed(other.settings).tables, seen)
    assert preview(EmailRequest(WEEK, NOW, Mode.DRY_RUN), installed(other.settings))


def test_a_run_that_wakes_up_after_another_home_took_over_publishes_nothing(
    kafka: MemoryKafka, other: MemoryKafka
) -> None:
    commit_snapshot(kafka, client=["1"])
    compact(kafka)
    compact(other, take_over=True)
    later = held(kafka, 2, {"client": ["1", "2"], "late": ["3"]})
    with pytest.raises(NotOwnerError):
        publishing.publish(installed(kafka.settings), later)
    assert set(published(kafka)) == {"stranger"}


def test_a_restored_copy_is_the_same_installation_wherever_it_is(
    kafka: MemoryKafka, tmp_path: Path
) -> None:
    commit_snapshot(kafka)
    compact(kafka)
    copy = home(kafka, tmp_path / "copy")
    shutil.copytree(kafka.settings.home / "tables", copy.settings.home / "tables")
    compact(copy)
    found = guards.owner(installed(kafka.settings).kafka)
    assert found is not None
    assert found.home == str(copy.settings.home)
    compact(kafka)


def test_an_empty_home_is_refused_where_somebody_published_though_kafka_forgot_who(
    kafka: MemoryKafka, tmp_path: Path
) -> None:
    empty = home(kafka, tmp_path / "empty").settings
    guards.require_owner_to_begin(installed(empty))  # nothing was published yet
    commit_snapshot(kafka)
    compact(kafka)
    forget_owner(kafka)
    with pytest.raises(NotOwnerError, match=r"share-holders has records, but .* has no snapshot"):
        submit(installed(empty), COMPACT_POSITIONS)
    with pytest.raises(NotOwnerError, match=r"no snapshot"):
        guards.require_owner_to_begin(installed(empty))
    compact(kafka)
    assert guards.owner(installed(empty).kafka) == guards.this_installation(
        installed(kafka.settings)
    )


def test_a_sweep_in_another_home_is_refused_also_where_no_letters_wait(
    kafka: MemoryKafka, other: MemoryKafka
) -> None:
    commit_snapshot(kafka)
    compact(kafka)
    with pytest.raises(NotOwnerError):
        submit(installed(other.settings), SWEEP_DEAD_LETTERS)
    SWEEP_DEAD_LETTERS.without_spark(installed(kafka.settings), BY_DEFAULT)  # the owner is not


def test_other_topics_have_another_owner(kafka: MemoryKafka, other: MemoryKafka) -> None:
    commit_snapshot(kafka)
    compact(kafka)
    own = other.settings.model_copy(
        update={"topics": other.settings.topics | {"share-holders": "others-holders"}}
    )
    guards.require_owner(installed(own))
    assert guards.owner(installed(own).kafka) is None
    with pytest.raises(NotOwnerError):
        guards.require_owner(installed(other.settings))


def test_a_long_name_of_a_home_fits_into_what_kafka_takes(
    kafka: MemoryKafka, tmp_path: Path
) -> None:
    deep = tmp_path.joinpath(*["größe" * 20] * 5)
    deep.mkdir(parents=True)
    of = home(kafka, deep)
    commit_snapshot(of)
    compact(of)
    place = GroupPartition(GROUP, guards._place(installed(of.settings).kafka))
    found = kafka.broker.coordinator.committed(place)
    assert found is not None
    assert len(found.metadata.encode()) <= 4096


@pytest.mark.parametrize("job", sorted(guards.GUARDS))
def test_of_a_run_that_could_not_begin_it_is_said_that_nothing_was_changed(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    own = installed(kafka.settings)

    def gone(*_: object) -> None:
        raise KafkaUnreachableError("no answer")

    monkeypatch.setattr(guards, "owner", gone)
    begun = []
    with suppress(KafkaUnreachableError), guards.run(own, job):
        begun.append(job)
    assert bool(begun) is (guards.GUARDS[job].owner is None)
    if not begun:
        said = "nothing was changed: no answer; then run it again"
        with pytest.raises(KafkaUnreachableError, match=said), guards.run(own, job):
            pass
        with guards.run(own, job, asks_owner=False):  # and its lock is free again
            pass
