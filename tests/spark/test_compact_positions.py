"""The compaction, driven whole, against a plain fold: real broker, real Spark, real tables."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewPartitions
from hypothesis import HealthCheck, Phase, example, given, strategies
from hypothesis import settings as example_settings

from shardpost.delta import parquet_files, snapshots, storage
from shardpost.delta.query import rows
from shardpost.delta.snapshot import NEVER
from shardpost.delta.storage import path_of
from shardpost.delta.table import Table, Version
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders import compaction
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.topic_state import UnreadableRecordsError
from shardpost.holders.model.view_tables import (
    POSITION_EVENTS,
    POSITIONS,
    REJECTED_RECORDS,
    SHARE_HOLDERS_CHANGES,
    VIEW,
    FoldingRule,
)
from shardpost.holders.spark import fold, input_update
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from shardpost.spark.run_size import THRESHOLDS
from shardpost.values.topic_names import TopicName
from tests.support.at_step import at_step, killing
from tests.support.compacting import agree, folding_by, held, run
from tests.support.how_far import drawn, up_to
from tests.support.installed import installed
from tests.support.kafka_configs import wait_until_shown
from tests.support.letter_world import committed
from tests.support.record_streams import BAD, RECORDS, Again, Growth, Stream, placed
from tests.support.reference import Raw, closed, exchange, position, produce, published, send
from tests.support.run_sizes import set_thresholds
from tests.support.transactions import begun_transaction

FEW = THRESHOLDS.few
GOOD = position("", "client3", "NASDAQ").value
# When layers are folded: in each run, where some records have come together, and never.
ALWAYS, NEVER_FOLDED = FoldingRule(runs=1), FoldingRule(least_records=10**9)
SOMETIMES = FoldingRule(least_records=10, share=1e-9)
# Histories in which every run meets what the one before it left, with limits and folds of each run.
EXAMPLES = [
    (
        [
            [position("1", "client1", "NASDAQ"), position("1", "client2", "LON"), closed("2")],
            [position("1", "client2", "NASDAQ"), exchange("LON", "US"), position("2", "x", "LON")],
        ],
        [0, 0],
        [ALWAYS, NEVER_FOLDED],
    ),
    (
        [
            [
                *(Raw("positions", b"moved", b"{"), position("moved", "client1", "NASDAQ")),
                *(Raw("positions", b"1", b"{"), Again(0, GOOD), Again(0, b"{")),
                Raw("positions", b"2", b""),
            ],
            [Growth(), Again(3, GOOD), Again(0, GOOD), Again(1, None), closed("2"), Again(1, GOOD)],
            [Raw("exchanges", b"LON", b"5"), Again(0, b'{"Country":"US"}'), Again(3, GOOD)],
        ],
        [0, FEW, 0],
        [NEVER_FOLDED, NEVER_FOLDED, ALWAYS],
    ),
]
BEFORE_COMMIT = [
    *("read", "exchanges history", "exchanges table", "positions history", "positions table"),
    *("share_holders", "commit"),
]
AFTER_COMMIT = ["offsets", "publish", "letters"]
HISTORIES = strategies.lists(strategies.lists(RECORDS, max_size=25), min_size=1, max_size=4)


def examples(test: Callable[..., None]) -> Callable[..., None]:
    """Have a property tried with these examples, too; in a quick run with one."""
    for case in drawn(EXAMPLES):
        test = example(*case)(test)
    return test


@pytest.mark.one_of("histories cut into any runs")
@example_settings(
    max_examples=up_to(2, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would take an hour
)
@examples
@given(
    HISTORIES,
    strategies.lists(strategies.sampled_from([0, FEW]), min_size=4),
    strategies.lists(strategies.sampled_from([ALWAYS, SOMETIMES, NEVER_FOLDED]), min_size=4),
)
@pytest.mark.also_on_store
def test_any_history_cut_into_any_runs_equals_the_fold(
    fresh: Callable[[], Settings],
    history: list[list[Raw | Again | Growth]],
    limits: list[int],
    folds: list[FoldingRule],
) -> None:
    settings = fresh()
    seen: dict[int, dict[str, list[str]]] = {}
    stream = Stream(settings)
    for records, at_most, folding in zip(history, limits, folds, strict=False):
        stream.send(records)
        with planned_for(at_most), folding_by(folding):
            run(settings)
        agree(settings, stream.fold)
        seen[snapshots.current(installed(settings).tables).number] = stream.fold.holders()
    for snapshot in snapshots.list_all(
        installed(settings).tables
    ):  # also what was folded since stays as it was
        assert (
            query_holders(installed(settings).tables, snapshot, HoldersQuery())
            == seen[snapshot.number]
        )


@contextmanager
def planned_for(at_most: int) -> Iterator[None]:
    """Have runs of more records than that do what runs of many do, which divide partitions."""
    with pytest.MonkeyPatch.context() as patch:
        set_thresholds(patch, few=at_most)
        if not at_most:
            set_thresholds(patch, per_task=7, read_at_once=0)
            patch.setattr(parquet_files, "MOST_RECORDS", 0)
        yield


def test_broken_off_before_its_commit_and_after_it_the_next_run_ends_as_an_unbroken_one(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within this process, at every step; test_compaction_crashes.py kills real ones."""
    settings = stream.settings
    stream.compact(*(position(str(n), f"client{n % 3}", "NASDAQ") for n in range(6)))
    before, hook = held(settings), at_step(monkeypatch, compaction, input_update, fold)
    stream.send(changes(0))
    for step in drawn(BEFORE_COMMIT):
        with killing(hook, step):
            run(settings)
        assert held(settings) == published(settings) == before
    committed_at = drawn(AFTER_COMMIT)
    for number, step in enumerate(committed_at, 1):
        with killing(hook, step):
            run(settings)
        assert held(settings) == stream.fold.holders()
        stream.send(changes(number))
    stream.compact()
    letters = [one.key for one in committed(settings, settings.topic("dead-letters"))]
    assert len(letters) == len(set(letters)) == 1 + len(committed_at)


