"""Rebuilds, driven whole, against plain folds: real broker, real Spark, real tables."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from hypothesis import HealthCheck, Phase, example, given, strategies
from hypothesis import settings as example_settings
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from shardpost.decisions import decisions_topic
from shardpost.delta import snapshots, storage
from shardpost.delta.query import at_snapshot, rows
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders import pruned_histories
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.holders.spark import history as appended
from shardpost.holders.spark.history import decode
from shardpost.rebuilds import drop as dropping
from shardpost.rebuilds import registry, run
from shardpost.rebuilds.model.difference import Difference
from shardpost.rebuilds.model.rebuild import Source, Standing
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES, Action
from shardpost.rebuilds.registry import compare_open
from shardpost.rebuilds.run import run as carry_out
from shardpost.rebuilds.run import topped_up
from shardpost.rebuilds.spark import build, histories
from shardpost.settings import Settings
from shardpost.spark.run_size import THRESHOLDS
from tests.support.at_step import at_step
from tests.support.compacting import agree, held
from tests.support.compacting import run as run_compaction
from tests.support.how_far import drawn, up_to
from tests.support.installed import installed
from tests.support.job_process import paused
from tests.support.kafka_configs import configure_topic
from tests.support.letter_world import committed, header
from tests.support.rebuilding import compacted, request, rollback, start, swap
from tests.support.record_streams import RECORDS, Again, Growth, Stream
from tests.support.recreated_topic import recreate_topic
from tests.support.reference import Fold, Raw, closed, exchange, position, published
from tests.support.run_sizes import set_thresholds

Holders = dict[str, list[str]]

ACTIONS = ("compact", "start", "start GB", "start holders GB", "diff", "swap", "rollback", "drop")
STEPS = strategies.lists(
    strategies.tuples(
        strategies.lists(RECORDS, max_size=12),
        strategies.lists(strategies.sampled_from(ACTIONS), max_size=3),
    ),
    min_size=1,
    max_size=5,
)
SETS_OF_TABLES = {"start": None, "start GB": None, "start holders GB": "share_holders"}


@dataclass
class Model:
    """What is in use and beside, by the country whose stock counts there."""

    in_use: str = "US"
    beside: str | None = None
    is_new_in_use: bool = False
    was_swapped: bool = False
    started: str | None = None
    seen: dict[int, tuple[str, Holders]] = field(default_factory=dict)

    def may(self, action: str) -> bool:
        """Tell whether an action is possible now."""
        if action.startswith("start"):
            return self.beside is None or (not self.is_new_in_use and not self.was_swapped)
        if action in ("diff", "drop"):
            return self.beside is not None
        if action == "swap":
            return self.beside is not None
        return self.is_new_in_use or self.is_repeated(action)

    def has_country(self, action: str, fold: Fold) -> bool:
        """Tell whether some exchange has the country that a new rebuild is of, if that is new."""
        is_new = "GB" in action and self.beside is None and self.in_use != "GB"
        return not is_new or "GB" in fold.countries.values()

    def is_repeated(self, action: str) -> bool:
        """Tell whether a swap, or a rollback, is done already: it changes nothing."""
        if action == "swap":
            return self.is_new_in_use
        return action == "rollback" and self.was_swapped and not self.is_new_in_use


def differences(old: Holders, new: Holders) -> dict[str, int]:
    both = old.keys() & new.keys()
    return {
        "equal": sum(old[client] == new[client] for client in both),
        "changed": sum(old[client] != new[client] for client in both),
        "only_old": len(old.keys() - new.keys()),
        "only_new": len(new.keys() - old.keys()),
    }


def diff(settings: Settings) -> Difference:
    topped_up(installed(settings), registry.require_current(installed(settings).tables))
    return compared(settings)


def compared(settings: Settings) -> Difference:
    """Compare the tables of the open rebuild as they are now."""
    return compare_open(installed(settings).tables, installed(settings).kafka, datetime.now(UTC))


@pytest.mark.one_of("histories cut into any runs")
@pytest.mark.timeout(1500)
@example_settings(
    max_examples=1,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate][: up_to(3, 1)],
)
@example(
    [
        (
            [position("1", "client1", "NASDAQ"), Again(0, b"{"), position("2", "client1", "LON")],
            ["start GB", "diff", "swap"],
        ),
        (
            [position("1", "client2", "LON"), exchange("LON", "US"), closed("2")],
            ["rollback", "diff", "swap"],
        ),
        ([Growth(), position("3", "client3", "NASDAQ")], ["drop", "start holders GB", "diff"]),
        ([exchange("NASDAQ", "GB"), Raw("positions", b"3", b"{")], ["swap", "rollback", "drop"]),
    ]
)
@pytest.mark.also_on_store
@given(STEPS)
def test_any_history_with_rebuilds_between_runs_equals_the_fold_of_the_rules_in_force(
    fresh: Callable[[], Settings],
    monkeypatch: pytest.MonkeyPatch,
    history: list[tuple[list[Any], list[str]]],
) -> None:
    settings = fresh()
    stream, model = Stream(settings), Model()
    monkeypatch.setattr(run, "_require_decoder", lambda *_: None)  # it is another one each time
    for number, (records, actions) in enumerate(history):
        stream.send(records)
        with pytest.MonkeyPatch.context() as patch:  # now the plans for many records, now for few
            set_thresholds(patch, few=THRESHOLDS.few * (number % 2))
            if number % 3:  # now histories are copied, now decoded again
                patch.setattr(build, "decoder_id", lambda _: "another")
            compacted(settings)
            check(settings, stream.fold, model)
            for action in actions:
                do(settings, action, stream.fold, model)
                check(settings, stream.fold, model)
    for snapshot in snapshots.list_all(installed(settings).tables):
        country, holders = model.seen[snapshot.number]
        assert (
            snapshot.rule.country,
            query_holders(installed(settings).tables, snapshot, HoldersQuery()),
        ) == (
            country,
            holders,
        )


def check(settings: Settings, fold: Fold, model: Model) -> None:
    agree(settings, fold, model.in_use)
    snapshot = snapshots.current(installed(settings).tables)
    model.seen[snapshot.number] = snapshot.rule.country, fold.holders(model.in_use)


def do(settings: Settings, action: str, fold: Fold, model: Model) -> None:
    """Do it, and hold it against the model; what is not possible now changes nothing."""
    if action == "compact":
        compacted(settings)
        return
    is_same = not action.startswith("start") or model.started in (None, action)
    if not (model.may(action) and is_same and model.has_country(action, fold)):
        with pytest.raises(ShardpostError):
            attempt(settings, action)
        return
    found = attempt(settings, action)
    if model.is_repeated(action):
        return
    if action.startswith("start"):
        model.started = action
        model.beside = "GB" if "GB" in action else settings.country
    elif action in ("swap", "rollback"):
        assert model.beside is not None
        model.in_use, model.beside = model.beside, model.in_use
        model.is_new_in_use = action == "swap"
        model.was_swapped = True
    elif action == "drop":
        model.beside = model.started = None
        model.is_new_in_use = model.was_swapped = False
    else:
        old, new = model.in_use, model.beside
        if model.is_new_in_use:
            assert isinstance(found, Difference)
            return  # of the snapshot at which they were swapped
        assert isinstance(found, Difference)
        assert new is not None
        expected = differences(fold.holders(old), fold.holders(new))
        assert vars(found.holders) == expected
        assert vars(found.positions) == {
            "equal": len(fold.positions),
            "changed": 0,
            "only_old": 0,
            "only_new": 0,
        }


def attempt(settings: Settings, action: str) -> object:
    if action.startswith("start"):
        country = "GB" if "GB" in action else settings.country
        return start(settings, country, SETS_OF_TABLES[action])
    actions: dict[str, Callable[[Settings], object]] = {
        "diff": diff,
        "swap": swap,
        "rollback": rollback,
        "drop": lambda own: dropping.drop(installed(own), "me", "a test"),
    }
    return actions[action](settings)


@pytest.fixture
def stream(fresh: Callable[[], Settings]) -> Stream:
    """Give a stream with some records and a snapshot."""
    found = Stream(fresh())
    found.send(
        [
            *(position(str(n), f"client{n % 3}", ("NASDAQ", "LON")[n % 2]) for n in range(9)),
            Raw("positions", b"0", b"{"),
            Raw("clients", b"client1", b'{"Client":"client1","Email":"a@x.org","Subscribed":true}'),
        ]
    )
    compacted(found.settings)
    return found


@pytest.mark.one_of("stories of a rebuild")
@pytest.mark.parametrize("is_known", drawn([True, False]))
def test_with_unchanged_code_a_history_differs_in_nothing_and_rows_keep_their_place(
    stream: Stream, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stream.settings
    before, size = history(settings), sizes(settings)
    own = snapshots.current(installed(settings).tables).decoder
    assert own is not None
    with monkeypatch.context() as patch:
        if is_known:
            patch.setattr(histories, "decode", None)  # nothing is decoded
        else:
            patch.setattr(build, "decoder_id", lambda _: "another")
        start(settings)
    candidate = registry.require_current(installed(settings).tables).candidate
    assert candidate.decoder == (own if is_known else "another")
    found = diff(settings)
    assert found.is_none
    assert found.samples == []
    assert (found.positions.equal, found.holders.equal) == (9, 3)
    swap(settings)
    assert snapshots.current(installed(settings).tables).folders["positions"] == "positions.2"
    assert history(settings) == before
    assert not is_known or sizes(settings) == size  # then its files are copied
    agree(settings, stream.fold)
    compacted(settings)  # nothing new: no snapshot
    stream.send([position("7", "client7", "NASDAQ")])
    compacted(settings)
    assert snapshots.current(installed(settings).tables).decoder == (own if is_known else None)
    rollback(settings)
    assert snapshots.current(installed(settings).tables).decoder == own
    agree(settings, stream.fold)


def sizes(settings: Settings) -> list[int]:
    """Return the sizes of the files of the history of positions in use."""
    snapshot = snapshots.current(installed(settings).tables)
    version = snapshot.tables[POSITION_EVENTS.name]
    return sorted(
        storage.sizes(
            installed(settings).tables, snapshot.located(POSITION_EVENTS), version
        ).values()
    )


def history(settings: Settings) -> list[dict[str, Any]]:
    """Return the history of positions in use."""
    sql = 'SELECT * FROM position_events ORDER BY "partition", offset, retry_offset'
    return rows(
        installed(settings).tables,
        sql,
        at_snapshot(snapshots.current(installed(settings).tables), POSITION_EVENTS),
    )


def mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the decoder find the client of position 4 elsewhere, and take position 6 for broken."""

    def other(*of: Any) -> DataFrame:
        found = decode(*of)
        if "exchange" not in found.columns:
            return found
        is_broken = F.col("key") == "6"
        client = F.when(F.col("key") == "4", F.lit("client9")).otherwise(F.col("client"))
        return found.withColumns(
            {
                "client": F.when(~is_broken, client),
                "kind": F.when(is_broken, "rejected").otherwise(F.col("kind")),
                "reason": F.when(is_broken, "broken").otherwise(F.col("reason")),
                "raw_key": F.when(is_broken, F.lit(b"6")).otherwise(F.col("raw_key")),
            }
        )

    monkeypatch.setattr(histories, "decode", other)
    for module in (build, appended):
        monkeypatch.setattr(module, "decoder_id", lambda _: "mended")


