"""Locks between machines on a real object store: processes that are killed, halted and cut off."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardpost.alerts.model.alert import ALERTS
from shardpost.delta.object_store import Objects
from shardpost.errors import ShardpostError
from shardpost.locks import claims, locks
from shardpost.locks.claims import VersionedText
from shardpost.settings import Settings
from tests.support import lock_holder
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.object_store import ObjectStore, object_store

LEASE = 4.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Give a store of this module's own, which its tests halt."""
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def settings(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Give a home whose tables are on the store, and leases that tests can wait for."""
    monkeypatch.setattr(claims, "LEASE_SECONDS", LEASE)
    return Settings(home=tmp_path).model_copy(update=store.place())


class Holder:
    """A process on a machine of that name that has a lock, or waits for it."""

    def __init__(self, settings: Settings, machine: str, wait: float = 0) -> None:
        arguments = ["it", f"{wait}", f"{LEASE}", machine]
        self.process = subprocess.Popen(
            [sys.executable, "-m", lock_holder.__name__, *arguments],
            env=os.environ | settings.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def says(self) -> str:
        """Return its next line."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def delete(self, name: str) -> str:
        """Have it delete an object; return what it says."""
        assert self.process.stdin
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return self.says()


@contextmanager
def holder(settings: Settings, machine: str, wait: float = 0) -> Iterator[Holder]:
    """Run one until the end."""
    started = Holder(settings, machine, wait)
    with started.process:
        yield started
        started.process.kill()


def objects(settings: Settings, *names: str) -> Objects:
    """Put objects where those processes delete them."""
    there = installed(settings).tables.objects(ALERTS.path)
    for name in names:
        there.put(name, b"")
    return there


def halted(process: subprocess.Popen[str]) -> bool:
    """Tell whether a process is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_halted_holder_that_was_taken_over_deletes_nothing_more(settings: Settings) -> None:
    there = objects(settings, "1", "2", "3")
    with holder(settings, "a") as first:
        assert first.says() == "held"
        assert first.delete("1") == "deleted 1"
        os.kill(first.process.pid, signal.SIGSTOP)
        wait_for(lambda: halted(first.process), "the process to stop")
        with holder(settings, "b", wait=0) as second:
            assert second.says() == "held"
            os.kill(first.process.pid, signal.SIGCONT)
            said = first.delete("2")
            assert said.startswith("the job on a: its lock s3://tables/")
            assert "was taken over" in said
            assert "the job on b has it (host " in said
            assert said.endswith("; this run commits nothing more")
            assert there.names() == ["2", "3"]
            assert second.delete("3") == "deleted 3"
    assert there.names() == ["2"]


def test_a_halted_holder_that_nobody_took_over_goes_on(settings: Settings) -> None:
    there = objects(settings, "1")
    with holder(settings, "a") as first:
        assert first.says() == "held"
        os.kill(first.process.pid, signal.SIGSTOP)
        wait_for(lambda: halted(first.process), "the process to stop")
        stopped, lease = time.monotonic(), LEASE
        wait_for(lambda: time.monotonic() - stopped > lease, "the end of the lease")
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.delete("1") == "deleted 1"
    assert there.names() == []


def test_a_killed_holder_is_followed_at_once_here_and_after_its_lease_elsewhere(
    settings: Settings,
) -> None:
    for machine, least, most in (("a", 0, LEASE / 2), ("b", LEASE / 2, 3 * LEASE)):
        with holder(settings, "a", wait=30) as first:
            assert first.says() == "held"
            first.process.kill()
            first.process.wait()
            since = time.monotonic()
            with holder(settings, machine) as second:
                assert second.says() == "held"
                assert least <= time.monotonic() - since
                # The start of the process is not what is waited for.
                assert time.monotonic() - since < most + 5


def test_a_store_that_does_not_answer_for_a_while_costs_no_lock(
    settings: Settings, store: ObjectStore
) -> None:
    there = objects(settings, "1")
    with holder(settings, "a") as first:
        assert first.says() == "held"
        store.process.send_signal(signal.SIGSTOP)
        stopped, lease = time.monotonic(), LEASE
        wait_for(lambda: time.monotonic() - stopped > lease, "the end of the lease")
        store.process.send_signal(signal.SIGCONT)
        assert first.delete("1") == "deleted 1"
    assert there.names() == []


def test_of_many_at_once_one_holds_it(settings: Settings) -> None:
    """Each reads a number and writes the next one, which without a lock would lose some."""
    number = installed(settings).tables.objects("number")

    def add(_: int) -> bool:
        try:
            with locks.exclusive(installed(settings).files, "it", "adding", wait=120):
                found = number.get("it")
                count = int(found) if found else 0
                installed(settings).tables.require_held()
                number.put("it", f"{count + 1}".encode())
                return True
        except ShardpostError:
            return False

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(add, range(24)))
    assert (done, number.get("it")) == (24, b"24")
    version = VersionedText(installed(settings).tables.objects(), "_locks/it").read()
    assert claims.holder_of(version) is None