def changes(number: int) -> list[Raw]:
    """Return what changes a holder, a country, and is no position."""
    return [
        *(position("1", f"client{number}", "NASDAQ"), closed(str(2 + number))),
        *(exchange("PAR", ("US", "FR")[number % 2]), Raw("positions", b"bad", b"{")),
    ]


def test_thousands_of_malformed_records_among_good_ones_change_nothing(stream: Stream) -> None:
    settings, fold, half = stream.settings, stream.fold, up_to(5_000, 1_000)
    good = [position(str(n), f"client{n % 7}", "NASDAQ") for n in range(100)]
    bad = [Raw("positions", str(n % 150).encode(), BAD[n % len(BAD)]) for n in range(2 * half)]
    odd = [
        Raw("positions", b"\xff", good[0].value),
        Raw("positions", b"", good[0].value),
        Raw("positions", b"big", b"[" * 900_000),
        Raw("positions", b"deep", b'{"Client":"c","X":' + b"[" * 100_000),
        Raw("positions", b"1", b'{"Client":"c","Ticker":"T","Amount":"1,5","Exchange":"LON"}'),
        Raw("positions", b"1", b'{"Client":true,"Ticker":"T","Amount":1,"Exchange":"LON"}'),
        Raw("clients", b"client1", b'{"Client":"client1","Subscribed":"yes"}'),
        Raw("exchanges", b"LON", b'{"Exchange":"LON","Country":7}'),
    ]
    records = good[:50] + bad[:half] + odd + good[50:] + bad[half:]
    produce(settings, records)
    fold.add(good)
    fold.rejected = len(bad) + len(odd)
    result = stream.compact()
    assert result["rejected"] == fold.rejected

    sql = "SELECT topic, reason, key, value FROM rejected_records"
    kept = rows(installed(settings).tables, sql, {REJECTED_RECORDS: None})
    assert len(kept) == fold.rejected
    assert sorted(row["value"] for row in kept) == sorted(r.value or b"" for r in bad + odd)
    assert 'expected a number for Amount, found "1,5"' in {row["reason"] for row in kept}
    assert {row["topic"] for row in kept} == {
        settings.topic(name) for name in ("positions", "clients", "exchanges")
    }


@pytest.mark.one_of("changes beside the records")
def test_a_missing_table_and_more_partitions_of_share_holders_are_refused(stream: Stream) -> None:
    settings = stream.settings
    stream.compact(position("1", "client1", "NASDAQ"))
    stream.send([closed("1")])
    table = Path(path_of(installed(settings).tables, POSITION_EVENTS))
    away = table.rename(settings.home / "away")
    with pytest.raises(ShardpostError, match=r"no table position_events .* version 1"):
        run(settings)
    assert not table.exists()
    away.rename(table)
    add_partitions(settings, "share-holders", 5)
    with pytest.raises(ShardpostError, match="has 5 partitions, but had 4 at snapshot 1"):
        run(settings)
    assert snapshots.current(installed(settings).tables).number == 1
    assert published(settings) == {"client1": ["1"]}