@pytest.mark.one_of("stories of a rebuild")
def test_a_changed_decoder_is_seen_part_by_part_swapped_and_rolled_back_after_many_runs(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stream.settings
    stream.send([position("4", "client1", "NASDAQ")])  # a file of its own
    compacted(settings)
    before = history(settings)
    with monkeypatch.context() as patch:
        patch.setattr(histories, "RECORDS_AT_ONCE", 1)  # from the first part that changed
        mended(patch)
        start(settings)
        found = diff(settings)
        assert vars(found.positions) == {"equal": 7, "changed": 1, "only_old": 1, "only_new": 0}
        by_key = {one["position"]: one for one in found.samples if "position" in one}
        assert by_key["4"]["old"]["client"] == "client1"
        assert by_key["4"]["new"]["client"] == "client9"
        assert by_key["6"]["new"] is None
        assert by_key["6"]["old"]["topic"] == settings.topic("positions")
        done = swap(settings)
        assert done["changed_holders"] == done["published"] == 3
        assert done["letters"] == 1
        assert letters(settings) == {"0": 1, "6": 1}
        assert held(settings) == {"client0": ["0"], "client2": ["2", "8"], "client9": ["4"]}
        assert published(settings) == held(settings)
        assert snapshots.current(installed(settings).tables).counts.rejected == 2
        assert snapshots.current(installed(settings).tables).decoder == "mended"
        changed: dict[str, dict[str, Any]] = {
            "4": {"client": "client9"},
            "6": {"kind": "rejected", "client": None},
        }
        columns = ("key", "partition", "offset", "kind", "client")
        assert [{name: row[name] for name in columns} for row in history(settings)] == [
            {name: (row | changed.get(row["key"], {}))[name] for name in columns} for row in before
        ]
    for number in range(up_to(3, 1)):
        stream.send([position(str(number), f"client{number}", "NASDAQ"), closed(str(8 - number))])
        compacted(settings)
    assert rollback(settings)["letters"] == 0
    agree(settings, stream.fold)
    assert snapshots.current(installed(settings).tables).counts.rejected == stream.fold.rejected
    assert letters(settings) == {"0": 1, "6": 1}


def letters(settings: Settings) -> dict[str | None, int]:
    """Return of how many dead letters each key's records were made."""
    found = committed(settings, settings.topic("dead-letters"))
    return Counter(header(one, "origin-key") for one in found)


@pytest.mark.one_of("stories of a rebuild")
def test_from_kafka_what_it_holds_no_more_is_named(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = stream.settings
    monkeypatch.setattr(histories, "RECORDS_AT_ONCE", 3)
    monkeypatch.setattr("shardpost.rebuilds.spark.histories.RECORDS_AT_ONCE", 3)
    assert start(settings, source=Source.KAFKA)["missing"] == []
    assert diff(settings).is_none
    dropping.drop(installed(settings), "me", "a test")
    topic = settings.topic("positions")
    low = settings.partitions - 1
    while not (end := snapshots.current(installed(settings).tables).end_offsets[topic][low]):
        low -= 1
    # Not also by age: the records are of years past.
    configure_topic(settings, topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    admin = installed(settings).kafka.admin()
    gone = admin.delete_records([TopicPartition(topic, low, end)])
    assert [future.result(30) for future in gone.values()]
    result = start(settings, source=Source.KAFKA)
    assert f"{topic}[{low}]: offsets 0 to {end - 1}" in result["missing"]
    assert f"topic {topic}: {end} of 10 records read" in result["missing"]
    found = diff(settings)
    assert found.positions.only_old == found.positions.different > 0
    rebuild = registry.require_current(installed(settings).tables)
    # What the topic had until it was read may have superseded what is gone.
    since = rebuild.candidate.history_from
    assert since is not None
    assert snapshots.current(installed(settings).tables).committed_at < since <= rebuild.changed_at
    before = {
        at: query_holders(
            installed(settings).tables, snapshots.current(installed(settings).tables), at
        )
        for at in AS_OF
    }
    stream.send([position("20", "client4", "NASDAQ", timestamp_ms=1_792_000_000_000)])
    compacted(settings)
    assert letters(settings) == {"0": 1}
    swapped = swap(settings)
    assert (swapped["published"], swapped["letters"]) == (swapped["changed_holders"], 0)
    assert held(settings) == published(settings) != stream.fold.holders("US")
    for at in AS_OF:
        with pytest.raises(ShardpostError, match="has the whole history from"):
            query_holders(
                installed(settings).tables, snapshots.current(installed(settings).tables), at
            )
    rollback(settings)
    agree(settings, stream.fold)
    assert letters(settings) == {"0": 1}
    newest = snapshots.current(installed(settings).tables)
    assert {at: query_holders(installed(settings).tables, newest, at) for at in AS_OF} == before


@pytest.mark.one_of("stories of a rebuild")
def test_from_kafka_what_was_read_keeps_its_order_and_a_topic_that_is_replaced_is_refused(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The homes of 2 and 4 among 4, 5 and 8 partitions are one, another one, and the first again.

    The first record of 4 was pruned, and that of 2 was not.
    """
    settings, topic = stream.settings, stream.settings.topic("positions")
    [place] = [place for place, key in places(settings) if key == "2"]
    stream.grow(5)
    stream.send([position("2", "client8", "NASDAQ"), position("4", "client9", "NASDAQ")])
    stream.send([Again(3, position("0", "client7", "NASDAQ").value)])  # which was rejected
    compacted(settings)
    stream.grow(8)
    stream.send([position("9", "client6", "NASDAQ")])
    compacted(settings)
    at, newest = datetime(2026, 12, 1, tzinfo=UTC), snapshots.current(installed(settings).tables)
    old = pruned_histories.find_superseded(installed(settings), newest, at, {"positions": {place}})
    pruned_histories.prune(installed(settings), old, at)
    agree(settings, stream.fold)
    before = history(settings)
    start(settings, source=Source.KAFKA)
    assert diff(settings).is_none
    swap(settings)
    agree(settings, stream.fold)
    after = history(settings)
    assert [row for row in after if row in before] == before
    assert sorted(row["key"] for row in after if row not in before) == ["0", "4"]
    dropping.drop(installed(settings), "me", "a test")
    hook = at_step(monkeypatch, build)
    hook("rebuilt share_holders", lambda: recreate_topic(settings, topic, 8))
    for often in ("while the tables were built from it: drop them", "Rebuild from the history"):
        with pytest.raises(ShardpostError, match=f"{topic}: expected the id .*{often}"):
            start(settings, source=Source.KAFKA)
    newest = snapshots.current(installed(settings).tables)
    assert (
        registry.require_current(installed(settings).tables).standing(newest) is Standing.BUILDING
    )
    dropping.drop(installed(settings), "me", "a test")


def places(settings: Settings) -> list[tuple[tuple[int, int], str]]:
    """Return ((partition, offset), key) of all records in the history of positions."""
    return [((row["partition"], row["offset"]), row["key"]) for row in history(settings)]


AS_OF = [HoldersQuery(as_of=datetime(2026, month, 1, tzinfo=UTC)) for month in (9, 10)]


@pytest.mark.one_of("stories of a rebuild")
def test_a_changed_country_waits_for_the_swap_and_stays_after_it(stream: Stream) -> None:
    settings = stream.settings
    changed = settings.model_copy(update={"country": "GB"})
    start(changed, "GB", "share_holders")
    stream.send([position("3", "client1", "NASDAQ")])
    compacted(changed)
    agree(settings, stream.fold, "US")
    swap(settings)
    agree(settings, stream.fold, "GB")
    for now in (settings, changed):  # as the setting was when it was swapped, and as it is then
        stream.send([position("5", "client2", "LON"), closed("1")])
        compacted(now)
        agree(settings, stream.fold, "GB")
    dropping.drop(installed(settings), "me", "a test")
    stream.send([position("7", "client2", "LON")])
    compacted(changed)
    agree(settings, stream.fold, "GB")
    with pytest.raises(UsageError, match=r"country US: snapshot .* is for country GB"):
        compacted(settings)  # set again: that is a change of the setting
    run_compaction(settings, country_changed=True)
    agree(settings, stream.fold, "US")


@pytest.mark.one_of("stories of a rebuild")
def test_a_dropped_rebuild_that_was_never_in_use_leaves_the_disk_and_too_many_changes_are_refused(
    stream: Stream,
) -> None:
    settings = stream.settings
    start(settings, "GB", "positions")
    there = {path.name for path in (settings.home / "tables").iterdir()}
    assert there >= {"positions.2", "share_holders.2"}
    _, removed = dropping.drop(installed(settings), "me", "a test")
    assert {*removed} == {"positions.2", "share_holders.2", "share_holders_changes.2"}
    left = {path.name for path in (settings.home / "tables").iterdir()}
    assert left == there - {*removed}

    assert start(settings, "GB", "share_holders")["tables"] == {
        name: f"{name}.3" for name in ("share_holders", "share_holders_changes")
    }
    before = snapshots.current(installed(settings).tables).number
    refused = request(Action.SWAP, max_changed=0.5)
    code, result = carry_out(refused, installed(settings))
    assert (code, result["state"]) == (3, Standing.READY)
    assert "nothing was swapped" in result["refused"]
    assert snapshots.current(installed(settings).tables).number == before
    assert carry_out(request(Action.SWAP, max_changed=1.0), installed(settings))[0] == 0
    [(decision, headers)] = [
        found
        for number in range(settings.partitions)
        for found in decisions_topic.of_partition(installed(settings).kafka, number, None)
        if found[0].about == b"rebuild/3"
    ]
    assert (decision.kind, decision.who, decision.why) == ("swapped", "tester", "a test")
    assert headers == {"action": b"swap", "snapshot": str(before + 1).encode()}
    assert dropping.drop(installed(settings), "me", "a test")[1] == []


@pytest.mark.one_of("stories of a rebuild")
def test_a_diff_is_at_the_same_offsets_while_both_sides_move(stream: Stream) -> None:
    settings = stream.settings
    start(settings, "GB", "share_holders")
    stream.send([position("3", "client1", "NASDAQ"), position("10", "client5", "LON")])
    expected = differences(stream.fold.holders("US"), stream.fold.holders("GB"))
    compacted(settings)
    at = registry.require_current(installed(settings).tables).candidate
    stream.send([position(str(n), f"client{n}", "LON") for n in (11, 12)] + [closed("10")])
    with pytest.MonkeyPatch.context() as patch:  # the compaction's own top-up does not come to it
        patch.setattr("shardpost.rebuilds.run._waiting", lambda *_: None)
        compacted(settings)
    found = compared(settings)
    assert found.old["snapshot"] == found.new["snapshot"] == at.number
    assert vars(found.holders) == expected
    then = differences(stream.fold.holders("US"), stream.fold.holders("GB"))
    assert then != expected
    by_snapshot = {at.number: expected, at.number + 1: then}
    with paused(settings, REBUILD_TABLES, request(Action.TOP_UP), pause_at="topped up") as job:
        # Its tables are committed, its row is not.
        assert vars(compared(settings).holders) == expected
        job.resume()
        while found.new["snapshot"] == at.number:
            found = compared(settings)
            assert vars(found.holders) == by_snapshot[found.new["snapshot"]]
        assert job.wait() == 0, job.log.read_text()
    assert vars(compared(settings).holders) == then
