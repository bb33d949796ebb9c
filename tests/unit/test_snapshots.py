"""The rows of the table `snapshots`, without a JVM, and which are kept, whatever the clock does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from shardpost.delta import parquet_files, snapshots, storage
from shardpost.delta.arrow_schema import arrow_rows
from shardpost.delta.snapshot import (
    MOST_AHEAD,
    NEVER,
    Cleaning,
    Counts,
    IncompleteLook,
    Scattered,
    Snapshot,
)
from shardpost.delta.snapshot_retention import (
    ALL_FOR,
    GRACE,
    HOURLY_FOR,
    LONGEST_GAP,
    MINUTELY_FOR,
    kept_snapshots,
)
from shardpost.delta.table import Table
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.support.how_far import up_to
from tests.support.installed import installed

pytestmark = pytest.mark.also_on_store

AT = datetime(2026, 11, 16, tzinfo=UTC)


def snapshot(number: int, **more: object) -> Snapshot:
    ends = {"positions": {0: 5}}
    made = Snapshot(
        *(number, AT, AT, ends, {"positions": 1}, Counts(1, 1, 1), Rule("US"), 8, "0.1", "run")
    )
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"topic_ids": {"it's": 'an"id'}, "generations": {"positions": 2}},
        {"folded": {"positions": 1}},
        {"erased_in": 2, "history_from": AT},
        {"cleaning": {"positions": Cleaning(("compact",), 0, 9, 8)}},
        {"scattered": {"positions": Scattered(2, AT, 9, ("it's", "2"))}},
        {"incomplete": IncompleteLook(AT, {"positions": {0: 9, 1: 2}}, read_at=AT)},
    ],
)
def test_all_of_a_snapshot_is_read_back(settings: Settings, more: dict[str, object]) -> None:
    both = [snapshot(1), snapshot(2, **more)]
    for one in both:
        snapshots.commit(installed(settings).tables, one)
    assert snapshots.list_all(installed(settings).tables) == both
    assert snapshots.get(installed(settings).tables, 1, now=AT).has_contacts is (
        "erased_in" not in more
    )


def test_a_table_of_release_0_2_0_gets_the_columns_that_it_lacks(settings: Settings) -> None:
    older = Table(
        "snapshots", snapshots.SNAPSHOTS.columns[: snapshots.SCHEMA.names.index("cleaning")]
    )
    storage.create(installed(settings).tables, older, 1)
    row = arrow_rows(snapshots.SNAPSHOTS, [snapshot(1)]).select(older.names)
    write_deltalake(storage.opened(installed(settings).tables, older), row, mode="append")
    assert snapshots.current(installed(settings).tables) == snapshot(1)
    scattered = {"positions": Scattered(2, AT, 9, ("1",))}
    snapshots.commit(installed(settings).tables, snapshot(2, scattered=scattered))
    assert snapshots.list_all(installed(settings).tables) == [
        snapshot(1),
        snapshot(2, scattered=scattered),
    ]


def test_a_snapshot_says_up_to_which_one_its_tables_are_folded() -> None:
    found = snapshot(2, folded={"positions": 1})
    assert [found.folded_up_to(table) for table in ("positions", "clients")] == [1, 2]
    assert snapshot(1).folded_up_to("positions") == 1


def test_what_a_look_noted_is_kept_whatever_it_is(settings: Settings) -> None:
    snapshots.commit(installed(settings).tables, snapshot(1))
    later = AT + timedelta(minutes=15)
    seen = snapshot(
        1,
        looked_at=later,
        end_offsets={"positions": {0: 9, 1: 0}},
        incomplete=IncompleteLook(AT, {"positions": {0: 9, 1: 2}}, read_at=later),
        topic_ids={"positions": "it's id"},
        set_country="GB",
        cleaning={"positions": Cleaning(("compact",), 1, 2, 3)},
    )
    snapshots.update_looked_at(installed(settings).tables, seen)
    assert snapshots.list_all(installed(settings).tables) == [seen]
    snapshots.update_looked_at(installed(settings).tables, snapshot(1))
    assert snapshots.list_all(installed(settings).tables) == [snapshot(1)]


def test_a_time_that_is_ahead_by_more_than_clocks_differ_is_not_known() -> None:
    made = snapshot(1)
    assert made.as_known(AT - MOST_AHEAD) == made
    unknown = made.as_known(AT - MOST_AHEAD - timedelta(seconds=1))
    assert (unknown.looked_at, unknown.read_at) == (NEVER, NEVER)
    partly = snapshot(1, incomplete=IncompleteLook(AT, {}, read_at=AT + timedelta(days=8)))
    assert partly.as_known(AT).looked_at == NEVER


def files(settings: Settings) -> list[str]:
    return [*storage.sizes(installed(settings).tables, snapshots.SNAPSHOTS, version(settings))]


def version(settings: Settings) -> int:
    return storage.opened(installed(settings).tables, snapshots.SNAPSHOTS).version()


def test_many_snapshots_are_in_few_files_and_all_are_there(settings: Settings) -> None:
    numbers = range(1, up_to(101, quick=25))
    made = [snapshot(number, topic_ids={"t": str(number)}) for number in numbers]
    for one in made:
        snapshots.commit(installed(settings).tables, one)
        assert snapshots.newest(installed(settings).tables) == one
        assert len(files(settings)) <= 17
    assert snapshots.list_all(installed(settings).tables) == made
    runs = snapshots.runs_of(installed(settings).tables, made[-1])
    assert runs == {one.number: one.run for one in made}
    assert version(settings) == len(made)  # with what was merged, each is one version


def test_a_snapshot_is_looked_at_where_it_shares_its_file(settings: Settings) -> None:
    both = arrow_rows(snapshots.SNAPSHOTS, [snapshot(1), snapshot(2)])
    made = storage.writable(installed(settings).tables, snapshots.SNAPSHOTS)
    write_deltalake(made, both, mode="append")
    seen = snapshot(2, looked_at=AT + timedelta(hours=1))
    snapshots.update_looked_at(installed(settings).tables, seen)
    assert snapshots.list_all(installed(settings).tables) == [snapshot(1), seen]
    assert len(files(settings)) == 2


def test_the_newest_is_found_where_statistics_are_missing(settings: Settings) -> None:
    made = storage.writable(installed(settings).tables, snapshots.SNAPSHOTS)
    made.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "0"})
    for number in (1, 2):
        row = arrow_rows(snapshots.SNAPSHOTS, [snapshot(number)])
        write_deltalake(made, row, mode="append")
    assert snapshots.newest(installed(settings).tables) == snapshot(2)
    with pytest.raises(snapshots.ConflictError, match="snapshot 2 exists already"):
        snapshots.commit(installed(settings).tables, snapshot(2))
    snapshots.commit(installed(settings).tables, snapshot(3))
    assert snapshots.newest(installed(settings).tables) == snapshot(3)


def test_of_two_runs_that_commit_one_number_one_wins(settings: Settings) -> None:

    def commit(number: int) -> bool:
        try:
            snapshots.commit(installed(settings).tables, snapshot(number))
        except snapshots.ConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for number in range(1, 21):
            assert sorted(pool.map(commit, [number] * 4)) == [False, False, False, True]
    assert snapshots.list_all(installed(settings).tables) == [*map(snapshot, range(1, 21))]


def test_an_older_number_than_the_newest_is_refused(settings: Settings) -> None:
    snapshots.commit(installed(settings).tables, snapshot(5))
    with pytest.raises(snapshots.ConflictError, match="snapshot 4: snapshot 5 exists already"):
        snapshots.commit(installed(settings).tables, snapshot(4))


def test_notes_and_looks_beside_each_other_are_all_stored(settings: Settings) -> None:
    snapshots.commit(installed(settings).tables, snapshot(1))

    def look(hour: int) -> None:
        at = AT + timedelta(hours=hour)
        snapshots.update_looked_at(installed(settings).tables, snapshot(1, looked_at=at))
        snapshots.note_transaction(installed(settings).tables, f"letters {hour}", hour)

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(look, range(1, 9))]
    table = storage.opened(installed(settings).tables, snapshots.SNAPSHOTS)
    assert [table.transaction_version(f"letters {hour}") for hour in range(1, 9)] == [*range(1, 9)]
    assert len(snapshots.list_all(installed(settings).tables)) == len(files(settings)) == 1


def test_rows_are_removed_beside_a_writer_that_is_faster_than_that(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 31):
        snapshots.commit(installed(settings).tables, snapshot(number))
    numbers, parts = iter(range(31, 1_000)), parquet_files.parts

    def beside(*given: Any) -> Iterator[pa.Table]:
        yield from parts(*given)
        with monkeypatch.context() as patch:
            patch.setattr(parquet_files, "parts", parts)
            snapshots.commit(installed(settings).tables, snapshot(next(numbers)))

    monkeypatch.setattr(parquet_files, "parts", beside)
    snapshots.drop(installed(settings).tables, range(1, 30))
    monkeypatch.setattr(parquet_files, "parts", parts)
    assert snapshots.list_all(installed(settings).tables) == [
        *map(snapshot, range(30, next(numbers)))
    ]


START = datetime(2026, 1, 5, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
Commits = list[tuple[int, datetime]]


def every_quarter(days: int) -> Commits:
    return [(number, START + number * QUARTER) for number in range(1, days * 96 + 1)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Commits, datetime]:
    """Draw commits, by a clock that may jump ahead or back, and a time that is now."""
    steps = st.one_of(
        st.integers(0, 3_600), st.integers(0, 200_000), st.integers(-40_000_000, 40_000_000)
    )
    seconds = draw(st.lists(steps, min_size=1, max_size=120))
    times = [START + timedelta(seconds=at) for at in accumulate(seconds)]
    now = times[-1] + timedelta(seconds=draw(steps))
    return [*enumerate(times, 1)], now


def test_a_year_of_quarters_becomes_a_few_hundred() -> None:
    commits = every_quarter(365)
    now = commits[-1][1] + timedelta(minutes=5)
    found = kept_snapshots(commits, now, 90)
    times = [at for number, at in commits if number in found]
    recent = [at for at in times if now - at <= MINUTELY_FOR]
    hourly = [at for at in times if MINUTELY_FOR < now - at <= HOURLY_FOR]
    daily = [at for at in times if now - at > HOURLY_FOR]
    assert (len(recent), len(hourly), len(daily)) == (2 * 96, 5 * 24, 83)
    assert {at.minute for at in hourly} == {45}
    assert {(at.hour, at.minute) for at in daily} == {(23, 45)}


def test_a_day_of_a_turn_each_second_leaves_fewer_than_ten_thousand() -> None:
    commits = [(number, START + timedelta(seconds=number)) for number in range(1, 86_401)]
    now = commits[-1][1]
    found = kept_snapshots(commits, now, 90)
    assert 8_000 < len(found) < 10_000
    assert {number for number, at in commits if now - at <= ALL_FOR} <= found
    older = [at for number, at in commits if number in found and now - at > ALL_FOR]
    assert {at.second for at in older} == {59}


def test_the_newest_is_kept_however_old_it_is() -> None:
    assert kept_snapshots([(7, START)], START + timedelta(days=900), 1) == {7}
    assert kept_snapshots([], START, 1) == set()


def test_a_clock_that_jumps_a_year_ahead_makes_nothing_older_than_a_day() -> None:
    commits = every_quarter(1)
    assert kept_snapshots(commits, commits[-1][1] + timedelta(days=366), 90) == {
        n for n, _ in commits
    }
    jumped = [*commits, (97, commits[-1][1] + timedelta(days=366))]
    assert len(kept_snapshots(jumped, jumped[-1][1], 90)) == 97


@given(histories(), st.integers(1, 400))
def test_what_is_dropped_stays_dropped_and_thinning_changes_nothing(
    history: tuple[Commits, datetime], days: int
) -> None:
    commits, now = history
    found = kept_snapshots(commits, now, days)
    assert len(commits) in found
    later = kept_snapshots(commits, now + timedelta(days=3), days)
    assert later <= found
    before = kept_snapshots(commits, now, days, GRACE)
    assert found <= before
    rest = [one for one in commits if one[0] in before]
    assert kept_snapshots(rest, now, days) >= found


@given(histories())
def test_what_is_younger_than_two_days_by_what_counts_of_the_clock_is_kept(
    history: tuple[Commits, datetime],
) -> None:
    commits, now = history
    times = [at for _, at in commits] + [now]
    gaps = [min(max(b - a, timedelta(0)), LONGEST_GAP) for a, b in pairwise(times)]
    found = kept_snapshots(commits, now, 90)
    for number in range(1, len(commits) + 1):
        if sum(gaps[number - 1 :], timedelta(0)) <= ALL_FOR:
            assert number in found


@given(histories(), st.lists(st.integers(0, 5_000), max_size=20))
def test_what_a_reader_was_offered_is_kept_for_an_hour(
    history: tuple[Commits, datetime], seconds: list[int]
) -> None:
    """The files go by the rule an hour ago, whatever is committed in that hour."""
    commits, now = history
    now = max(now, commits[-1][1])
    offered = kept_snapshots(commits, now, 90)
    times = [now + timedelta(seconds=at) for at in accumulate(seconds)]
    more = [at for at in times if at <= now + GRACE]
    grown = [*commits, *((len(commits) + n, at) for n, at in enumerate(more, 1))]
    assert offered <= kept_snapshots(grown, now + GRACE, 90, GRACE)