def add_partitions(settings: Settings, name: TopicName, count: int) -> None:
    """Let a topic have so many partitions."""
    topic = settings.topic(name)
    admin = installed(settings).kafka.admin()  # it has to outlive what it does
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    wait_until_shown(settings, topic, count)


@pytest.mark.one_of("transactions of producers")
def test_an_aborted_transaction_is_not_read_and_its_offsets_stop_nothing(stream: Stream) -> None:
    settings, fold = stream.settings, stream.fold
    producer = installed(settings).kafka.transactional_producer(
        f"{settings.topic('positions')}-writer"
    )
    producer.init_transactions(30)
    for commit, owner in ((True, "client1"), (False, "client2"), (True, "client3"), (False, "x")):
        producer.begin_transaction()
        for number in range(20):
            send(producer, settings, position(f"{owner}-{number}", owner, "NASDAQ"))
        producer.flush(30)  # also what is aborted stands in the log
        if commit:
            producer.commit_transaction(30)
            fold.add(position(f"{owner}-{n}", owner, "NASDAQ") for n in range(20))
        else:
            producer.abort_transaction(30)
    with planned_for(0):
        stream.compact()
    # A partition was read by several tasks, whose ranges begin and end anywhere in transactions.
    files = storage.sizes(installed(settings).tables, POSITION_EVENTS, None)
    assert len(files) > settings.partitions

    # Offsets that hold nothing but a marker: the next run reads them and finds no change.
    producer.begin_transaction()
    send(producer, settings, position("1", "client9", "NASDAQ"))
    producer.flush(30)
    producer.abort_transaction(30)
    stream.compact()

    # Nor do they make the undecodable record above them one that may have lost a good one.
    bad = Raw("clients", b"zoe", b"{")
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        send(producer, settings, bad)
        producer.flush(30)
        end(30)
    fold.add([bad])
    assert stream.compact()["rejected"] == 1


@pytest.mark.one_of("transactions of producers")
def test_an_open_transaction_is_left_for_a_later_run(stream: Stream) -> None:
    settings = stream.settings
    producer = begun_transaction(settings, f"{settings.topic('positions')}-writer")
    later = [position(str(n), "client1", "NASDAQ") for n in range(10)]
    for record in later:
        send(producer, settings, record)
    producer.flush(30)
    closes = closed(later[0].key.decode() if later[0].key else "")
    produce(settings, [closes])  # behind it: committed, and not to be read yet
    found = stream.compact(code=3)
    assert found["open_transactions"]
    first = snapshots.current(installed(settings).tables)
    assert first.looked_at == NEVER
    run(settings, code=3)
    assert snapshots.current(installed(settings).tables).number == first.number
    with pytest.raises(UnreadableRecordsError, match="Nothing was changed"):
        run(settings, reconcile=True)
    producer.commit_transaction(30)
    stream.fold.add([*later, closes])
    stream.compact()
    assert snapshots.current(installed(settings).tables).looked_at > first.committed_at


@pytest.mark.one_of("changes beside the records")
def test_with_added_partitions_the_newer_one_of_a_key_wins(stream: Stream) -> None:
    settings = stream.settings
    moving = [
        f"key{n}" for n in range(40) if partition_of(f"key{n}", 4) != partition_of(f"key{n}", 7)
    ]
    # The old partition gets many records, so that its offsets are the higher ones.
    stream.compact(*(position(key, f"client{n}", "NASDAQ") for n in range(5) for key in moving))
    add_partitions(settings, "positions", 7)
    after = [position(key, "client9", "NYSE") for key in moving[1:]] + [closed(moving[0])]
    produce(settings, [placed(record, 7) for record in after])
    stream.fold.add(after)
    stream.compact()

    # Read at once from nothing, with both partitions in one batch: the same holders.
    again = settings.model_copy(update={"home": settings.home / "again"})
    with planned_for(0):
        run(again, take_over=True)
    assert (
        snapshots.current(installed(again).tables).counts
        == snapshots.current(installed(settings).tables).counts
    )
    agree(again, stream.fold)


