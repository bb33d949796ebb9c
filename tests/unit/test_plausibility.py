"""What is refused as implausible: another country, and counts that fall; no JVM."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot
from shardpost.delta.snapshot import MOST_UNKNOWN_KEPT, Counts, UnknownExchanges
from shardpost.errors import (
    BAD_USAGE,
    NEEDS_ATTENTION,
    ShardpostError,
    UsageError,
    WrongArgumentError,
)
from shardpost.holders import plausibility
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.lost_records import TombstonesLostError, UncertainKeysError
from shardpost.holders.model.view_tables import EXCHANGES, POSITIONS
from shardpost.holders.plausibility import CollapseError, require_plausible
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.locks import refused_runs
from shardpost.locks.locks import LockedError
from shardpost.rebuilds import registry
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.run import begun
from shardpost.settings import Settings
from shardpost.spark.job import JobResult, JobSpec
from shardpost.spark.submit import submit
from shardpost.topics.guards import NotOwnerError
from shardpost.values.holding_rule import Rule
from shardpost.watch.sources import collect_snapshot
from shardpost.watch.table_checks import check_snapshot
from shardpost.weekly_email.frozen_weeks import RECIPIENTS, WITH_ADDRESS, FrozenWeeks
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.prepared_week import require_no_collapse
from shardpost.weekly_email.week_state import WeekState
from tests.support.committed_snapshot import commit_snapshot
from tests.support.histories import START, Batch, country_of, overwrite, put, snapshot, write
from tests.support.how_far import drawn, some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.written_weeks import freeze

WEEK = IsoWeek(2026, 47)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Give tables of one snapshot, whose country is US."""
    exchanges = [country_of("NASDAQ", "US"), country_of("LON", "GB"), country_of("NEW", None)]
    codes = ("NASDAQ", " NASDAQ", "NEW", "NEW", "nasdaq", "LON")
    positions = [put(str(number), "client1", code) for number, code in enumerate(codes)]
    write(settings, [Batch(positions, exchanges)])
    return settings


def of_country(settings: Settings, country: str) -> Settings:
    return settings.model_copy(update={"country": country})


@pytest.mark.parametrize(
    ("before", "now", "most", "is_refused"),
    [
        (10, 5, 0.5, False),
        (10, 4, 0.5, True),
        (10, 0, 0.99, True),
        (10, 0, 1, False),
        (9, 0, 0, False),
        (10, 9, 0, True),
        (10, 11, 0, False),
        (0, 0, 0, False),
    ],
)
def test_from_ten_on_a_fall_by_more_than_the_share_is_refused(
    before: int, now: int, most: float, is_refused: bool
) -> None:
    def require() -> None:
        counts = {"holders": before, "positions": 1}, {"holders": now, "positions": 1, "new": 0}
        plausibility.require_no_fall("snapshot 2", *counts, most=most, advice=lambda: "Do this.")

    if not is_refused:
        return require()
    with pytest.raises(CollapseError, match=f"2: holders fall from {before} to {now}, by") as found:
        require()
    assert found.value.exit_code == NEEDS_ATTENTION
    return None


def test_what_a_snapshot_would_lose_is_named_at_once(settings: Settings) -> None:
    last = replace(snapshots.current(installed(settings).tables), counts=Counts(40, 20, 40))
    made = replace(last, number=2, counts=Counts(3, 1, 3))
    said = "snapshot 2: open positions fall from 40 to 3, holders fall from 20 to 1, by more than"
    with pytest.raises(CollapseError, match=rf"{said} SHARDPOST_MAX_DROP=0\.5 .*--accept-drop"):
        require_plausible(installed(settings), last, made, CompactionRequest())
    without = {**last.tables, EXCHANGES.name: overwrite(settings, EXCHANGES, [])}
    moved = replace(last, number=2, counts=Counts(40, 1, 3), tables=without)
    cause = (
        r"No longer in the same country: 'LON', 'NASDAQ'; check the last records in exchanges\. If"
    )
    said = rf"snapshot 2: holders fall from 20 to 1, .* or changed\. {cause}"
    with pytest.raises(CollapseError, match=said):
        require_plausible(installed(settings), last, moved, CompactionRequest())
    all_of_it = settings.model_copy(update={"max_drop": 1})
    require_plausible(installed(all_of_it), last, made, CompactionRequest())


@pytest.mark.parametrize(
    ("country", "said"),
    [
        (
            "us",
            r"country us: no exchange has it: did you mean US\? .* GB, US, and snapshot 1 is",
        ),
        ("UK", r"country UK: no exchange has it\. Their countries are GB, US, and"),
        (
            "GB",
            r"country GB: snapshot 1 is for country US\. .*`shardpost rebuild .* --country-ch",
        ),
    ],
)
def test_another_country_than_the_last_is_refused_with_the_ways_on(
    settings: Settings, country: str, said: str
) -> None:
    last = snapshots.current(installed(settings).tables)
    with pytest.raises(UsageError, match=said) as found:
        plausibility.require_rule(installed(settings).tables, last, Rule(country))
    assert found.value.exit_code == BAD_USAGE
    [finding] = [
        one
        for one in check_snapshot(installed(of_country(settings, country)), START)
        if one.check == "who holds"
    ]
    assert (finding.state, finding.found) == ("error", str(found.value))


