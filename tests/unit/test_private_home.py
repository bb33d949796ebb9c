"""Nobody else gets into the home, or at what is temporarily outside: names, mails, passwords."""

import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardpost.alerts import channels
from shardpost.checkout import CHECKOUT
from shardpost.delta import storage
from shardpost.delta.table import Table, columns
from shardpost.embedded import airflow, stack
from shardpost.locks import locks
from shardpost.projection import open_temporary
from shardpost.settings import Settings
from shardpost.spark.job import job_folder
from shardpost.watch import machine_checks
from shardpost.watch.machine_checks import check_access
from tests.support.installed import installed

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
TABLE = Table("grown", columns("n BIGINT"))


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Have the umask that most machines have."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path | str | int) -> str:
    return stat.filemode(os.stat(path).st_mode)  # noqa: PTH116 - a descriptor too


def lock(settings: Settings) -> None:
    with locks.exclusive(installed(settings).files, "name", "what"):
        pass


WRITERS: list[Callable[[Settings], object]] = [
    lock,
    stack._require_home,
    airflow.password,
    airflow.disable_schedules,
    lambda settings: channels.append(installed(settings).files, "an alert", datetime.now(UTC)),
    lambda settings: storage.create(installed(settings).tables, TABLE, 1),
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("before", [None, 0o755, 0o777, 0o2775])
def test_whatever_writes_closes_the_home_to_others(
    tmp_path: Path, write: Callable[[Settings], object], before: int | None
) -> None:
    settings = Settings(home=tmp_path / "new" / "home")
    if before is not None:
        settings.home.mkdir(parents=True)
        settings.home.chmod(before)
    write(settings)
    assert mode(settings.home) in {"drwx------", "drwx--S---"}


@pytest.mark.parametrize("allowed", [0o750, 0o770, 0o2770, 0o1777, 0o700])
def test_a_home_for_a_group_and_a_folder_of_temporary_files_stay_what_they_are(
    tmp_path: Path, allowed: int
) -> None:
    settings = Settings(home=tmp_path / "home")
    settings.home.mkdir()
    settings.home.chmod(allowed)
    lock(settings)
    assert stat.S_IMODE(settings.home.stat().st_mode) == allowed


def test_new_tables_elsewhere_are_closed_and_those_that_are_there_stay(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", tables=str(tmp_path / "disk" / "tables"))
    storage.create(installed(settings).tables, TABLE, 1)
    assert mode(settings.tables_root) == "drwx------"
    Path(settings.tables_root).chmod(0o755)
    storage.create(installed(settings).tables, Table("other", columns("n BIGINT")), 1)
    assert mode(settings.tables_root) == "drwxr-xr-x"


def test_the_doctor_names_what_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "DOT_ENV", tmp_path / ".env")
    settings = Settings(home=tmp_path / "home", tables=str(tmp_path / "tables"))
    [found] = check_access(installed(settings), NOW)
    assert found.state == "ok"
    (tmp_path / "tables").mkdir()
    (tmp_path / "home").mkdir(mode=0o750)
    (tmp_path / ".env").touch()
    [found] = check_access(installed(settings), NOW)
    assert (found.check, found.state) == ("access", "warning")
    assert found.found == f"-rw-r--r-- {tmp_path}/.env, drwxr-xr-x {tmp_path}/tables"
    assert found.cure == f"chmod o-rwx {tmp_path}/.env {tmp_path}/tables"
    subprocess.run(found.cure.split(), check=True)
    assert [one.state for one in check_access(installed(settings), NOW)] == ["ok"]
    (tmp_path / "home").chmod(0o755)
    [found] = check_access(installed(settings.model_copy(update={"tables": None})), NOW)
    assert found.cure == f"chmod o-rwx {tmp_path}/home"


def test_temporary_files_and_copies_are_for_their_owner_only(tmp_path: Path) -> None:
    with job_folder() as folder:
        assert mode(folder) == "drwx------"
    database = open_temporary("rows (n BLOB)")
    fill(database)
    of_sqlite = [fd for fd in Path("/proc/self/fd").iterdir() if "etilqs_" in read_link(fd)]
    assert {mode(fd) for fd in of_sqlite} == {"-rw-------"}
    database.close()
    log = tmp_path / "tables" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / "0.json").touch()
    copy = tmp_path / "backup" / "tables"
    script = CHECKOUT / "scripts" / "backup-tables"
    subprocess.run([script, tmp_path / "tables", copy], check=True, capture_output=True)
    assert (mode(copy.parent), mode(copy)) == ("drwx------", "drwx------")


def fill(database: sqlite3.Connection) -> None:
    """Insert more than the cache holds."""
    for _ in range(8):
        database.execute("INSERT INTO rows VALUES (zeroblob(1000000))")


def read_link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
