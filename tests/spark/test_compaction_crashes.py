"""kill -9 of the whole process tree at named steps, SIGSTOP, and two at once: real processes.

Within a process test_compact_positions.py breaks off at every step.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from shardpost.delta import snapshots
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.model.view_tables import LAYERED, FoldingRule
from shardpost.locks import locks
from shardpost.settings import Settings
from shardpost.spark import submit
from shardpost.topics.creation import apply_topics
from tests.support.command_line import SHARDPOST
from tests.support.compacting import agree, folding_by, held, run, starter
from tests.support.engines import said
from tests.support.how_far import STORE, drawn
from tests.support.installed import installed
from tests.support.job_process import kill_at, paused, wait_for
from tests.support.letter_world import committed, decide, live, sweep, total
from tests.support.reference import Fold, Raw, closed, exchange, position, produce, published

pytestmark = [
    pytest.mark.one_of("kills of what makes tables"),
    pytest.mark.usefixtures("spark"),  # what is not killed runs in this process
]

STEPS = [
    "read",
    "exchanges history",
    "exchanges table",
    "positions history",
    "positions table",
    "share_holders",
    "commit",
    "offsets",
    "publish",
    "letters",
    "letters written",
    "letters sent",
]
FOLDS = [f"{table.name} fold" for table in LAYERED]
WHILE_SENDING = ("letters written", "letters sent")
COMMITTED = STEPS[STEPS.index("offsets") :]


def batch(number: int) -> list[Raw]:
    """Return new and moved positions, one that is closed, a bad one, a country's change."""
    return [
        *(position(str(n), f"client{(n + number) % 6}", "NASDAQ") for n in range(12)),
        position(f"new{number}", "client1", "LON"),
        closed(str(number % 12)),
        exchange("LON", "US" if number % 2 else "GB"),
        Raw("positions", b"bad", b"{"),
    ]


@pytest.mark.also_on_store
def test_killed_at_any_step_the_next_run_ends_as_an_unbroken_one(settings: Settings) -> None:
    apply_topics(installed(settings))
    fold = Fold()
    fold.add(starter())
    seen: dict[str, list[str]] = {}
    steps = [*drawn(STEPS[:-1], every=3), STEPS[-1]]
    for number, name in enumerate(steps):
        produce(settings, batch(number))
        fold.add(batch(number))
        where = "pause_at" if name not in WHILE_SENDING else "pause_anywhere_at"
        kill_at(settings, COMPACT_POSITIONS, **{where: name})
        seen = fold.holders() if name in COMMITTED else seen
        assert (held(settings) if snapshots.newest(installed(settings).tables) else {}) == seen
    assert total(sweep(settings, datetime.now(UTC))) == {"parked": len(steps)}
    assert decide(settings, is_redrive=False) == len(steps)
    run(settings)
    agree(settings, fold)
    # Each poison was a letter once; discarded after its run died, it stays away.
    letters = [r.key for r in committed(settings, settings.topic("dead-letters")) if r.value]
    assert len(letters) == len(set(letters)) == len(steps)
    assert not live(settings, settings.topic("dead-letters"))
    assert not live(settings, settings.topic("parking-lot"))


@pytest.mark.also_on_store
def test_killed_while_it_folds_the_next_run_folds_all(settings: Settings) -> None:
    apply_topics(installed(settings))
    fold = Fold()
    fold.add(starter())
    for number in range(2):  # the second one's records are the layers
        produce(settings, batch(number))
        fold.add(batch(number))
        run(settings)
    for number, name in enumerate(drawn(FOLDS, every=1), 2):
        produce(settings, batch(number))
        fold.add(batch(number))
        kill_at(settings, COMPACT_POSITIONS, pause_at=name, more={"FOLD_RUNS": "1"})
        assert held(settings) == fold.holders()
        assert "share_holders" in snapshots.current(installed(settings).tables).folded
    with folding_by(FoldingRule(runs=1)):
        run(settings)
    agree(settings, fold)
    newest = snapshots.current(installed(settings).tables)
    assert newest.folded == {}
    assert {said(settings, table)["snapshot"] for table in LAYERED} == {f"{newest.number}"}


def test_beside_a_stopped_run_a_second_refuses_a_third_waits_and_both_end_well(
    settings: Settings,
) -> None:
    apply_topics(installed(settings))
    impatient = settings.model_copy(update={"lock_wait": 1.0})
    produce(settings, batch(0))
    fold = Fold()
    fold.add(starter() + batch(0))
    with paused(settings, COMPACT_POSITIONS, pause_at="positions table") as first:
        first.stop()
        with pytest.raises(locks.LockedError, match=r"compact_positions .* running \(pid \d+"):
            run(impatient)
        with ThreadPoolExecutor(1) as pool:
            third = pool.submit(run, settings)
            first.resume()
            assert first.wait() == 0, first.log.read_text()
            assert third.result()["changed"] is False
    agree(settings, fold)
    assert len(snapshots.list_all(installed(settings).tables)) == 1


@pytest.mark.parametrize("tables_at", [STORE], indirect=True)
def test_a_halted_run_whose_lock_another_machine_took_commits_nothing_more(
    settings: Settings,
) -> None:
    apply_topics(installed(settings))
    produce(settings, batch(0))
    fold = Fold()
    fold.add(starter() + batch(0))
    with paused(settings, COMPACT_POSITIONS, pause_at="positions table") as first:
        run(settings)
        made = snapshots.list_all(installed(settings).tables)
        first.resume()
        assert first.wait() == 1
        said = first.log.read_text()
    assert "its lock s3://" in said
    assert "this run commits nothing more" in said
    assert snapshots.list_all(installed(settings).tables) == made
    agree(settings, fold)


def test_a_stopped_publisher_that_wakes_up_later_overwrites_nothing(settings: Settings) -> None:
    apply_topics(installed(settings))
    produce(settings, [position("1", "client1", "NASDAQ"), Raw("positions", b"bad", b"{")])
    with paused(settings, COMPACT_POSITIONS, pause_at="publish") as zombie:
        # Nobody sees it: its lock is gone, as after a restart on another machine.
        locks.path_of(installed(settings).files, COMPACT_POSITIONS.name).unlink()
        produce(settings, [closed("1"), position("2", "client1", "NYSE")])
        run(settings)
        assert published(settings) == {"client1": ["2"]}
        zombie.resume()
        assert zombie.wait() == 0, zombie.log.read_text()
    assert published(settings) == {"client1": ["2"]}
    assert len([*committed(settings, settings.topic("dead-letters"))]) == 1


def test_a_command_whose_jvm_is_killed_leaves_no_files(settings: Settings, tmp_path: Path) -> None:
    apply_topics(installed(settings))
    produce(settings, batch(1))
    folder = tmp_path / "temporary"
    folder.mkdir()
    environ = submit.job_environment(installed(settings)) | {"TMPDIR": str(folder)}
    command = subprocess.Popen([str(SHARDPOST), "compact"], env=environ, stderr=subprocess.PIPE)
    wait_for(lambda: any(folder.rglob("blockmgr-*")), "the JVM's own folder")
    tree = psutil.Process(command.pid).children(recursive=True)
    [jvm] = [process for process in tree if process.name() == "java"]
    jvm.kill()
    _, said = command.communicate(timeout=60)
    assert command.returncode == 1
    assert b"run it again" in said
    assert list(folder.iterdir()) == []