def test_the_country_of_the_last_snapshot_counts_whether_or_not_an_exchange_has_it(
    settings: Settings,
) -> None:
    last = replace(snapshots.current(installed(settings).tables), rule=Rule("FR"), set_country="DE")
    plausibility.require_rule(
        installed(settings).tables, last, Rule("DE")
    )  # swapped to FR, and not set otherwise since
    plausibility.require_rule(installed(settings).tables, last, Rule("FR"))
    with pytest.raises(UsageError, match="country GB: snapshot 1 is for country FR"):
        plausibility.require_rule(installed(settings).tables, last, Rule("GB"))


def test_a_first_country_is_one_of_an_exchange_if_any_has_one(settings: Settings) -> None:
    made = snapshots.current(installed(settings).tables)
    plausibility.require_met(Rule("GB"), installed(settings).tables, made)
    plausibility.require_met(Rule("US", "country IS NULL"), installed(settings).tables, made)
    with pytest.raises(UsageError, match=r"country us: .*did you mean US\? .*--country-changed"):
        plausibility.require_met(Rule("us"), installed(settings).tables, made)
    write(settings, [])
    none = replace(made, tables={})
    plausibility.require_met(Rule("us"), installed(settings).tables, none)


def test_a_rebuild_of_a_country_that_no_exchange_has_is_not_begun(settings: Settings) -> None:
    of = RebuildRequest(Action.START, "me", country="gb", tables=("share_holders",))
    with pytest.raises(UsageError, match=r"country gb: .*did you mean GB\?"):
        begun(installed(settings), of)
    assert registry.list_rebuilds(installed(settings).tables) == []
    begun(installed(settings), replace(of, country="GB"))
    registry.require_rule(
        installed(of_country(settings, "GB")), snapshots.current(installed(settings).tables)
    )  # by its swap


def test_doctor_and_alerts_name_exchanges_without_a_country_that_positions_are_on(
    settings: Settings,
) -> None:
    made = snapshots.current(installed(settings).tables)
    unknown = plausibility.count_unknown(
        installed(settings).tables, at_snapshot(made, POSITIONS, EXCHANGES)
    )
    assert unknown == UnknownExchanges(4, {"NEW": 2, " NASDAQ": 1, "nasdaq": 1})
    snapshots.commit(
        installed(settings).tables, replace(made, number=2, counts=Counts(6, 1, 1, 0, unknown))
    )
    assert snapshots.current(installed(settings).tables).as_json()["unknown_exchanges"] == {
        "NEW": 2,
        " NASDAQ": 1,
        "nasdaq": 1,
    }
    [found] = [
        one for one in check_snapshot(installed(settings), START) if one.check == "exchanges"
    ]
    told = {
        one.subject: one.text
        for one in collect_snapshot(installed(settings), START).conditions
        if one.rule == "unknown-exchange"
    }
    assert (found.state, found.found) == ("warning", "; ".join(told.values()))
    assert told == {
        "NEW": "2 open positions: exchange 'NEW' has no record with a Country",
        " NASDAQ": "1 open position: exchange ' NASDAQ' has no record with a Country: did you mean"
        " NASDAQ?",
        "nasdaq": "1 open position: exchange 'nasdaq' has no record with a Country: did you mean"
        " NASDAQ?",
    }


def test_of_very_many_unknown_exchanges_the_largest_are_kept_and_all_positions_counted() -> None:
    codes = {f"X{n}": 2 for n in range(1, MOST_UNKNOWN_KEPT + 5)}
    few = UnknownExchanges.of({"TSE": 3, "GONE": 0})
    many = UnknownExchanges.of(codes | {"TSE": 3})
    assert (few.has_all, few.unknown_exchanges) == (True, {"TSE": 3})
    assert (many.has_all, len(many.unknown_exchanges)) == (False, MOST_UNKNOWN_KEPT)
    assert many.unknown_positions == 2 * len(codes) + 3
    assert [*many.named][:2] == ["TSE", "X1"]
    assert str(many).startswith("2011 open positions on exchanges without a country ('TSE' 3, ")


def test_a_week_is_held_against_the_positions_that_newly_count_for_nobody(
    kafka: MemoryKafka,
) -> None:

    def require(unknown: int, positions: int) -> None:
        counts = Counts(positions, unknown=UnknownExchanges.of({"TSE": unknown}))
        state = WeekState(installed(kafka.settings), WEEK)
        require_no_collapse(state, {RECIPIENTS: 5, WITH_ADDRESS: 5}, counts)

    require(20, 40)
    require(9, 9)
    said = r"2026-W47: 21 .*\('TSE' 21\): 21 more, by more than .*=0\.5 of 40 .*--accept-drop"
    with pytest.raises(CollapseError, match=said):
        require(21, 40)
    freeze(kafka.settings, WEEK.previous, ["c1"], WEEK.start, unknown_positions=10)
    require(30, 40)
    with pytest.raises(CollapseError, match=r"2026-W47 after 2026-W46: 31 open .* 21 more"):
        require(31, 40)


