"""A swap, a rollback and a drop that are repeated; real Delta tables, Kafka in memory, no Spark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import DONE, ShardpostError, UsageError
from shardpost.holders import plausibility, publishing
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.view_tables import EXCHANGES, POSITIONS, SHARE_HOLDERS, VIEW
from shardpost.holders.spark import compaction
from shardpost.holders.spark.history import decoder_id
from shardpost.installation import Installation
from shardpost.kafka.records import Outgoing, partition_of
from shardpost.kafka.transactions import Transactions
from shardpost.locks.shared_files import Files
from shardpost.rebuilds import drop, registry, run, swap
from shardpost.rebuilds.model.rebuild import Rebuild, Standing, State
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest, tables_of
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.spark.job import JobResult
from shardpost.topics import guards
from shardpost.values.holding_rule import Rule
from tests.support import decisions
from tests.support.at_step import at_step, killing
from tests.support.committed_snapshot import SHARDS, commit_snapshot, published, records
from tests.support.histories import overwrite
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka

OWN = (SHARE_HOLDERS.name,)
KAFKA = {"partitions": SHARDS}


def needs_spark(*_: object) -> NoReturn:
    raise AssertionError("it is built")


def without_new_records(_: Installation, view: Snapshot, at: Snapshot, _own: object) -> Snapshot:
    """Top up tables where no record came."""
    kept: dict[str, Any] = {"tables": view.tables, "folders": view.folders, "folded": view.folded}
    kept |= {"rule": view.rule, "set_country": view.set_country}
    return replace(at, **kept, rebuilt_in=view.rebuilt_in)


@pytest.fixture(autouse=True)
def work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the job do without Spark."""
    monkeypatch.setattr(run, "build", needs_spark)
    monkeypatch.setattr(run, "top_up", without_new_records)


def compacted(settings: Settings) -> JobResult:
    """Compact, and top up what waits, as the job does."""
    own, held = installed(settings), run.with_rule_held
    result = compaction.compact(own, CompactionRequest(), now_in_force=held)
    run.top_up_waiting(own)
    return result


@pytest.fixture
def kafka(kafka: MemoryKafka) -> MemoryKafka:
    """Give a Kafka, and tables of a snapshot in which `client` holds."""
    made = commit_snapshot(kafka, client=["1"])
    more = {table.name: overwrite(kafka.settings, table, []) for table in (POSITIONS, EXCHANGES)}
    snapshots.commit(
        installed(kafka.settings).tables, replace(made, number=2, tables={**made.tables, **more})
    )
    return kafka


@pytest.fixture
def rebuild(kafka: MemoryKafka) -> Rebuild:
    """Give a rebuild by which nobody holds."""
    return built(kafka.settings)


def built(settings: Settings) -> Rebuild:
    begun_ = begun(
        installed(settings), RebuildRequest(Action.START, "me", country="GB", tables=OWN)
    )
    table = SHARE_HOLDERS.located(begun_.folders)
    versions = {**begun_.candidate.tables, SHARE_HOLDERS.name: overwrite(settings, table, [])}
    candidate = replace(begun_.candidate, tables=versions)
    return registry.update(
        installed(settings).tables, replace(begun_, candidate=candidate, state=State.BUILT)
    )


def done(settings: Settings, action: Action, **more: Any) -> dict[str, Any]:
    code, result = run.run(RebuildRequest(action, "anna", "a test", **more), installed(settings))
    assert code == DONE
    return result


def on_record(settings: Settings) -> list[tuple[str, str, bytes, bytes]]:
    return [
        (one.who, one.about.decode(), headers["action"], headers["snapshot"])
        for one, headers in decisions.list_all(settings)
    ]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    return at_step(monkeypatch, run, swap)


@pytest.mark.parametrize("step", ["swapped", "on record", "publish the difference"])
def test_a_swap_that_was_killed_after_its_commit_is_ended_by_its_repetition(
    kafka: MemoryKafka, rebuild: Rebuild, at: Any, step: str
) -> None:
    with killing(at, step):
        done(kafka.settings, Action.SWAP)
    assert snapshots.current(installed(kafka.settings).tables).number == 3
    assert len(on_record(kafka.settings)) == (step == "publish the difference")
    again = done(kafka.settings, Action.SWAP)
    assert again["state"] == "in use"
    assert "committed" not in again
    assert snapshots.current(installed(kafka.settings).tables).number == 3
    assert published(kafka) == {}
    assert on_record(kafka.settings) == [("anna", "rebuild/2", b"swap", b"3")]


