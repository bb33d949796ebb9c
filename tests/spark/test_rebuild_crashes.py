"""kill -9 of the whole process tree at every step of a rebuild, and a swap beside other runs."""

import pytest

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.locks import LockedError
from shardpost.rebuilds import store
from shardpost.rebuilds.model.rebuild import Standing
from shardpost.rebuilds.order import Action, Order, tables_of
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
from shardpost.rebuilds.sides import compared
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support import decisions
from tests.support.compacting import agree, held, starter
from tests.support.how_far import drawn
from tests.support.job_process import Job
from tests.support.rebuilding import compacted, order, rollback, start, swap
from tests.support.reference import Fold, Raw, closed, exchange, position, produce, published

pytestmark = pytest.mark.usefixtures("spark")  # what is not killed runs in this process

GB = order(Action.START, country="GB", tables=tables_of(""))
BUILDING = [
    *("rebuild position_events part 1", "rebuilt position_events part 1"),
    *("rebuilt rejected records of positions", "rebuild positions", "rebuilt positions"),
    *("rebuilt share_holders", "built"),
]
TOPPING_UP = ["top-up position_events", "share_holders", "top-up fold", "topped up"]
BEFORE_SWAP = [
    *("publish what is left", "holders that differ", "newly rejected"),
    *("leave tables", "commit snapshot"),
]
COMMITTED = ["swapped", "on record", "publish the difference"]
BEFORE_ROLLBACK = ["leave tables", "commit snapshot"]


def batch(number: int) -> list[Raw]:
    """Return records that change something of everything."""
    return [
        *(
            position(str(n), f"client{(n + number) % 4}", ("NASDAQ", "LON")[n % 2])
            for n in range(8)
        ),
        closed(str(number % 8)),
        exchange("PAR", "US" if number % 2 else "GB"),
        position(f"new{number}", "client1", "PAR"),
        Raw("positions", b"bad", b"{"),
        Raw("clients", b"client1", b'{"Client":"client1","Subscribed":true}'),
    ]


@pytest.fixture
def filled(settings: Settings) -> tuple[Settings, Fold]:
    """Give settings with a first snapshot, and the fold of its records."""
    apply_topics(settings)
    fold = Fold()
    fold.add(starter())
    add(settings, fold, 0)
    return settings, fold


def add(settings: Settings, fold: Fold, number: int) -> None:
    produce(settings, batch(number))
    fold.add(batch(number))
    compacted(settings)


def kill_at(settings: Settings, wanted: Order, step: str) -> None:
    job = Job(settings, REBUILD_TABLES, wanted, pause_at=step)
    try:
        job.wait_until_paused()
    finally:
        job.kill()


@pytest.mark.one_of("kills of a rebuild")
@pytest.mark.timeout(1800)
def test_killed_at_every_step_of_the_build_it_goes_on_where_it_was(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    done = 0
    for number, step in enumerate(drawn(BUILDING), 1):
        kill_at(settings, GB, step)
        assert held(settings) == fold.holders("US")
        rebuild = store.require_current(settings)
        assert rebuild.number == 2
        assert rebuild.progress.units >= done
        done = rebuild.progress.units
        add(settings, fold, number)
    start(settings, "GB")
    assert store.require_current(settings).progress.units == 3 + 3 + 3 + 1
    found = compared(settings)
    assert found.positions.different == 0
    assert found.positions.equal == len(fold.positions)
    swap(settings)
    agree(settings, fold, "GB")


@pytest.mark.one_of("kills of a rebuild")
@pytest.mark.timeout(1800)
def test_killed_at_every_step_of_a_top_up_the_next_one_does_it(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    start(settings, "GB")
    for number, step in enumerate(drawn(TOPPING_UP), 1):
        before = store.require_current(settings).candidate
        produce(settings, batch(number))
        fold.add(batch(number))
        compacted(settings)
        number_now = snapshots.current(settings).number
        assert store.require_current(settings).candidate.number == number_now
        produce(settings, batch(number + 10))
        fold.add(batch(number + 10))
        where = {"share_holders": 2}.get(step, 1)  # the compaction has a step of that name, too
        job = Job(settings, COMPACT_POSITIONS, pause_anywhere_at=step, nth_time=where)
        try:
            job.wait_until_paused()
        finally:
            job.kill()
        agree(settings, fold, "US")
        assert before.number < number_now
        assert store.require_current(settings).candidate.number == number_now
    swap(settings)
    agree(settings, fold, "GB")


@pytest.mark.one_of("kills of a rebuild")
@pytest.mark.timeout(1800)
def test_killed_at_every_step_of_swap_and_rollback_all_is_old_or_all_new(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    start(settings, "GB")
    is_new = False
    done: list[tuple[bytes, bytes]] = []
    steps = [*drawn(BEFORE_SWAP), *drawn(COMMITTED), *drawn(BEFORE_ROLLBACK)]
    for number, step in enumerate(steps, 1):
        action = Action.ROLLBACK if is_new else Action.SWAP
        kill_at(settings, order(action), step)
        if step in COMMITTED:
            is_new ^= True
            done.append((str(action).encode(), str(rebuilt_in(settings)).encode()))
        country = "GB" if is_new else "US"
        assert snapshots.current(settings).country == country
        assert held(settings) == fold.holders(country)
        standing = store.require_current(settings).standing(snapshots.current(settings))
        assert (standing is Standing.IN_USE) is is_new
        add(settings, fold, number)
        agree(settings, fold, country)
    assert is_new
    rollback(settings)
    done.append((b"rollback", str(rebuilt_in(settings)).encode()))
    agree(settings, fold, "US")
    recorded = [headers for _, headers in decisions.list_all(settings)]
    assert sorted((one["action"], one["snapshot"]) for one in recorded) == sorted(done)


def rebuilt_in(settings: Settings) -> int | None:
    return snapshots.current(settings).rebuilt_in


@pytest.mark.one_of("kills of a rebuild")
@pytest.mark.timeout(600)
def test_a_swap_waits_for_a_compaction_and_a_second_swap_changes_nothing(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    impatient = settings.model_copy(update={"lock_wait": 0.5})
    start(settings, "GB")
    produce(settings, batch(1))
    fold.add(batch(1))
    running = Job(settings, COMPACT_POSITIONS, pause_at="positions table")
    try:
        running.wait_until_paused()
        with pytest.raises(LockedError, match="compact_positions is already running"):
            swap(impatient)
        assert published(settings)
        running.resume()
        assert running.wait() == 0, running.log.read_text()
    finally:
        running.kill()
    agree(settings, fold, "US")
    first = Job(settings, REBUILD_TABLES, order(Action.SWAP), pause_at="swapped")
    try:
        first.wait_until_paused()
        with pytest.raises(LockedError, match="is already running"):
            swap(impatient)
        first.resume()
        assert first.wait() == 0, first.log.read_text()
    finally:
        first.kill()
    swap(settings)
    agree(settings, fold, "GB")
    assert snapshots.current(settings).rebuilt_in == 3
    with pytest.raises(ShardpostError, match="is in use"):
        start(settings, "GB")
