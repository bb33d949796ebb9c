"""Lost records and recreated topics: a real broker that cleans its logs, real Spark, tables."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka.cimpl import NewPartitions

from shardpost import tables
from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.lost_records import TombstonesLostError, UncertainKeysError
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS
from shardpost.holders.plausibility import CollapseError
from shardpost.holders.spark import latest
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.settings import Settings
from tests.support.at_step import at_step
from tests.support.compacting import agree, held, run
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.job_process import kill_at, wait_for
from tests.support.jobs_here import CommandsHere
from tests.support.kafka_configs import (
    SOON_CLEANED,
    busy_cleaner,
    configure_topic,
    wait_until_shown,
)
from tests.support.record_streams import Stream
from tests.support.recreated_topic import recreate_topic
from tests.support.reference import (
    Raw,
    Retry,
    closed,
    exchange,
    position,
    produce,
    produce_retry,
    send,
)
from tests.support.transactions import begun_transaction

FORGETFUL = SOON_CLEANED | {"min.compaction.lag.ms": "0", "delete.retention.ms": "1"}
# Tombstones are kept for a day: only what is superseded goes sooner.
CLEANED = FORGETFUL | {"delete.retention.ms": "86400000"}


def clean_until(settings: Settings, left: int, *keys: str) -> None:
    """Have the cleaner delete the records of these positions, but so many of each.

    The segment that is written to is not cleaned: so tombstones of a key that never was are written
    until nothing else is left of them. Their timestamps end a segment, too.
    """
    topic = settings.topic("positions")
    partitions = {TopicPartition(topic, partition_of(key, 4)) for key in keys}

    def is_done() -> bool:
        now = int(time.time() * 1000)
        fillers = [Raw("positions", b"filler", None, now, one.partition) for one in partitions]
        produce(settings, fillers)
        found = [m.key() for one in partitions for m in read_to_end(installed(settings).kafka, one)]
        return all(found.count(key.encode()) == left for key in keys)

    with busy_cleaner(settings):
        wait_for(is_done, f"the cleaner to leave {left} records of {keys}", seconds=90)


def reconciled_keys(settings: Settings) -> list[str]:
    version = {
        POSITION_EVENTS: snapshots.current(installed(settings).tables).tables[POSITION_EVENTS.name]
    }
    sql = "SELECT key FROM position_events WHERE kind = 'reconciled' ORDER BY key"
    return [row["key"] for row in rows(installed(settings).tables, sql, version)]


def client_of(settings: Settings, key: str) -> str | None:
    at = at_snapshot(snapshots.current(installed(settings).tables), POSITIONS)
    found = rows(installed(settings).tables, "SELECT key, client, is_open FROM positions", at)
    return next((row["client"] for row in found if row["key"] == key and row["is_open"]), None)


BAD = b"{"


@pytest.mark.one_of("reconciliations beside changes")
@pytest.mark.also_on_store
def test_lost_tombstones_are_refused_and_a_reconciliation_closes_what_they_closed(
    stream: Stream,
) -> None:
    settings, fold = stream.settings, stream.fold
    bad = {key: Raw("positions", key.encode(), BAD) for key in ("5", "6", "7", "8", "9")}
    before = [position(str(n), "client1", "NASDAQ") for n in range(1, 6)] + [*bad.values()]
    places = produce(settings, before)
    fold.add(before)
    mended = [Retry(bad[key], position(key, "client1", "NASDAQ").value) for key in ("7", "8")]
    for retry in mended:
        produce_retry(settings, retry, places[id(retry.origin)])
    fold.add(mended)
    configure_topic(settings, settings.topic("positions"), FORGETFUL)
    stream.compact()

    # 1 was closed, 2 closed and opened again, 3 is undecodable since, 4 and 8 are as they were. Of
    # 5, 6 and 7 a record was undecodable, and they are closed since.
    after = [*map(closed, ("1", "2", "5", "6", "7")), position("2", "client2", "NASDAQ")]
    after += [Raw("positions", b"3", BAD)]
    produce(settings, after)
    clean_until(settings, 0, "1", "5", "6", "7")
    # Raised now, it does not bring back what was deleted while it was short.
    configure_topic(settings, settings.topic("positions"), {"delete.retention.ms": "3888000000"})
    first = snapshots.current(installed(settings).tables)
    with pytest.raises(TombstonesLostError, match=settings.topic("positions")) as refused:
        run(settings)
    assert refused.value.exit_code == 3
    assert snapshots.list_all(installed(settings).tables) == [first]
    agree(settings, fold)

    fold.add(after)
    result = stream.compact(reconcile=True, code=NEEDS_ATTENTION)
    assert reconciled_keys(settings) == ["1", "5", "6", "7"]
    assert (result["reconciled"], result["uncertain"]) == (4, 1)
    # A good record of 3 may have gone behind the undecodable one.
    assert result["uncertain_keys"] == {settings.topic("positions"): ["3"]}
    changes = [(t.position, t.change) for t in tables.explain("client1", settings=settings)]
    assert [key for key, change in changes if change == "reconciled"] == ["1", "5", "7"]

    # Corrections of what is gone come too late; and there is nothing left to reconcile.
    late = [Retry(bad[key], position(key, "client3", "NASDAQ").value) for key in ("5", "6", "7")]
    for retry in late:
        produce_retry(settings, retry, places[id(retry.origin)])
    result = stream.compact(reconcile=True)
    assert (result["without_effect"], result["reconciled"]) == (3, 0)


def test_offsets_of_aborted_transactions_are_suspect_and_a_reconciliation_changes_nothing(
    stream: Stream,
) -> None:
    settings = stream.settings
    stream.compact(position("1", "client1", "NASDAQ"))
    configure_topic(settings, settings.topic("positions"), FORGETFUL | {"segment.ms": "86400000"})
    producer = begun_transaction(settings, f"{settings.topic('positions')}-writer")
    send(producer, settings, position("1", "client2", "NASDAQ"))
    producer.flush(30)
    producer.abort_transaction(30)
    shardpost = CommandsHere(settings.environ())
    line = shardpost.refused("compact", code=3)
    assert f"{settings.topic('positions')} has records at 0 of the 2 offsets" in line
    assert "Run `shardpost compact --reconcile`" in line
    assert shardpost.json("compact", "--reconcile")["reconciled"] == 0
    agree(settings, stream.fold)
    assert run(settings)["changed"] is False


@pytest.mark.one_of("reconciliations beside changes")
@pytest.mark.parametrize("count", drawn([2, 40]), ids={2: "shorter", 40: "longer"}.get)
def test_a_recreated_topic_is_refused_and_a_reconciliation_takes_it_for_what_it_is(
    stream: Stream, count: int
) -> None:
    settings, fold = stream.settings, stream.fold
    topic = settings.topic("positions")
    bad = Raw("positions", b"bad", BAD)
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(20)])
    places = produce(settings, [bad])
    run(settings)
    recreate_topic(settings, topic, 4, cleanup_policy="compact")
    new = [position(str(n), "client2", "NYSE") for n in range(10, 10 + count)]
    produce(settings, [*new, Raw("positions", b"5", BAD)])
    with pytest.raises(ShardpostError, match=f"topic {topic}: expected the id .* --reconcile"):
        run(settings)
    assert held(settings) == {"client1": [str(n) for n in range(20)]}

    fold.add([bad, position("5", "client1", "NASDAQ"), *new])
    fold.rejected += 1
    if count == 2:
        with pytest.raises(CollapseError, match="open positions fall from 20 to 3"):
            run(settings, reconcile=True)
    stream.compact(reconcile=True, asked={"accept_drop": count == 2})
    produce_retry(settings, Retry(bad, position("bad", "x", "NYSE").value), places[id(bad)])
    found = stream.compact(closed("10"), position("3", "client3", "NASDAQ"))
    assert found["without_effect"] == 1


@pytest.mark.one_of("reconciliations beside changes")
def test_a_position_that_is_written_while_it_is_reconciled_is_left_to_the_next_run(
    fresh: Callable[[], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(3)])
    run(settings)
    recreate_topic(settings, topic, 4, cleanup_policy="compact")
    produce(settings, [position("9", "client9", "LON")])
    again = position("1", "client2", "NASDAQ")
    at_step(monkeypatch, latest)("positions reconciliation", lambda: produce(settings, [again]))
    run(settings, reconcile=True)
    assert reconciled_keys(settings) == ["0", "2"]
    assert held(settings) == {"client1": ["1"]}
    run(settings)
    assert held(settings) == {"client2": ["1"]}
    assert client_of(settings, "1") == "client2"


OWN_STEPS = ["positions reconciliation", "positions closing", "commit"]


@pytest.mark.also_on_store
@pytest.mark.one_of("kills of what makes tables")
def test_a_reconciliation_killed_at_a_step_of_its_own_ends_as_an_unbroken_one(
    stream: Stream,
) -> None:
    settings = stream.settings
    produce(settings, [position(str(n), f"client{n % 3}", "LON") for n in range(9)])
    produce(settings, [exchange("LON", "US")])
    run(settings)
    before = held(settings)
    recreate_topic(settings, settings.topic("positions"), 4, cleanup_policy="compact")
    new = [position(str(n), "client1", "NASDAQ") for n in range(4)]
    produce(settings, new)
    for name in drawn(OWN_STEPS, every=1):
        kill_at(settings, COMPACT_POSITIONS, CompactionRequest(reconcile=True), pause_at=name)
        assert held(settings) == before
    stream.fold.add([exchange("LON", "US"), *new])
    stream.compact(reconcile=True)
    assert len(reconciled_keys(settings)) == 5
    assert snapshots.current(installed(settings).tables).number == 2


@pytest.mark.one_of("reconciliations beside changes")
def test_added_partitions_do_not_make_a_record_seem_gone(fresh: Callable[[], Settings]) -> None:
    settings = fresh()
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(20)])
    run(settings)
    topic = settings.topic("positions")
    more = installed(settings).kafka.admin()
    more.create_partitions([NewPartitions(topic, 8)])[topic].result(30)
    wait_until_shown(settings, topic, 8)
    assert run(settings, reconcile=True)["reconciled"] == 0
    assert held(settings) == {"client1": [str(n) for n in range(20)]}


@pytest.mark.one_of("reconciliations beside changes")
def test_a_tombstone_that_went_behind_an_undecodable_record_is_refused_and_then_named(
    fresh: Callable[[], Settings], caplog: pytest.LogCaptureFixture
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    configure_topic(settings, topic, CLEANED)
    produce(settings, [position("U1", "client1", "NASDAQ"), position("U2", "client1", "NASDAQ")])
    run(settings)
    produce(settings, [closed("U1"), Raw("positions", b"U1", BAD)])
    clean_until(settings, 1, "U1")
    first = snapshots.current(installed(settings).tables)
    with pytest.raises(UncertainKeysError, match=f"{topic}: U1\\. The inputs"):
        run(settings)
    assert snapshots.list_all(installed(settings).tables) == [first]

    found = run(settings, reconcile=True, code=3)
    assert (found["uncertain"], found["uncertain_keys"]) == (1, {topic: ["U1"]})
    assert f"{topic}: key U1 is left unchanged" in caplog.text
    assert held(settings) == {"client1": ["U1", "U2"]}

    produce(settings, [position("U3", "client2", "NASDAQ")])
    assert run(settings)["uncertain"] == 0
    produce(settings, [closed("U1")])
    run(settings)
    assert held(settings) == {"client1": ["U2"], "client2": ["U3"]}


def test_an_undecodable_record_among_those_of_transactions_is_no_suspicion(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    topic = settings.topic("positions")
    configure_topic(settings, topic, {"min.compaction.lag.ms": "0"})
    here = {"partition": 0, "timestamp_ms": int(time.time() * 1000)}  # others would end the segment
    produce(settings, [position("1", "client1", "NASDAQ", **here)])
    run(settings)
    writer = installed(settings).kafka.transactional_producer(f"{topic}-writer")
    writer.init_transactions(30)
    for record in (
        position("1", "client2", "NASDAQ", **here),  # the one before is still there
        Raw("positions", b"9", BAD, **here),
    ):
        writer.begin_transaction()
        send(writer, settings, record)
        writer.commit_transaction(30)
    assert run(settings)["rejected"] == 1
    assert held(settings) == {"client2": ["1"]}