def test_what_is_done_is_on_record_once_however_often_it_is_repeated(
    kafka: MemoryKafka, rebuild: Rebuild
) -> None:
    expected = []
    for number, action in enumerate((Action.SWAP, Action.ROLLBACK) * 2, 3):
        done(kafka.settings, action)
        expected.append(("anna", "rebuild/2", str(action).encode(), str(number).encode()))
        assert done(kafka.settings, action)["published"] == 0
        assert sorted(on_record(kafka.settings)) == sorted(expected)
    assert published(kafka) == {"client": {"Positions": ["1"]}}


def test_another_rebuild_than_the_one_that_is_meant_is_left_alone(
    kafka: MemoryKafka, rebuild: Rebuild
) -> None:
    drop.drop(installed(kafka.settings), "me", "a test")
    built(kafka.settings)
    for action in (Action.SWAP, Action.ROLLBACK, Action.TOP_UP):
        with pytest.raises(ShardpostError, match="expected rebuild 2, found 3: rebuild 2 was"):
            done(kafka.settings, action, number=2)
    assert snapshots.current(installed(kafka.settings).tables).number == 2
    dropped, _ = drop.drop(installed(kafka.settings), "me", "a test", 2)
    assert (dropped.number, registry.require_current(installed(kafka.settings).tables).number) == (
        2,
        3,
    )


def test_a_swap_that_was_agreed_to_is_not_done_again_after_a_rollback(
    kafka: MemoryKafka, rebuild: Rebuild
) -> None:
    compared = snapshots.current(installed(kafka.settings).tables).number
    for _ in range(2):  # a retry is welcome
        done(kafka.settings, Action.SWAP, compared=compared)
    done(kafka.settings, Action.ROLLBACK)
    with pytest.raises(ShardpostError, match=r"compared at snapshot 2, but .* at snapshot 4"):
        done(kafka.settings, Action.SWAP, compared=compared)
    assert done(kafka.settings, Action.SWAP, compared=4)["state"] == "in use"


@pytest.mark.parametrize("step", ["swapped", "on record"])
def test_a_swap_that_was_killed_after_its_commit_is_on_record_by_the_rollback(
    kafka: MemoryKafka, rebuild: Rebuild, at: Any, step: str
) -> None:
    with killing(at, step):
        done(kafka.settings, Action.SWAP)
    assert done(kafka.settings, Action.ROLLBACK)["committed"] == 4
    assert on_record(kafka.settings) == [
        ("shardpost", "rebuild/2", b"swap", b"3"),
        ("anna", "rebuild/2", b"rollback", b"4"),
    ]