@pytest.mark.parametrize(
    ("week", "kind"), [(WEEK, CollapseError), (WEEK.previous, WrongArgumentError)]
)
def test_an_audience_without_a_client_is_refused(
    kafka: MemoryKafka, week: IsoWeek, kind: type[ShardpostError]
) -> None:
    made = replace(snapshot(1, {}), committed_at=WEEK.start)
    snapshots.commit(installed(kafka.settings).tables, made)
    state = WeekState(installed(kafka.settings), week)
    said = rf"{week}: no client held stock .* \(the first snapshot is of {WEEK.start:%F %R} UTC\)"
    with pytest.raises(ShardpostError, match=rf"{said}\. Nothing was .*--accept-drop") as refused:
        require_no_collapse(state, {RECIPIENTS: 0, WITH_ADDRESS: 0}, Counts())
    assert type(refused.value) is kind


def test_a_week_is_held_against_the_last_frozen_one_with_clients_before_it(
    kafka: MemoryKafka,
) -> None:
    settings = kafka.settings

    def require(clients: int, with_address: int, week: IsoWeek = WEEK) -> None:
        counts = {RECIPIENTS: clients, WITH_ADDRESS: with_address}
        state = WeekState(installed(settings), week)
        require_no_collapse(state, counts, Counts())

    require(1, 0)
    freeze(settings, WEEK.previous.previous, [f"c{n}" for n in range(12)], WEEK.start)
    freeze(settings, WEEK.previous, [], WEEK.start)
    freeze(settings, WEEK.next, ["c1"], WEEK.next.end)
    require(1, 0, WEEK.previous.previous)
    require(6, 6)
    for found in [(5, 5), (12, 5), (0, 0)]:
        with pytest.raises(CollapseError, match=r"2026-W47 after 2026-W45: .* from 12 to"):
            require(*found)
    FrozenWeeks(installed(settings).tables).mark_erased(WEEK.previous.previous, WEEK.end)
    require(6, 0)
    with pytest.raises(CollapseError, match="recipients fall from 12 to 5"):
        require(5, 5)


def test_why_a_compaction_was_refused_is_told_until_one_is_not(kafka: MemoryKafka) -> None:
    settings = kafka.settings
    why = "snapshot 2: holders fall from 12 to 0, by more than SHARDPOST_MAX_DROP=0.5 allows."
    with (
        pytest.raises(CollapseError),
        refused_runs.noting(installed(settings).files, COMPACT_POSITIONS.name),
    ):
        raise CollapseError(why)
    now = datetime.now(UTC)
    [told] = collect_snapshot(installed(settings), now).conditions
    assert (told.rule, told.text) == ("compaction-refused", why)
    assert next(iter(check_snapshot(installed(settings), now))).found == why
    commit_snapshot(kafka)
    assert submit(installed(settings), COMPACT_POSITIONS)[0] == 0  # with nothing new, without Spark
    assert refused_runs.refusals(installed(settings).files, now) == {}


PASSING = [
    *(KafkaUnreachableError("away"), LockedError("another run has it")),
    WrongArgumentError("no such week"),
]
REFUSALS = [
    *(TombstonesLostError("gone"), UncertainKeysError("maybe"), NotOwnerError("another home's")),
    *(UsageError("setting SHARDPOST_MAIL_FROM: an example"), ShardpostError("recreated")),
]


@pytest.mark.parametrize(
    "error", [*some(REFUSALS), *drawn(PASSING)], ids=lambda error: type(error).__name__
)
def test_whatever_refuses_a_job_is_on_record_until_one_of_it_succeeds(
    kafka: MemoryKafka, error: ShardpostError
) -> None:
    commit_snapshot(kafka)
    settings, now = kafka.settings, datetime.now(UTC)

    def run(result: JobResult | ShardpostError) -> None:
        def work(*_: object) -> JobResult:
            if isinstance(result, ShardpostError):
                raise result
            return result

        JobSpec("sweep_dead_letters", without_spark=work).result_without_spark(
            installed(settings), "{}"
        )

    def said() -> list[str]:
        conditions = collect_snapshot(installed(settings), now).conditions
        told = [one.text for one in conditions if one.name == "run-refused:sweep_dead_letters"]
        found = [
            one
            for one in check_snapshot(installed(settings), now)
            if one.check == "sweep_dead_letters"
        ]
        assert [one.found for one in found] == told
        return told

    with pytest.raises(type(error)):
        run(error)
    assert said() == ([] if error in PASSING else [str(error)])
    run((3, {"refused": "too many would go"}))
    assert said() == ["too many would go"]
    run((1, {}))
    assert said() == ["too many would go"]
    run((3, {}))
    assert said() == []
