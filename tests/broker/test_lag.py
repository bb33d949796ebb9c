"""`shardpost lag` on a real broker: what is unread, and no alarm where nothing can be lost."""

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from shardpost.embedded import broker
from shardpost.holders import rejected_letters, share_holders_topic
from shardpost.kafka import groups
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.offsets import beginnings
from shardpost.kafka.records import TopicPartition
from shardpost.lag.measure import measure
from shardpost.lag.model.time_to_loss import Lag, LagRow, Selection
from shardpost.lag.partition_sizes import partition_sizes
from shardpost.settings import Settings
from tests.conftest import environ
from tests.support.broker_process import commit, create, put, quick_broker
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.kafka_configs import configure_topic
from tests.support.recreated_topic import recreate_topic
from tests.support.transactions import begun_transaction

KEPT = {"retention.ms": "86400000"}
SOON_GONE = {"retention.ms": "1000", "segment.ms": "500", "file.delete.delay.ms": "100"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with quick_broker(tmp_path_factory.mktemp("lag") / "home", expiry_minutes=10_000) as settings:
        yield settings


def at(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def lag(settings: Settings, *groups: str, **more: object) -> Lag:
    return measure(installed(settings), datetime.now(UTC), Selection(groups), **more)  # type: ignore[arg-type]


def row(settings: Settings, group: str) -> LagRow:
    found = lag(settings, group)
    assert found.problems == []
    [one] = found.rows
    return one


def loses_records(found: LagRow) -> bool:
    """Tell whether anything but the expiry of the group's offsets is predicted."""
    return found.seconds_to_loss is not None and "its offsets can expire" not in found.reason


def transaction(settings: Settings, topic: str, *keys: str) -> Producer:
    """Begin a transaction with these records, and leave it open."""
    writer = begun_transaction(settings, f"writer/{topic}")
    for key in keys:
        writer.produce(topic, b"x", key, 0)
    writer.flush(30)
    return writer


def test_records_are_counted_and_their_loss_is_predicted(quick: Settings) -> None:
    create(quick, {"counted": KEPT})
    put(quick, ("counted", "a", "1"), ("counted", "b", "2"), ("counted", "c", "3"))
    commit(quick, ("counter", at("counted"), 1))
    found = row(quick, "counter")
    assert (found.committed, found.end, found.records_behind) == (1, 3, 2)
    assert found.seconds_behind is not None
    assert found.seconds_to_loss is not None
    assert 86_000 < found.seconds_to_loss <= 86_400
    assert "retention.ms is 1 d in topic counted" in found.reason


def test_a_client_that_dies_of_what_it_is_answered_is_asked_again(
    quick: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(quick, {"asked": KEPT})
    commit(quick, ("asker", at("asked"), 0))
    dies_once = f"mkdir '{tmp_path}/died' && kill -ABRT $$; exec {shlex.join(groups.ASKING)}"
    monkeypatch.setattr(groups, "ASKING", ("sh", "-c", dies_once))
    assert row(quick, "asker").committed == 0
    assert (tmp_path / "died").exists()
    monkeypatch.setattr(groups, "ASKING", ("sh", "-c", "kill -ABRT $$"))
    hasty = quick.model_copy(update={"kafka_timeout": 1})
    with pytest.raises(KafkaUnreachableError, match="its client ended without an answer"):
        lag(hasty, "asker")


def test_markers_and_aborted_records_are_not_behind_and_their_deletion_loses_nothing(
    quick: Settings,
) -> None:
    topics = ("marked", "aborted")
    create(quick, dict.fromkeys(topics, KEPT))
    transaction(quick, "marked", "a").commit_transaction(30)
    transaction(quick, "aborted", "a", "b", "c").abort_transaction(30)
    commit(quick, ("marks", at("marked"), 1), ("aborts", at("aborted"), 0))
    before = lag(quick, "marks", "aborts")
    assert [(one.records_behind, loses_records(one)) for one in before.rows] == [(0, False)] * 2
    for topic in topics:
        configure_topic(quick, topic, SOON_GONE)

    def are_gone() -> bool:
        lows = beginnings(installed(quick).kafka, [*map(at, topics)]).found
        return [lows[at(topic)].offset for topic in topics] == [2, 4]

    wait_for(are_gone, "the deletion of markers and aborted records", seconds=60)
    clear = {(row.group, at(row.topic)): row.end or 0 for row in before.rows}
    after = lag(quick, "marks", "aborts", clear=clear)
    assert [(one.records_behind, loses_records(one)) for one in after.rows] == [(0, False)] * 2


def test_records_that_were_deleted_unread_are_lost(quick: Settings) -> None:
    create(quick, {"deleted": SOON_GONE})
    put(quick, ("deleted", "a", "1"), ("deleted", "b", "2"))
    commit(quick, ("loser", at("deleted"), 0))
    wait_for(
        lambda: (
            beginnings(installed(quick).kafka, [at("deleted")]).found[at("deleted")].offset == 2
        ),
        "the deletion of two records",
        seconds=60,
    )
    found = row(quick, "loser")
    assert found.seconds_to_loss == 0
    assert found.reason.startswith("has lost data: offsets 0 to 1 (2) were deleted")


def test_bookmarks_of_our_writers_are_left_out(quick: Settings) -> None:
    create(quick, {"lag-notes": KEPT})
    put(quick, ("lag-notes", "k", "x"))
    names = (share_holders_topic.PUBLISH_GROUP, rejected_letters.group_of(str(uuid4())))
    commit(quick, *((name, at("lag-notes"), 5) for name in names))
    commit(quick, ("lag-reader", at("lag-notes"), 1))
    assert [one.group for one in lag(quick).rows if one.topic == "lag-notes"] == ["lag-reader"]


def test_superseded_values_are_no_loss(quick: Settings) -> None:
    quickly = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.001",
    }
    create(quick, {"compacted": quickly})
    commit(quick, ("compactor", at("compacted"), 0))
    written = 0

    def has_holes() -> bool:
        nonlocal written
        put(quick, ("compacted", "same", str(written)))
        written += 1
        found = row(quick, "compactor")
        assert not loses_records(found)
        return (found.records_behind or 0) < written

    wait_for(has_holes, "compaction", seconds=60)


def test_a_tombstone_that_is_not_read_is_predicted(quick: Settings) -> None:
    create(quick, {"closing": {"cleanup.policy": "compact", "delete.retention.ms": "3600000"}})
    put(quick, ("closing", "a", "1"), ("closing", "a", None))
    commit(quick, ("closer", at("closing"), 0), ("done", at("closing"), 2))
    found = row(quick, "closer")
    assert found.seconds_to_loss is not None
    assert 3000 < found.seconds_to_loss <= 3600
    assert "unread tombstone at offset 1" in found.reason
    assert not loses_records(row(quick, "done"))


def test_an_open_transaction_holds_a_reader(quick: Settings) -> None:
    create(quick, {"hanging": KEPT})
    put(quick, ("hanging", "a", "1"))
    writer = transaction(quick, "hanging", "b")
    commit(quick, ("held", at("hanging"), 1))
    found = row(quick, "held")
    assert (found.end, found.records_behind) == (2, 1)
    assert loses_records(found)
    assert "an open transaction since offset 1" in found.reason
    writer.abort_transaction(30)
    ended = row(quick, "held")
    assert (ended.end, ended.records_behind, loses_records(ended)) == (3, 0, False)


def test_a_recreated_topic_is_named(quick: Settings) -> None:
    create(quick, {"again": KEPT})
    put(quick, *(("again", str(n), "1") for n in range(5)))
    recreate_topic(quick, "again", retention_ms="86400000")
    put(quick, ("again", "a", "1"))
    commit(quick, ("before", at("again"), 5))
    found = row(quick, "before")
    assert (found.records_behind, found.seconds_to_loss) == (1, 0)
    assert "beyond the end 1" in found.reason


def test_a_member_without_a_commit_is_listed(quick: Settings) -> None:
    create(quick, {"unread": KEPT})
    member = installed(quick).kafka.consumer("silent", **{"auto.offset.reset": "earliest"})
    member.subscribe(["unread"])

    def has_partition() -> bool:
        member.poll(0.2)
        return bool(member.assignment())

    wait_for(has_partition, "the partition", seconds=60)
    found = row(quick, "silent")
    member.close()
    assert (found.committed, found.records_behind, found.seconds_to_loss) == (None, None, None)
    assert "has committed no offset" in found.reason


def test_sizes_are_those_of_the_partitions(quick: Settings) -> None:
    create(quick, {"sized": KEPT, "empty": KEPT})
    put(quick, ("sized", "a", "x" * 10_000))
    found = partition_sizes(installed(quick).kafka, [at("sized"), at("empty"), at("none")])
    assert found.keys() == {at("sized"), at("empty")}
    assert 10_000 < found[at("sized")] < 11_000
    assert found[at("empty")] == 0


def test_the_command_sorts_warns_and_filters(quick: Settings) -> None:
    create(quick, {"soon": {"retention.ms": "3600000"}, "late": KEPT})
    put(quick, ("soon", "a", "1"), ("late", "a", "1"))
    commit(quick, ("both", at("soon"), 0), ("both", at("late"), 0))
    shardpost = CommandLineHere(quick.environ())
    rows = shardpost.json("lag", "--group", "both", code=3)
    assert [(one["topic"], one["records_behind"]) for one in rows] == [("soon", 1), ("late", 1)]
    text = shardpost("lag", "--group", "both", "--topic", "late")
    assert "loses data in 23 h 59 min unless it continues reading: retention.ms is 1 d" in text
    assert "soon" not in text
    assert "nobody: expected a group" in shardpost.refused("lag", "--group", "nobody", code=1)
    assert "gone: expected a group" in shardpost.refused("lag", "--json", "--topic", "gone", code=1)


def test_tables_that_cannot_be_read_are_said_beside_what_is_known(quick: Settings) -> None:
    create(quick, {"known": KEPT})
    commit(quick, ("knower", at("known"), 0))
    log = quick.home / "tables" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("no JSON")
    done = CommandLine(quick.environ()).run("lag", "--json", "--topic", "known")
    (log / "00000000000000000000.json").unlink()
    assert done.returncode == 1, done.stderr
    assert [one["group"] for one in json.loads(done.stdout)] == ["knower"]
    assert "the committed offsets of shardpost-compaction are unknown" in done.stderr


def test_a_broker_that_is_away_is_one_line() -> None:
    away = CommandLineHere(environ(bootstrap_servers="127.0.0.1:1"))
    assert "127.0.0.1:1 cannot be reached" in away.refused("lag", "--json", code=1)


@pytest.mark.one_of("lives of a broker")
def test_no_group_is_left_out_while_the_broker_starts(tmp_path: Path) -> None:
    with quick_broker(tmp_path / "home", expiry_minutes=10_000) as settings:
        create(settings, {"lag-restart": KEPT})
        put(settings, ("lag-restart", "k", "x"))
        names = {f"restart-{number}" for number in range(30)}
        commit(settings, *((name, at("lag-restart"), 0) for name in names))
        broker.stop(settings)
        broker.start(settings)
        found = lag(settings)
    assert found.problems == []
    assert {one.group for one in found.rows} == names