def test_a_compaction_that_waited_for_a_swap_keeps_the_country_of_the_swap(
    kafka: MemoryKafka, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SHARDPOST_COUNTRY was changed before, and waits for the swap."""
    settings = kafka.settings.model_copy(update={"country": "GB"})

    @contextmanager
    def after_a_swap(of: Installation, job: str, *, asks_owner: bool = True) -> Iterator[None]:
        if job == COMPACT_POSITIONS.name:
            done(settings, Action.SWAP)
        with of_jobs(of, job, asks_owner=asks_owner):
            yield

    of_jobs = guards.run
    monkeypatch.setattr(guards, "run", after_a_swap)
    monkeypatch.setattr(compaction, "build_snapshot", needs_spark)
    code, result = compacted(settings)
    assert (code, result["changed"], result["published"]) == (DONE, False, 0)
    newest = snapshots.current(installed(kafka.settings).tables)
    assert (newest.rule.country, newest.number) == ("GB", newest.rebuilt_in)


@pytest.mark.parametrize("action", ["swap", "drop"])
def test_tables_that_were_swapped_or_dropped_meanwhile_are_not_topped_up(
    kafka: MemoryKafka,
    rebuild: Rebuild,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    action: str,
) -> None:
    at = kafka.settings

    @contextmanager
    def after_it(of: Files) -> Iterator[None]:
        monkeypatch.setattr(run, "rebuilding", registry.rebuilding)
        drop.drop(installed(at), "me", "a test") if action == "drop" else done(at, Action.SWAP)
        monkeypatch.setattr(run, "topped_up", needs_spark)
        with registry.rebuilding(of):
            yield

    monkeypatch.setattr(run, "rebuilding", after_it)
    compacted(kafka.settings)
    assert "not topped up" not in caplog.text


@pytest.mark.parametrize("step", ["holders that differ", "leave tables", "commit snapshot"])
@pytest.mark.parametrize("was_swapped", [False, True])
def test_killed_before_the_commit_a_rebuild_stands_where_it_was(
    kafka: MemoryKafka, rebuild: Rebuild, at: Any, step: str, was_swapped: bool
) -> None:
    first, other, compared = Action.SWAP, Action.ROLLBACK, {"compared": 2}
    if was_swapped:
        done(kafka.settings, Action.SWAP)
        first, other, compared = other, first, {}
    recorded = on_record(kafka.settings)
    with killing(at, step):
        done(kafka.settings, first, **compared)
    newest = snapshots.current(installed(kafka.settings).tables)
    expected = Standing.IN_USE if was_swapped else Standing.READY
    assert registry.require_current(installed(kafka.settings).tables).standing(newest) is expected
    if was_swapped:
        assert "committed" not in done(kafka.settings, other)  # it is in use already
    else:
        with pytest.raises(ShardpostError, match="expected it to be in use, found it"):
            done(kafka.settings, other)
    assert on_record(kafka.settings) == recorded
    assert done(kafka.settings, first, **compared)["committed"] == newest.number + 1


def test_only_lists_that_differ_are_published_where_the_last_snapshots_changed_none(
    kafka: MemoryKafka,
) -> None:
    """The rows beside have the number of the snapshot that they were built of."""
    first = replace(snapshots.current(installed(kafka.settings).tables), number=1)
    assert publishing.publish(installed(kafka.settings), first).records == 1
    found = begun(installed(kafka.settings), RebuildRequest(Action.START, "me", tables=OWN))
    rows = [
        {"client": client, "positions": ["1"], "snapshot": 2, "shard": partition_of(client, SHARDS)}
        for client in ("client", "other")
    ]
    version = overwrite(kafka.settings, SHARE_HOLDERS.located(found.folders), rows)
    versions = {**found.candidate.tables, SHARE_HOLDERS.name: version}
    candidate = replace(found.candidate, tables=versions)
    registry.update(
        installed(kafka.settings).tables, replace(found, candidate=candidate, state=State.BUILT)
    )
    swapped = done(kafka.settings, Action.SWAP)
    assert (swapped["changed_holders"], swapped["published"]) == (1, 1)
    assert sorted(record.key or b"" for record in records(kafka)) == [b"client", b"other"]


def test_a_drop_is_on_record_once_with_who_and_why(
    kafka: MemoryKafka, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    with killing(at_step(monkeypatch, drop), "drop on record"):
        drop.drop(installed(kafka.settings), "anna", "a typo")
    assert registry.require_current(installed(kafka.settings).tables) == rebuild
    drop.drop(installed(kafka.settings), "anna", "a typo")
    assert registry.current(installed(kafka.settings).tables) is None
    [(decision, headers)] = decisions.list_all(kafka.settings)
    assert (decision.about, decision.who, decision.why) == (b"rebuild/2", "anna", "a typo")
    assert (decision.kind, headers) == ("discarded", {"action": b"drop"})


def test_a_drop_of_which_kafka_has_not_said_that_it_is_on_record_does_not_say_it_is_not(
    kafka: MemoryKafka, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Transactions.write

    def without_an_answer(self: Transactions, written: list[Outgoing]) -> NoReturn:
        write(self, written)
        raise self._failed("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "write", without_an_answer)
        with pytest.raises(ShardpostError) as raised:
            drop.drop(installed(kafka.settings), "anna", "a typo")
    assert str(raised.value) == (
        "the decision may not be on record (no answer): nothing is dropped: run it again"
    )
    assert registry.require_current(installed(kafka.settings).tables) == rebuild
    drop.drop(installed(kafka.settings), "anna", "a typo")
    assert len(list(decisions.list_all(kafka.settings))) == 1


@pytest.mark.parametrize("killed", [Action.SWAP, Action.ROLLBACK])
def test_a_swap_that_was_killed_after_its_commit_is_on_record_before_the_drop(
    kafka: MemoryKafka, rebuild: Rebuild, at: Any, killed: Action
) -> None:
    if killed is Action.ROLLBACK:
        done(kafka.settings, Action.SWAP)
    with killing(at, "swapped"):
        done(kafka.settings, killed)
    number = str(snapshots.current(installed(kafka.settings).tables).number).encode()
    for _ in range(2):
        drop.drop(installed(kafka.settings), "anna", "good as it is", rebuild.number)
    *_, swapped, dropped = decisions.list_all(kafka.settings)
    assert (swapped[0].who, swapped[1]) == (
        "shardpost",
        {"action": str(killed).encode(), "snapshot": number},
    )
    assert (dropped[0].who, dropped[1]) == ("anna", {"action": b"drop"})
    assert len(list(decisions.list_all(kafka.settings))) == (2 if killed is Action.SWAP else 3)


def test_a_drop_of_one_that_was_dropped_does_not_record_the_swap_of_another(
    kafka: MemoryKafka, rebuild: Rebuild
) -> None:
    drop.drop(installed(kafka.settings), "anna", "a typo")
    built(kafka.settings)
    done(kafka.settings, Action.SWAP)
    drop.drop(installed(kafka.settings), "anna", "a typo", rebuild.number)
    about = [(one.about, str(one.kind)) for one, _ in decisions.list_all(kafka.settings)]
    assert sorted(about) == [(b"rebuild/2", "discarded"), (b"rebuild/3", "swapped")]


def test_without_a_country_it_is_the_one_in_force(kafka: MemoryKafka, rebuild: Rebuild) -> None:
    done(kafka.settings, Action.SWAP)
    drop.drop(installed(kafka.settings), "me", "a test")
    again = begun(installed(kafka.settings), RebuildRequest(Action.START, "me", tables=OWN))
    assert (kafka.settings.country, again.rule.country) == ("US", "GB")


def test_a_rebuild_that_other_code_has_decoded_is_not_gone_on_with(kafka: MemoryKafka) -> None:
    settings = kafka.settings
    versions = {table.name: overwrite(settings, table, []) for table in VIEW}
    last = snapshots.current(installed(settings).tables)
    snapshots.commit(
        installed(settings).tables, replace(last, number=3, tables={**versions, **last.tables})
    )
    order = RebuildRequest(Action.START, "me", tables=tables_of(None))
    found = begun(installed(settings), order)
    assert begun(installed(settings), order) == found  # nothing is decoded yet
    progress = replace(found.progress, units=1)
    candidate = replace(found.candidate, decoder=decoder_id(None))
    found = registry.update(
        installed(settings).tables, replace(found, progress=progress, candidate=candidate)
    )
    assert begun(installed(settings), order) == found
    other = replace(found, candidate=replace(candidate, decoder="another"))
    for state, advice in ((State.BUILDING, "drop it first"), (State.BUILT, "swap it, or drop it")):
        registry.update(installed(settings).tables, replace(other, state=state))
        with pytest.raises(ShardpostError, match=f"decoded by different code.*: {advice}"):
            begun(installed(settings), order)


def test_a_drop_of_what_is_not_in_use_spares_what_is(kafka: MemoryKafka, rebuild: Rebuild) -> None:
    done(kafka.settings, Action.SWAP)
    with pytest.raises(ShardpostError, match="rebuild 2 is already in use"):
        drop.drop(installed(kafka.settings), "me", "a test", 2, even_in_use=False)
    assert registry.require_current(installed(kafka.settings).tables).number == 2
    done(kafka.settings, Action.ROLLBACK)
    drop.drop(installed(kafka.settings), "me", "a test", 2, even_in_use=False)
    assert drop.drop(installed(kafka.settings), "me", "a test", 2, even_in_use=False)[1] == []
    with pytest.raises(ShardpostError, match="there is no rebuild 9"):
        drop.drop(installed(kafka.settings), "me", "a test", 9)


@pytest.mark.usefixtures("rebuild")
def test_a_rollback_confirms_no_country_that_was_set_after_the_swap(kafka: MemoryKafka) -> None:
    done(kafka.settings, Action.SWAP)
    assert snapshots.current(installed(kafka.settings).tables).set_country == "US"
    british = kafka.settings.model_copy(update={"country": "GB"})
    done(british, Action.ROLLBACK)
    drop.drop(installed(british), "me", "a test")
    last = snapshots.current(installed(british).tables)
    assert last.rule == Rule("US")
    with pytest.raises(UsageError, match="country GB: snapshot 4 is for country US"):
        plausibility.require_rule(installed(british).tables, last, british.rule)
    plausibility.require_rule(installed(kafka.settings).tables, last, Rule("US"))


@pytest.mark.usefixtures("rebuild")
def test_while_tables_wait_beside_a_confirmed_country_is_refused_rather_than_ignored(
    kafka: MemoryKafka,
) -> None:
    british = kafka.settings.model_copy(update={"country": "GB"})
    confirmed = CompactionRequest(country_changed=True)
    with pytest.raises(UsageError, match=r"--country-changed: country US stays .* rebuild 2 is"):
        run.with_rule_held(installed(british), confirmed)
    assert run.with_rule_held(installed(british), CompactionRequest()).settings.country == "US"
    assert run.with_rule_held(installed(kafka.settings), confirmed).settings.country == "US"
