"""Imports of whole lists, against a reference; broken off, repeated, beside others."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from shardpost.delta import snapshots, stored_files
from shardpost.delta.query import at_snapshot, rows
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import POSITIONS
from shardpost.imports import run as import_run
from shardpost.imports.import_job import IMPORT_POSITIONS
from shardpost.imports.spark.source_rows import LISTED
from shardpost.kafka import records as kafka_records
from shardpost.kafka.records import partition_of
from shardpost.kafka.transactions import FencedError
from shardpost.locks import locks
from shardpost.rebuilds.model.rebuild import Source
from shardpost.settings import Settings
from tests.support import rebuilding
from tests.support.at_step import Killed, at_step, killed, killing
from tests.support.compacting import run
from tests.support.how_far import drawn, up_to
from tests.support.imports import (
    after,
    csv_of,
    decided,
    import_ids,
    records,
    row,
    run_import,
    state,
)
from tests.support.installed import installed
from tests.support.reference import Raw, closed, exchange, position, produce
from tests.support.run_sizes import set_thresholds
from tests.support.simulated_topic import librdkafka

Fresh = Callable[[], Settings]
BATCH = "import batch written"


def of_tables(settings: Settings) -> dict[str, Any]:
    """Return what is open in the newest snapshot: {key: (client, exchange, amount)}."""
    at = at_snapshot(snapshots.current(installed(settings).tables), POSITIONS)
    found = rows(installed(settings).tables, "SELECT * FROM positions WHERE is_open", at)
    return {one["key"]: (one["client"], one["exchange"], float(one["amount"])) for one in found}


def values(forms: dict[str, Any]) -> dict[str, Any]:
    return {
        key: (form["Client"], form["Exchange"], float(form["Amount"]))
        for key, form in forms.items()
    }


def compacted(settings: Settings, *raw: Raw) -> Settings:
    produce(settings, raw)
    run(settings)
    return settings


def ten(settings: Settings) -> Settings:
    """Have ten open positions."""
    return compacted(settings, *(position(str(n), f"client{n % 3}", "NASDAQ") for n in range(10)))


TEN = [row(str(n), f"client{n % 3}") for n in range(10)]


@pytest.fixture(scope="module")
def unchanged(shared: Settings) -> Settings:
    """Have ten open positions to which no test writes, and a record that cannot be decoded."""
    return compacted(ten(shared), Raw("positions", b"9", b"{"))


@pytest.mark.parametrize("seed", drawn(range(2), every=1))
def test_what_is_open_afterwards_is_the_list(fresh: Fresh, tmp_path: Path, seed: int) -> None:
    choose = Random(seed)  # noqa: S311 - the same each time
    settings = fresh()

    def records_of() -> list[Raw]:
        keys = [str(choose.randrange(40)) for _ in range(60)]
        return [
            closed(key)
            if choose.random() < 0.2
            else position(key, f"client{choose.randrange(4)}", choose.choice(["NASDAQ", "LON"]))
            for key in keys
        ]

    def list_of() -> list[dict[str, str]]:
        found = [
            row(
                str(choose.randrange(50)),
                choose.choice(["client1", "client2", ""]),
                choose.choice(["NASDAQ", "LON"]),
                choose.choice(["1", "1", "2", "1,5"]),
            )
            for _ in range(50)
        ]
        return found + choose.sample(found, 5)

    for number in range(up_to(2, 1)):
        compacted(settings, *records_of())
        before, listed = state(settings), list_of()
        path = csv_of(tmp_path / f"{number}.csv", listed)
        expected = values(after(before, listed))
        result = run_import(settings, path, max_closed=1.0)
        assert values(state(settings)) == expected
        run(settings)
        assert of_tables(settings) == expected
        assert result["written"] == result["new"] + result["changed"] + result["closed"]
        again = run_import(settings, path)
        assert (again["import_id"], again["written"]) == (result["import_id"], 0)
        assert again["applied_before"]


def test_a_plan_changes_nothing_and_says_what_would_come(
    unchanged: Settings, tmp_path: Path
) -> None:
    settings, before = unchanged, decided(unchanged)
    listed = [
        *TEN[1:8],
        row("8", "other"),
        row("8", "client2"),
        row("9", "client9"),
        row("x", "y", " nasdaq"),
    ]
    listed += [row("z", ""), row("0", "client0", amount="1,5")]
    path = csv_of(tmp_path / "list.csv", listed)
    result = run_import(settings, path, apply=False)
    assert {name: result[name] for name in ("rows", "new", "changed", "closed", "equal")} == {
        "rows": 13,
        "new": 1,
        "changed": 1,
        "closed": 0,
        "equal": 7,
    }
    assert {(one["row"]["PositionId"], one["reason"]) for one in result["rejected"]} == {
        ("8", "PositionId is given 2 times, with different values"),
        ("z", "expected text for Client, found nothing"),
        ("0", 'expected a number for Amount, found "1,5"'),
    }
    assert (result["left"], result["rejected_rows"], result["applied"]) == (2, 4, False)
    assert result["samples"] == {"new": ["x"], "changed": ["9"]}
    assert result["unknown_exchanges"] == {" nasdaq": 1}
    assert (records(settings), decided(settings)) == ([], before)


def test_records_have_the_id_lie_where_kafka_puts_their_keys_and_stop_another_list(
    fresh: Fresh, tmp_path: Path
) -> None:
    settings = ten(fresh())
    path = csv_of(tmp_path / "list.csv", [*TEN[:9], row("neu ä", "Käte", amount="1.50")])
    result = run_import(settings, path, import_id="of today", max_closed=0.1)
    found = {(one.key or b"").decode(): one for one in records(settings)}
    assert found["9"].value is None
    assert (found["neu ä"].value or b"").decode() == (
        '{"PositionId":"neu ä","Client":"Käte","Ticker":"T","Amount":1.50,"Exchange":"NASDAQ"}'
    )
    assert [one.partition for one in found.values()] == [partition_of(key, 4) for key in found]
    assert import_ids(settings) == {"of today"}
    assert decided(settings) == ["of today"]
    assert result["applied"]
    # Its records are not compacted yet: that stops another list.
    with pytest.raises(ShardpostError, match=r"records of another import, .* compact` first"):
        run_import(settings, csv_of(tmp_path / "another.csv", TEN))


@pytest.mark.one_of("imports beside other changes")
def test_after_an_import_the_records_of_any_producer_count_and_an_import_follows_them(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = compacted(fresh())
    keys = [str(number) for number in range(1, 13)]
    run_import(settings, csv_of(tmp_path / "first.csv", [row(key, "client1") for key in keys]))
    expected = dict.fromkeys(keys, ("client1", "NASDAQ", 1.0))
    for part in (keys[:6], keys[6:]):  # compacted together with the import, and after it
        by_default_of_librdkafka(settings, [position(key, "client2", "NASDAQ") for key in part])
        run(settings)
        expected |= dict.fromkeys(part, ("client2", "NASDAQ", 1.0))
        assert of_tables(settings) == expected
    elsewhere = {key for key in keys if librdkafka(key, 4) != partition_of(key, 4)}
    topic = settings.topic("positions")
    found = snapshots.current(installed(settings).tables).scattered[topic]
    assert {*found.keys} <= elsewhere
    assert found.count == len(elsewhere & {*keys[6:]}) > 0

    listed = [row("1", "client3"), *(row(key, "client2") for key in keys[2:]), row("13", "client3")]
    path = csv_of(tmp_path / "second.csv", listed)
    run_import(settings, path, import_id="second", max_closed=0.1)
    written = (one for one in records(settings) if ("import-id", b"second") in one.headers)
    second = {(one.key or b"").decode(): one.partition for one in written}
    assert second == {key: librdkafka(key, 4) for key in ("1", "2", "13")}
    by_default_of_librdkafka(settings, [position("13", "client4", "NASDAQ")])
    run(settings)
    expected |= {"1": ("client3", "NASDAQ", 1.0), "13": ("client4", "NASDAQ", 1.0)}
    del expected["2"]
    assert of_tables(settings) == expected

    # Read again from Kafka, beside; and at once into empty tables, as a long run: the same.
    rebuilding.start(settings, source=Source.KAFKA)
    rebuilding.swap(settings)
    assert of_tables(settings) == expected
    set_thresholds(monkeypatch, few=0)
    again = settings.model_copy(update={"home": settings.home / "again"})
    run(again, take_over=True)
    assert of_tables(again) == expected
    assert snapshots.current(installed(again).tables).scattered[topic].count == len(elsewhere)


def by_default_of_librdkafka(settings: Settings, raw: list[Raw]) -> None:
    """Send records as somebody does who sets no partitioner."""
    producer = Producer({"bootstrap.servers": settings.bootstrap})
    for one in raw:
        producer.produce(settings.topic("positions"), key=one.key, value=one.value)
    assert producer.flush(30) == 0


@pytest.mark.one_of("imports that are broken off")
@pytest.mark.parametrize("batches_written", drawn([1, 3]))
def test_broken_off_and_run_again_all_is_there_once(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches_written: int
) -> None:
    settings = ten(fresh())
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 2)
    listed = [row(str(n), "client1", "LON") for n in range(3, 11)]
    path = csv_of(tmp_path / "list.csv", listed)
    hook = at_step(monkeypatch, import_run)

    def next_batch(left: int) -> Callable[[], object]:
        return killed if left == 1 else lambda: hook(BATCH, next_batch(left - 1))

    hook(BATCH, next_batch(batches_written))
    with pytest.raises(Killed):
        run_import(settings, path, max_closed=1.0)
    assert len(records(settings)) == 2 * batches_written
    assert decided(settings) == []
    result = run_import(settings, path, max_closed=1.0)
    keys = [one.key for one in records(settings)]
    assert len(keys) == len(set(keys)) == 11
    assert import_ids(settings) == {result["import_id"]}
    assert decided(settings) == [result["import_id"]]
    assert values(state(settings)) == values(after({}, listed))
    ends = run_import(settings, path, max_closed=1.0)
    assert (ends["written"], ends["import_id"]) == (0, result["import_id"])


@pytest.mark.one_of("imports that are broken off")
def test_broken_off_and_compacted_the_rest_is_written_under_the_same_id(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ten(fresh())
    monkeypatch.setattr(kafka_records, "MAX_BATCH_RECORDS", 4)
    path = csv_of(tmp_path / "list.csv", [row(str(n), "client1", "LON") for n in range(10)])
    with killing(at_step(monkeypatch, import_run), BATCH):
        run_import(settings, path)
    run(settings)
    assert run_import(settings, path)["changed"] == 6
    assert len(records(settings)) == 10
    assert len(import_ids(settings)) == 1
    assert len(decided(settings)) == 1


def test_records_that_are_not_compacted_stop_it_at_once(fresh: Fresh, tmp_path: Path) -> None:
    settings = fresh()
    path = csv_of(tmp_path / "list.csv", TEN)
    with pytest.raises(ShardpostError, match=r"no snapshot .* run `shardpost compact` first"):
        run_import(settings, path)
    ten(settings)
    produce(settings, [position("1", "client1", "LON")])
    with pytest.raises(ShardpostError, match=r"not in the tables yet: .* compact` first"):
        run_import(settings, path, apply=False)


@pytest.mark.one_of("imports beside other changes")
def test_what_another_program_writes_meanwhile_is_not_overwritten(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ten(fresh())
    path = csv_of(tmp_path / "list.csv", [*TEN[:-1], row("9", "client1", "LON")])
    moved = position("9", "client7", "NYSE")
    at_step(monkeypatch, import_run)("write", lambda: produce(settings, [moved]))
    with pytest.raises(ShardpostError, match="another program has written to it since"):
        run_import(settings, path)
    assert state(settings)["9"]["Client"] == "client7"
    assert (records(settings), decided(settings)) == ([], [])
    run(settings)
    assert run_import(settings, path)["changed"] == 1


@pytest.mark.one_of("imports beside other changes")
def test_beside_another_import_it_refuses_and_a_zombie_is_fenced(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ten(fresh())
    first = csv_of(tmp_path / "first.csv", [*TEN[:-1], row("9", "client1", "LON")])
    second = csv_of(tmp_path / "second.csv", [*TEN[:-1], row("9", "client2", "NYSE")])

    def beside() -> None:
        with pytest.raises(locks.LockedError, match="import_positions is already running"):
            run_import(settings, second)
        locks.path_of(
            installed(settings).files, IMPORT_POSITIONS.name
        ).unlink()  # as if on another machine
        run_import(settings, second)

    at_step(monkeypatch, import_run)("write", beside)
    with pytest.raises(FencedError, match="another import"):
        run_import(settings, first)
    assert state(settings)["9"]["Client"] == "client2"
    assert len(records(settings)) == 1


@pytest.mark.one_of("imports beside other changes")
def test_too_many_closings_and_lists_that_may_lack_rows_are_refused(
    unchanged: Settings, tmp_path: Path
) -> None:
    settings, before = unchanged, decided(unchanged)
    without_one = csv_of(tmp_path / "nine.csv", TEN[:9])
    for apply in drawn([False, True]):
        result = run_import(settings, without_one, code=3, apply=apply)
        assert result["refused"] == (
            "1 of 10 open positions would close (10%), more than 5%: if this is intended, allow"
            " it with --max-closed 10%"
        )
    nameless = csv_of(tmp_path / "nameless.csv", [*TEN[:9], row("", "client1")])
    refused = run_import(settings, nameless, code=3, max_closed=1.0)["refused"]
    assert refused.startswith(
        "1 of 10 open positions would close, but 1 row has no readable PositionId"
    )
    for number, text in enumerate(["", ",".join(TEN[0]) + "\n"]):
        empty = tmp_path / f"empty{number}.csv"
        empty.write_text(text)
        refused = run_import(settings, empty, code=3, max_closed=1.0)["refused"]
        assert refused.startswith("10 of 10 open positions would close, since the list has no rows")
    assert (records(settings), decided(settings)) == ([], before)


@pytest.mark.one_of("imports beside other changes")
def test_the_same_list_after_other_changes_is_another_import_and_a_given_id_is_applied_once(
    fresh: Fresh, tmp_path: Path
) -> None:
    settings = ten(fresh())
    path = csv_of(tmp_path / "list.csv", [*TEN[:-1], row("9", "client1", "LON")])
    shuffled = csv_of(tmp_path / "again.csv", [row("9", "client1", "LON"), *TEN[:-1]])
    first = run_import(settings, path)["import_id"]
    assert run_import(settings, shuffled)["import_id"] == first
    compacted(settings, position("9", "client5", "NYSE"))
    assert run_import(settings, path)["import_id"] == f"{first}-2"
    run(settings)
    assert state(settings)["9"]["Client"] == "client1"
    assert run_import(settings, path)["import_id"] == f"{first}-2"
    assert sorted(decided(settings)) == [first, f"{first}-2"]

    run_import(settings, path, import_id="monday")
    compacted(settings, position("9", "client5", "NYSE"))
    again = run_import(settings, path, import_id="monday")
    assert (again["written"], again["changed"]) == (0, 1)
    assert again["applied_before"] == {"at": "2026-11-21T12:00:00+00:00", "by": "somebody"}
    assert state(settings)["9"]["Client"] == "client5"
    other = csv_of(tmp_path / "other.csv", TEN)
    with pytest.raises(ShardpostError, match=r"monday was applied by somebody at .* other rows"):
        run_import(settings, other, import_id="monday")


@pytest.mark.one_of("imports beside other changes")
def test_an_apply_writes_what_its_plan_showed_or_nothing(fresh: Fresh, tmp_path: Path) -> None:
    settings = ten(fresh())
    path = csv_of(tmp_path / "list.csv", [*TEN[:9], row("9", "client1", "LON")])
    shown = run_import(settings, path, apply=False)
    assert shown["up_to"] == f"{shown['snapshot']}:{shown['import_id']}"
    other = csv_of(tmp_path / "other.csv", [*TEN[:9], row("9", "client2", "LON")])
    with pytest.raises(ShardpostError, match="expected the rows of that plan, found others"):
        run_import(settings, other, up_to=shown["up_to"])
    compacted(settings, position("8", "client5", "NYSE"))
    moved_on = "expected positions as of snapshot 1, found changes up to 2: nothing was"
    with pytest.raises(ShardpostError, match=moved_on):
        run_import(settings, path, up_to=shown["up_to"])
    assert (records(settings), decided(settings)) == ([], [])

    shown = run_import(settings, path, apply=False)
    compacted(settings, exchange("LON", "IE"))  # a later snapshot of the same positions
    assert run_import(settings, path, up_to=shown["up_to"])["written"] == shown["changed"] == 2
    run(settings)
    assert run_import(settings, path, up_to=shown["up_to"])["applied_before"]
    rebuilding.start(settings)
    rebuilding.swap(settings)
    shown["up_to"] = (
        f"{snapshots.current(installed(settings).tables).number - 1}:{shown['import_id']}"
    )
    with pytest.raises(ShardpostError, match="found changes up to"):
        run_import(settings, path, up_to=shown["up_to"], import_id="another")


@pytest.mark.one_of("imports beside other changes")
def test_after_a_swap_a_list_is_compared_with_the_tables_in_use(
    fresh: Fresh, tmp_path: Path
) -> None:
    settings = ten(fresh())
    rebuilding.start(settings)
    rebuilding.swap(settings)
    compacted(settings, position("9", "client7", "LON"))
    path = csv_of(tmp_path / "list.csv", [*TEN[:-1], row("9", "client7", "LON")])
    assert run_import(settings, path, apply=False)["equal"] == 10


def test_a_list_that_differs_in_nothing_is_on_record_whatever_cannot_be_decoded(
    unchanged: Settings, tmp_path: Path
) -> None:
    result = run_import(unchanged, csv_of(tmp_path / "list.csv", TEN), import_id="same")
    assert (result["equal"], result["written"], decided(unchanged)) == (10, 0, ["same"])


def test_an_applied_import_is_done_although_its_list_cannot_be_deleted(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings, path = ten(fresh()), csv_of(tmp_path / "list.csv", TEN[1:])
    delete, calls = stored_files.delete_folder, []

    def failing(*of: Any) -> None:
        calls.append(of)
        if len(calls) == 2:
            raise ShardpostError("object store b: it does not answer")
        delete(*of)

    monkeypatch.setattr(stored_files, "delete_folder", failing)
    result = run_import(settings, path, max_closed=1.0)
    assert (result["applied"], result["closed"], len(calls)) == (True, 1, 2)
    assert "not cleaned up after the comparison: object store b: it does not" in caplog.text
    assert decided(settings) == [result["import_id"]]
    assert run_import(settings, path)["applied_before"]
    assert stored_files.folder_names(installed(settings).tables, LISTED) == []