def test_offsets_are_committed_for_lag_tools_and_a_run_with_nothing_new_adds_no_snapshot_but_looks(
    stream: Stream,
) -> None:
    settings = stream.settings
    stream.compact(position("1", "client1", "NASDAQ"))
    first = snapshots.current(installed(settings).tables)
    reader = installed(settings).kafka.consumer("shardpost-compaction")
    places = [
        TopicPartition(topic, partition)
        for topic, partitions in first.end_offsets.items()
        for partition in partitions
    ]
    committed = reader.committed(places, timeout=30)
    reader.close()
    assert {(p.topic, p.partition): p.offset for p in committed} == {
        (topic, partition): end
        for topic, partitions in first.end_offsets.items()
        for partition, end in partitions.items()
    }
    result = run(settings)
    second = snapshots.current(installed(settings).tables)
    assert (result["changed"], result["published"]) == (False, 0)
    assert second.number == first.number
    assert second.looked_at > first.looked_at
    assert second.committed_at == first.committed_at


@pytest.mark.one_of("changes beside the records")
@pytest.mark.parametrize(
    ("steps", "countries"),
    drawn(
        [
            pytest.param(1, ["GB"], id="whole tables"),
            pytest.param(3, drawn(("GB", "FR", "US")), id="layered ones"),
        ]
    ),
)
def test_another_country_counts_from_the_next_run_on(
    stream: Stream, steps: int, countries: list[str]
) -> None:
    batches: list[list[Raw]] = [
        [position("1", "client1", "NASDAQ"), position("2", "client2", "LON")],
        [position("3", "client3", "LON"), position("1", "client1", "LON"), exchange("PAR", "GB")],
        [closed("2"), position("4", "client1", "PAR"), exchange("LON", "FR")],
    ]
    for records in batches[:steps]:
        stream.compact(*records)
    layered = {"positions", "exchanges", "share_holders"} if steps > 1 else set()
    assert set(snapshots.current(installed(stream.settings).tables).folded) == layered
    for country in countries:
        there = stream.settings.model_copy(update={"country": country})
        if country != snapshots.current(installed(there).tables).rule.country:
            with pytest.raises(UsageError, match="is for"):
                run(there)
        run(there, country_changed=True)
        agree(there, stream.fold)


def files_of(settings: Settings, table: Table) -> dict[str, int]:
    return storage.sizes(
        installed(settings).tables,
        table,
        snapshots.current(installed(settings).tables).tables[table.name],
    )


@pytest.mark.one_of("layers")
def test_an_increment_writes_what_changed_and_nothing_of_what_is_there(stream: Stream) -> None:
    settings = stream.settings
    stream.compact(*(position(str(n), f"client{n % 1000}", "NASDAQ") for n in range(10_000)))
    before = {table: files_of(settings, table) for table in VIEW}

    stream.compact(*(position(n, "client7", "NYSE") for n in ("3", "5000")), closed("9999"))
    snapshot = snapshots.current(installed(settings).tables)
    assert snapshot.folded == {"positions": 1, "share_holders": 1}
    after = {table: files_of(settings, table) for table in VIEW}
    added = {t.name: after[t].keys() - before[t].keys() for t in VIEW}
    assert all(before[t].keys() <= after[t].keys() for t in VIEW)
    changes = SHARE_HOLDERS_CHANGES.name
    assert {name for name, files in added.items() if files} == {"position_events", changes}
    written = sum(after[t][file] for t in VIEW for file in added[t.name])
    assert written < 50_000
    sql = f"SELECT client FROM {changes} WHERE snapshot = {snapshot.number}"  # noqa: S608 - ours
    versions: dict[Table, Version] = {SHARE_HOLDERS_CHANGES: snapshot.tables[changes]}
    appended = rows(installed(settings).tables, sql, versions)
    changed = {"client0", "client3", "client7", "client999"}
    assert sorted(row["client"] for row in appended) == sorted(changed)


@pytest.mark.one_of("layers")
def test_a_layer_that_has_become_large_is_folded_in_by_that_run(stream: Stream) -> None:
    settings, folded = stream.settings, []
    count = up_to(6, 4)
    for key in range(count):
        new = position(str(key), "client1", "NASDAQ"), position("0", f"c{key}", "NYSE")
        with folding_by(FoldingRule(least_records=4, share=0.5)):
            stream.compact(*new)
        folded.append(snapshots.current(installed(settings).tables).folded.get("positions"))
    assert folded == [None, 1, None, 3, None, 5][:count]
    version = snapshots.current(installed(settings).tables).tables["positions"]
    stored = rows(installed(settings).tables, "SELECT key FROM positions", {POSITIONS: version})
    assert len(stored) == count - 1
