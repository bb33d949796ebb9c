"""The doctor's checks of this machine: Java, jars, disks, and locks.

A lock of a dead process is free.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from shardpost.checkout import DOT_ENV, OTHERS
from shardpost.embedded.broker import find_java
from shardpost.embedded.stack import FREE_BYTES
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.locks.locks import Held, holders
from shardpost.locks.process_identity import stat_of
from shardpost.spark.jars import jars_of
from shardpost.watch.model.conditions import GIB, LEAST_FREE
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, warning
from shardpost.wording import duration_text


def check_machine() -> Iterator[DoctorFinding]:
    """Check for a Java on which broker and Spark run, and for Spark's jars.

    `shardpost up` asks for those of the broker.
    """
    try:
        java = find_java()
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        yield ok("java", f"{done.stderr.splitlines()[0]} ({java})")
    except ShardpostError as problem:
        yield refused("java", problem)
    try:
        yield ok("jars", f"{len(jars_of('spark'))} of Spark")
    except ShardpostError as problem:
        yield refused("jars", problem)


def check_disks(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check both folders, and the one of the tables only where it is another disk.

    `shardpost up` refuses less than FREE_BYTES, and the watch alerts at less than LEAST_FREE.
    """
    home = _existing_folder(installation.files.home)
    yield check_folder("home", installation.files.home, shutil.disk_usage(home).free)
    tables = Path(installation.tables.root)
    if not installation.tables.is_on_store and tables != installation.files.home / "tables":
        yield check_folder("tables", tables, shutil.disk_usage(_existing_folder(tables)).free)


def check_store(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check that the tables' object store answers, and lets exactly one of several writers succeed.

    That puts some small objects beside the tables, and deletes them.
    """
    if installation.tables.is_on_store:
        try:
            installation.tables.require_conditional_put()
        except ShardpostError as problem:
            yield refused("object store", problem, "docs/tables.md: On an object store")
        else:
            conditional = "if several writers create an object, exactly one succeeds"
            yield ok("object store", f"{installation.tables.root} answers; {conditional}")


def check_access(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check that other users of this machine cannot read names, addresses or secrets.

    A group may: whoever lets one in does so on purpose.
    """
    home, tables = installation.files.home, Path(installation.tables.root)
    places = [home, DOT_ENV]
    if not installation.tables.is_on_store and not tables.is_relative_to(home):
        places.append(tables)
    modes = {place: place.stat().st_mode for place in places if place.exists()}
    if opened := [place for place, mode in modes.items() if mode & OTHERS]:
        found = ", ".join(f"{stat.filemode(modes[place])} {place}" for place in opened)
        cure = f"chmod o-rwx {' '.join(map(str, opened))}"
        yield warning("access", found, "nothing for other users of this machine", cure)
    else:
        yield ok("access", f"other users of this machine cannot read {home}")


def check_folder(name: str, folder: Path, free: int) -> DoctorFinding:
    """Check a folder on a disk with `free` bytes; `name` is its setting without the prefix."""
    setting, check_name = f"SHARDPOST_{name.upper()}", f"disk of {name}"
    found = f"{free / GIB:.1f} GiB free at {folder}"
    existing = _existing_folder(folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        cure = f"chown {os.getuid()} {existing}, or set {setting} to another folder"
        return error(check_name, f"{existing} cannot be written", "a folder of this user", cure)
    cure = f"free some space, or set {setting} to a folder on another disk"
    if free < FREE_BYTES:
        return error(check_name, found, f"at least {FREE_BYTES / GIB:g} GiB", cure)
    if free < LEAST_FREE:
        return warning(check_name, found, f"at least {LEAST_FREE / GIB:g} GiB", cure)
    return ok(check_name, found)


def _existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(one for one in (folder, *folder.parents) if one.exists())


# Longer than any job should take: a task of Airflow is killed after twelve hours.
HELD_FOR_LONG = timedelta(hours=12)
# Of a lock between machines, to see that it is renewed: every five seconds.
RENEWED_WITHIN = 8.0
STOPPED = "Tt"  # states of proc(5)


def check_locks(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Report each lock that is held now."""
    held = holders(installation.files, seconds=RENEWED_WITHIN)
    if not held:
        yield ok("locks", "none held")
    for lock in held:
        yield check_lock(lock, now)


def check_lock(lock: Held, now: datetime) -> DoctorFinding:
    """Check one lock that a process holds."""
    name, pid = f"lock {lock.name}", lock.pid
    where = f" on {lock.host}" if lock.host else ""
    found = f"held by pid {pid}{where} since {lock.since:%Y-%m-%d %H:%M} UTC"
    stat = None if lock.host else stat_of(pid)
    if stat and stat.state in STOPPED:
        found += ", which is stopped"
        return warning(name, found, "a running process", f"kill -CONT {pid} (or -KILL)")
    if not lock.is_renewed:
        found += (
            ", which does not renew it: it is slow, stopped, disconnected from the store, or gone"
        )
        cure = f"none: the next run takes it over; if pid {pid}{where} exists, see what it does"
        return warning(name, found, "a lock that is renewed or free", cure)
    if now - lock.since > HELD_FOR_LONG:
        cure = f"see what it does (ps -p {pid} -o args{where}), and if it is stuck: kill {pid}"
        return warning(name, found, f"at most {duration_text(HELD_FOR_LONG)}", cure)
    return ok(name, found)
