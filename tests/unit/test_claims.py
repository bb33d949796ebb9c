"""Locks that hold between machines, on a store in memory: who may commit, and what is said."""

import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from shardpost.delta import storage, stored_files, table_log
from shardpost.delta.object_store import Objects
from shardpost.errors import ShardpostError
from shardpost.locks import claims, locks
from shardpost.locks.claims import RELIED_ON, Claim, LostLockError, Version, VersionedText
from shardpost.locks.locks import (
    LockedError,
    all_exclusive,
    exclusive,
    holders,
)
from shardpost.settings import Settings
from shardpost.watch.machine_checks import check_locks
from shardpost.weekly_email.model.week_tables import LEDGER_MARKS, LedgerMark
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.memory_store import memory_store

T = TypeVar("T")
NEVER = datetime.min.replace(tzinfo=UTC)
SINCE = datetime(2026, 11, 23, 8, tzinfo=UTC)
MARK = LedgerMark("2026-W47", "weekly-emails", "id", (9,), SINCE)


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Give a home whose tables are on a store."""
    with memory_store(Settings(home=tmp_path)) as settings:
        yield settings


def text(settings: Settings, name: str = "it") -> VersionedText:
    return VersionedText(installed(settings).tables.objects(), f"{locks.FOLDER}/{name}")


def claim_of_another(settings: Settings, name: str = "it", **known: object) -> None:
    """Write a claim of another machine: the next version, whoever has it."""
    it, lease = text(settings, name), claims.LEASE_SECONDS
    holder = claims.this_process("the other", SINCE, lease)
    other = replace(holder, **{"host": "b", "pid": 7, "machine": "b", "fencing": 5} | known)  # type: ignore[arg-type]
    assert it.replace(it.read(), claims.form(other))


def test_of_several_writers_one_writes_the_next_version(settings: Settings) -> None:
    def add_one(worker: int) -> int:
        mine, done = text(settings), 0
        while done < 20:
            read = mine.read()
            count = int((read.text or "0 -1").split()[0])
            done += mine.replace(read, f"{count + 1} {worker}") is not None
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add_one, range(4))) == 80
    last = text(settings).read()
    # One that was followed at once by another may count as not written, and is written again.
    assert 80 <= int((last.text or "").split()[0]) == last.number
    assert (
        len(installed(settings).tables.objects().names(locks.FOLDER)) == 1
    )  # older versions are removed


def test_who_read_a_version_that_is_long_gone_writes_none(settings: Settings) -> None:
    it, at = text(settings), Version(0)
    for number in range(5):
        at = it.replace(at, str(number)) or pytest.fail("nobody else wrote")
    assert it.replace(Version(2), "late") is None
    assert it.read() == at


# Random histories: claims of several runs, by a clock of the test. Before any request to the store
# its process may be halted, while others go on; requests and answers may be lost.


@dataclass
class World:
    """What is the same for all: time, the store, and what was committed."""

    dice: random.Random
    objects: dict[str, bytes] = field(default_factory=dict)
    now: float = 0
    last: int = 0
    actors: "list[Actor]" = field(default_factory=list)
    depth: int = 0
    is_calm: bool = False

    def interrupt(self, lost: str = "") -> None:
        """Let time pass, and others act; lose what is under way, now and then."""
        if self.is_calm:
            return
        self.now += self.dice.choice([0, 0, 0, 0, 0, 0, 0, 0.1, 1, 12, 40])
        while self.dice.random() < 0.5 / (1 + self.depth):
            self.depth += 1
            self.dice.choice(self.actors).act()
            self.depth -= 1
        if lost and self.dice.random() < 0.08:
            raise ShardpostError(lost)

    def commit(self, fencing: int) -> None:
        """Commit; nobody who had it before may do so afterwards."""
        assert fencing >= self.last
        self.last = fencing


class Wire(Objects):
    """The store as one process sees it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, name: str) -> bytes | None:
        return self._asked(lambda: self._world.objects.get(name))

    def put_if_absent(self, name: str, content: bytes) -> bool:
        def put() -> bool:
            return self._world.objects.setdefault(name, content) == content

        return self._asked(put)

    def names(self, folder: str = "") -> list[str]:
        return self._asked(lambda: sorted(self._world.objects))

    def delete(self, names: Iterable[str]) -> None:
        self._asked(lambda: [self._world.objects.pop(name, None) for name in names])

    def _asked(self, call: Callable[[], T]) -> T:
        self._world.interrupt("the request was lost")
        answer = call()
        self._world.interrupt("the answer was lost")
        return answer


