"""Which snapshots are kept, whatever the clock does."""

from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from shardpost.delta.snapshot import ALL_FOR, GRACE, HOURLY_FOR, LONGEST_GAP, kept_snapshots

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
    recent = [at for at in times if now - at <= ALL_FOR]
    hourly = [at for at in times if ALL_FOR < now - at <= HOURLY_FOR]
    daily = [at for at in times if now - at > HOURLY_FOR]
    assert (len(recent), len(hourly), len(daily)) == (2 * 96, 5 * 24, 83)
    assert {at.minute for at in hourly} == {45}
    assert {(at.hour, at.minute) for at in daily} == {(23, 45)}


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
