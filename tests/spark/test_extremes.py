"""Records of extreme lengths and times: they are read like all others, and stop no run."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from shardpost.delta import snapshots, storage, table_log
from shardpost.delta.query import at_snapshot, rows
from shardpost.holders.model.view_tables import POSITION_EVENTS, SHARE_HOLDERS
from shardpost.holders.position_history import explanation
from shardpost.kafka.records import Header
from shardpost.settings import Settings
from shardpost.spark import delta_files
from shardpost.spark.run_size import THRESHOLDS
from tests.support.compacting import run
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.kafka_configs import configure_topic
from tests.support.record_streams import Stream
from tests.support.reference import Raw, position, produce
from tests.support.run_sizes import set_thresholds

LONG = "ä" * 5000
UNKNOWN = "\ufffd" * 100
ANY_TIME = {
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
}
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def test_how_many_are_null_is_known_of_values_of_any_length(
    spark: SparkSession, settings: Settings
) -> None:
    storage.create(installed(settings).tables, SHARE_HOLDERS, 30)
    holders = spark.createDataFrame([(LONG, ["1"], 1, 0), (None, [LONG], 1, 0)], SHARE_HOLDERS.ddl)
    written = delta_files.write(installed(settings).tables, SHARE_HOLDERS, holders, "new")
    assert written.non_null("client") == 1
    assert written.minimum("snapshot") == 1
    assert table_log.commit(installed(settings).tables, SHARE_HOLDERS, 0, written.files) == 1
    sql = "SELECT count(*) AS n, max(client) AS longest FROM share_holders"
    assert rows(installed(settings).tables, sql, {SHARE_HOLDERS: 1}) == [{"n": 2, "longest": LONG}]


def test_ids_and_texts_of_any_length_are_held(stream: Stream) -> None:
    for records in (
        [position(LONG, LONG, "NASDAQ"), position("1", "client1", LONG), bad(LONG.encode())],
        [position(LONG, f"{LONG}2", "NASDAQ"), position("2", LONG, "NYSE"), bad(b"\xff" * 5000)],
    ):
        stream.compact(*records)


def test_what_a_retry_says_of_its_origin_is_quoted_in_part_and_as_text(
    fresh: Callable[[], Settings],
) -> None:
    settings = fresh()
    places = produce(settings, [poison := bad(b"1")])
    partition, offset = places[id(poison)]
    topic = settings.topic("positions")
    origin = {"origin-topic": topic.encode(), "letter-id": b"1", "attempt": b"1"}
    producer = installed(settings).kafka.producer()
    for key, place in (
        (b"\xff" * 5000, {"origin-partition": b"%d" % partition, "origin-offset": b"%d" % offset}),
        (b"1", {"origin-partition": b"\xff" * 5000, "origin-offset": b"\xc3" * 5000}),
    ):
        headers: list[Header] = [*(origin | place).items()]
        producer.produce(settings.topic("retries"), key=key, value=b"{}", headers=headers)
    assert producer.flush(30) == 0
    assert run(settings)["rejected"] == 3
    sql = "SELECT reason FROM position_events WHERE retry_topic IS NOT NULL ORDER BY reason"
    at = at_snapshot(snapshots.current(installed(settings).tables), POSITION_EVENTS)
    found = f"expected the coordinates of a record of {topic}, found {topic}"
    assert [row["reason"] for row in rows(installed(settings).tables, sql, at)] == [
        f"{found}[{UNKNOWN}]@{UNKNOWN}",
        f"expected the key of {topic}[{partition}]@{offset}, 1, found {'FF' * 50}",
    ]


# Micro- and nanoseconds where milliseconds belong are what producers get wrong.
TIMES = {
    -1: FIRST,
    0: FIRST,
    1_790_000_000_000: datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC),
    1_790_000_000_000_000: LAST,
}
BEYOND_SPARK = {
    1_790_000_000_000_000_000: LAST,
    2**62: LAST,
    -(2**62): FIRST,
}


@pytest.mark.parametrize(
    ("times", "few"),
    drawn(
        [
            pytest.param(TIMES, 0, id="any"),
            pytest.param(TIMES | BEYOND_SPARK, 0, id="beyond Spark's"),
            pytest.param(TIMES | BEYOND_SPARK, THRESHOLDS.read_at_once, id="few"),
        ]
    ),
)
def test_timestamps_that_no_calendar_has_become_the_nearest(
    stream: Stream,
    times: dict[int, datetime],
    few: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_thresholds(monkeypatch, read_at_once=few)
    settings = stream.settings
    configure_topic(settings, settings.topic("positions"), ANY_TIME)
    records = [
        position(str(number), f"client{number}", "NASDAQ", timestamp_ms=at)
        for number, at in enumerate(times)
    ]
    records.append(bad(b"bad", timestamp_ms=max(times)))
    stream.compact(*records)
    said = "reading through Python's client"
    assert (said in caplog.text) == (times is not TIMES and not few)
    at = at_snapshot(snapshots.current(installed(settings).tables), POSITION_EVENTS)
    sql = "SELECT key, timestamp, value FROM position_events WHERE kind = 'upsert' ORDER BY key"
    found = rows(installed(settings).tables, sql, at)
    for row, record, (given, expected) in zip(found, records, times.items(), strict=False):
        assert row["value"] == record.value
        assert row["timestamp"] == expected or given == 0  # 0 is "now" for the client
    explained = explanation(
        installed(settings), snapshots.current(installed(settings).tables), "client1", "1"
    )
    assert len(explained) == 1


def bad(key: bytes, timestamp_ms: int = 1_790_000_000_000) -> Raw:
    return Raw("positions", key, b"{", timestamp_ms)