class Actor:
    """A process that claims, renews, commits, releases, and may end without a word."""

    def __init__(self, world: World) -> None:
        self._world, self._is_busy = world, False
        self._ahead = world.dice.uniform(-1e6, 1e6)  # no two machines started at the same time
        self._text = VersionedText(Wire(world), locks.FOLDER)
        self._wants = self._wanted()
        self.claim: Claim | None = None

    def act(self) -> None:
        """Do one thing; nothing while it is halted in the middle of another."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            if self.claim is None:
                self.claim = self._wants if self._wants.take() else None
            else:
                self._go_on(self.claim)
        except LostLockError:
            self._end()
        except ShardpostError:
            pass
        finally:
            self._is_busy = False
        assert sum(actor.may_commit for actor in self._world.actors) <= 1

    def _go_on(self, claim: Claim) -> None:
        does = self._world.dice.choices(["renew", "commit", "release", "die"], [4, 4, 4, 1])[0]
        if does == "renew":
            claim.renew()
        elif does == "commit":
            claim.require()
            self._world.commit(claim.holder.fencing)
        else:
            self._end()
            if does == "release":
                claim.release()

    def _end(self) -> None:
        self.claim, self._wants = None, self._wanted()

    def _wanted(self) -> Claim:
        holder = claims.this_process("the job", datetime.now(UTC), 30)
        return Claim(self._text, "it", holder, clock=self._clock)

    def _clock(self) -> float:
        return self._world.now + self._ahead

    @property
    def may_commit(self) -> bool:
        """Tell whether it would commit without asking the store."""
        claim = self.claim
        return claim is not None and not claim.lost and claim.age() < RELIED_ON * 30


@pytest.mark.parametrize("block", drawn(range(20)))
def test_no_two_may_commit_and_fencing_numbers_only_grow(
    block: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for seed in range(60 * block, 60 * (block + 1)):
        try:
            try_history(random.Random(seed))  # noqa: S311
        except AssertionError as broken:
            broken.add_note(f"seed {seed}")
            raise


def try_history(dice: random.Random) -> None:
    """Let three processes do what the dice say, and a fourth claim when they are done."""
    world = World(dice)
    world.actors = [Actor(world) for _ in range(3)]
    for _ in range(60):
        world.interrupt()
    world.is_calm = True
    waiting = Actor(world)
    waiting.act()
    world.now += 30
    if waiting.claim is None:
        waiting.act()
    assert waiting.claim, "a lease later"
    world.commit(waiting.claim.holder.fencing)


def test_a_renewal_that_is_made_again_is_not_taken_for_the_one_whose_answer_was_lost(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, at = a_claim(settings)
    at.now = 10
    with monkeypatch.context() as unanswered:
        unanswered.setattr(VersionedText, "_numbers", fails)
        with pytest.raises(ShardpostError, match="no answer"):
            claim.renew()
    first = text(settings).read()
    at.now = 29
    claim.renew()
    assert text(settings).read().number > first.number  # else another run counts from 10 on


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 0

    def __call__(self) -> float:
        return self.now


def fails(*_: object) -> NoReturn:
    raise ShardpostError("no answer")


def a_claim(settings: Settings) -> tuple[Claim, Clock]:
    clock, holder = Clock(), claims.this_process("the job", SINCE, 30)
    claim = Claim(text(settings), "s3://it", holder, clock=clock)
    assert claim.take()
    return claim, clock


def test_a_claim_that_was_renewed_lately_is_relied_on_without_asking(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, at = a_claim(settings)
    monkeypatch.setattr(VersionedText, "replace", fails)
    at.now = 19.9
    claim.require()
    at.now = 20
    with pytest.raises(ShardpostError, match="no answer"):
        claim.require()


def test_a_claim_that_nobody_took_while_its_holder_was_halted_is_renewed_late(
    settings: Settings,
) -> None:
    claim, at = a_claim(settings)
    at.now = 3600
    claim.require()
    assert (claim.age(), claim.holder.fencing, claim.lost) == (0, 1, None)


def test_who_was_halted_while_another_run_took_its_lock_is_told_who(settings: Settings) -> None:
    claim, at = a_claim(settings)
    claim_of_another(settings)
    at.now = 3600
    for _ in range(2):
        with pytest.raises(LostLockError) as lost:
            claim.require()
    assert str(lost.value) == (
        "the job: its lock s3://it was taken over, since it was not renewed for 30 s: the other has"
        " it (host b, pid 7, since 2026-11-23 08:00:00 UTC, fencing number 5); this run commits"
        " nothing more"
    )
    before = text(settings).read()
    claim.release()
    assert text(settings).read() == before  # it is the other's


def test_a_second_run_is_told_who_has_it_on_which_host_and_a_later_one_gets_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEASE_SECONDS", 6)
    with (
        exclusive(installed(settings).files, "it", "the job"),
        pytest.raises(LockedError) as refused,
        exclusive(installed(settings).files, "it", "it"),
    ):
        pytest.fail("it is held")
    who = r"it is already running \(host \S+, pid \d+, since 20[-: 0-9]+ UTC, fencing number 1; "
    where = r"it holds s3://bucket/tables/_locks/it\): wait for it"
    assert re.fullmatch(who + where, str(refused.value))
    free = text(settings).read()
    assert claims.holder_of(free) is None
    with exclusive(installed(settings).files, "it", "the job"):
        held = claims.holder_of(text(settings).read())
        assert held
        assert held.fencing == free.number + 1


def test_a_lock_of_a_process_that_died_on_this_machine_is_free_at_once(settings: Settings) -> None:
    claim_of_another(settings, machine=claims.this_process("", SINCE, 1).machine, start="1")
    before = time.monotonic()
    with exclusive(installed(settings).files, "it", "the job"):
        assert time.monotonic() - before < claims.LEASE_SECONDS / 2


def test_locks_of_a_run_that_died_on_another_machine_are_free_after_one_lease(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claims, "LEASE_SECONDS", 2)
    names = {f"mail-{shard}": f"shard {shard}" for shard in range(8)}
    for name in names:
        claim_of_another(settings, name)
    before = time.monotonic()
    with all_exclusive(installed(settings).files, names):
        assert 2 <= time.monotonic() - before < 8
        assert {lock.name for lock in holders(installed(settings).files, "mail-")} == {*names}
    assert not holders(installed(settings).files)
    assert len(installed(settings).tables.objects().names(locks.FOLDER)) == 8
    said = "mail-0: not renewed for 2 s by the other (host b, pid 7, since 2026-11-23 08:00:00 UTC"
    assert said in caplog.text


def test_doctor_tells_locks_that_are_renewed_from_those_that_are_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LEASE_SECONDS", 3)
    assert [one.found for one in check_locks(installed(settings), SINCE)] == ["none held"]
    claim_of_another(settings, "dead")
    with exclusive(installed(settings).files, "it", "the job"):
        dead, it = check_locks(installed(settings), SINCE)
    assert (dead.check, dead.state, it.check, it.state) == ("lock dead", "warning", "lock it", "ok")
    assert "held by pid 7 on b since 2026-11-23 08:00 UTC, which does not renew it" in dead.found
    assert f"held by pid {os.getpid()} since 20" in it.found


def test_a_run_that_lost_its_lock_deletes_nothing_and_commits_nothing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Settings(home=tmp_path / "here")  # deltalake writes to no store in memory
    table_log.append(installed(here).tables, LEDGER_MARKS, lambda: MARK)
    version = storage.newest_version(installed(here).tables, LEDGER_MARKS)
    assert version is not None
    objects = installed(settings).tables.objects()
    objects.put("old", b"")
    claim, at = a_claim(settings)
    for tables in (installed(settings).tables, installed(here).tables):
        tables.claims.append(claim)
    claim_of_another(settings)
    at.now = 31
    for write in (
        lambda: stored_files.delete(installed(settings).tables, LEDGER_MARKS, ["old"]),
        lambda: stored_files.delete_folder(installed(settings).tables, LEDGER_MARKS),
        lambda: table_log.append(installed(here).tables, LEDGER_MARKS, lambda: MARK),
        lambda: table_log.restore(installed(here).tables, LEDGER_MARKS, version),
        lambda: table_log.commit(installed(here).tables, LEDGER_MARKS, version, (), (), {"it": 1}),
    ):
        with pytest.raises(LostLockError, match="commits nothing more"):
            write()
    assert "old" in objects.names()
    assert storage.newest_version(installed(here).tables, LEDGER_MARKS) == version


def test_a_lock_that_is_lost_in_its_block_is_said_once_and_stops_others_no_longer(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claims, "LEASE_SECONDS", 0.6)
    with exclusive(installed(settings).files, "it", "the job"):
        claim_of_another(settings)
        wait_for(lambda: "commits nothing more" in caplog.text, "the renewal")
        with pytest.raises(LostLockError):
            installed(settings).tables.require_held()
    installed(settings).tables.require_held()
    assert caplog.text.count("commits nothing more") == 1
