"""Backup and restore, as docs/operations.md has them: nobody is mailed twice."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shardpost import tables
from shardpost.checkout import CHECKOUT
from shardpost.delta import snapshots
from shardpost.embedded import daemons
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.settings import Settings
from shardpost.weekly_email.model.week import IsoWeek
from tests.conftest import environ
from tests.support.aged_rebuilds import AgedRebuilds
from tests.support.aged_tables import AgedTables
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed
from tests.support.jobs_here import jobs_here
from tests.support.reference import published

LONG_AGO = timedelta(days=21)
BACKUP_TABLES = str(CHECKOUT / "scripts" / "backup-tables")


@pytest.fixture
def shardpost(tmp_path: Path, spark: SparkSession) -> Iterator[CommandLine]:
    """Give the command line of a stack of its own, without Airflow."""
    del spark
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    command = CommandLineHere(environ(home=tmp_path / "home", partitions=2, **free))
    with jobs_here():
        try:
            command("up", "--no-airflow")
            yield command
        finally:
            command("down")


def put(shardpost: CommandLine, topic: str, key: str, **value: Any) -> None:
    sender = installed(shardpost.settings).kafka.producer()
    at = int((datetime.now(UTC) - LONG_AGO).timestamp() * 1000)
    sender.produce(topic, json.dumps(value).encode(), key.encode(), timestamp=at)
    assert sender.flush(30) == 0


def put_position(shardpost: CommandLine, key: str, client: str) -> None:
    put(shardpost, "positions", key, Client=client, Ticker="AAPL", Amount=1, Exchange="NASDAQ")


def put_client(shardpost: CommandLine, client: str) -> None:
    email = f"{client}@example.com"
    put(shardpost, "clients", client, Client=client, Name=client, Email=email, Subscribed=True)


def mails(shardpost: CommandLine) -> int:
    return len(list((shardpost.settings.home / "mail").glob("*.eml")))


def backup_tables(*folders: str | Path) -> subprocess.CompletedProcess[str]:
    command = [BACKUP_TABLES, *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def reading(shardpost: CommandLine, copy: Path) -> Settings:
    """Return settings with which a copy of the tables is read."""
    return shardpost.settings.model_copy(update={"tables": str(copy)})


def copies_while_compactions_go_on(shardpost: CommandLine, folder: Path) -> list[Path]:
    """Compact twice, with new records, and on until four copies of the tables were made.

    Return the copies. Positions 10, 11 and so on are client2's then.
    """
    copies: list[Path] = []

    def compact() -> None:
        number = 10
        while number < 12 or len(copies) < 4:
            put_position(shardpost, str(number), "client2")
            shardpost("compact")
            number += 1

    compacting = threading.Thread(target=compact)
    compacting.start()
    while compacting.is_alive():
        copy = folder / f"copy-{len(copies)}"
        done = backup_tables(shardpost.settings.tables_root, copy)
        assert done.returncode == 0, done.stderr
        copies.append(copy)
    return copies


def stop_and_copy_kafka(shardpost: CommandLine, to: Path) -> None:
    shardpost("down")
    to.mkdir()
    for name in ("kafka", "stores"):
        if (shardpost.settings.home / name).exists():
            shutil.copytree(shardpost.settings.home / name, to / name)


def restore_kafka(shardpost: CommandLine, backup: Path) -> None:
    for name in ("kafka", "stores"):
        shutil.rmtree(shardpost.settings.home / name, ignore_errors=True)
        if (backup / name).exists():
            shutil.copytree(backup / name, shardpost.settings.home / name)
    shardpost("up", "--no-airflow")


@pytest.mark.one_of("whole systems")
def test_a_stack_is_restored_and_goes_on_where_it_was(
    shardpost: CommandLine, tmp_path: Path
) -> None:
    home, week = shardpost.settings.home, str(IsoWeek.last_ended(datetime.now(UTC)))
    for client in ("client1", "client2"):
        put_client(shardpost, client)
    put_position(shardpost, "1", "client1")
    put_position(shardpost, "2", "client2")
    shardpost("compact")
    assert shardpost.json("email", "--week", week)["shards"]
    assert mails(shardpost) == 2

    copies = copies_while_compactions_go_on(shardpost, tmp_path)
    assert len(copies) > 3
    compactions = tables.snapshot(settings=shardpost.settings).number - 1
    held = shardpost.json("holders")
    assert held == {"client1": ["1"], "client2": ["2", *map(str, range(10, 10 + compactions))]}
    for copy in copies:  # each is one of the snapshots, whole
        newest = tables.snapshot(settings=reading(shardpost, copy)).number
        whole = shardpost.json("holders", "--snapshot", str(newest))
        assert tables.holders(settings=reading(shardpost, copy)) == whole

    put_position(shardpost, "5", "client1")  # the topics are newer than the copy of the tables
    shardpost("compact")
    before = shardpost.json("holders")
    assert before == held | {"client1": ["1", "5"]}
    stop_and_copy_kafka(shardpost, tmp_path / "backup")
    shutil.rmtree(home)

    home.mkdir()
    shutil.copytree(copies[0], home / "tables")
    restore_kafka(shardpost, tmp_path / "backup")
    assert shardpost.json("holders") != before
    shardpost("compact")
    assert shardpost.json("holders") == before
    assert published(shardpost.settings) == before
    counts = shardpost.json("email", "--week", week)["shards"]
    assert sum(row["sent"] for row in counts) == 2
    assert mails(shardpost) == 0  # since the restore
    found = {one["check"]: one["state"] for one in shardpost.json("doctor", code=3)}
    assert found.pop("airflow") == "warning"  # it was not started
    assert set(found.values()) <= {"ok", "unknown"}


@pytest.mark.one_of("whole systems")
def test_topics_that_are_older_than_the_tables_are_refused_until_a_person_decides(
    shardpost: CommandLine, tmp_path: Path
) -> None:
    week = str(IsoWeek.last_ended(datetime.now(UTC)))
    put_client(shardpost, "client1")
    put_position(shardpost, "1", "client1")
    shardpost("compact")
    stop_and_copy_kafka(shardpost, tmp_path / "backup")
    shardpost("up", "--no-airflow")
    put_position(shardpost, "2", "client1")
    shardpost("compact")
    shardpost("email", "--week", week)
    assert mails(shardpost) == 1

    shardpost("down")
    restore_kafka(shardpost, tmp_path / "backup")
    assert "but it ends at" in shardpost.refused("compact", code=1)
    assert "(topic weekly-emails) has changed" in shardpost.refused("email", "--week", week, code=1)
    found = {one["check"]: one for one in shardpost.json("doctor", code=3)}
    assert "but it ends at" in found["inputs"]["found"]
    assert "has changed since" in found["store weekly-emails"]["found"]
    assert mails(shardpost) == 1

    shardpost("compact", "--reconcile")
    assert shardpost.json("holders") == {"client1": ["1"]}
    assert "(topic weekly-emails) has changed" in shardpost.refused("email", "--week", week, code=1)
    assert mails(shardpost) == 1


def test_a_copy_goes_to_a_new_folder_and_out_of_one_with_tables(tmp_path: Path) -> None:
    tables_root = tmp_path / "tables"
    assert "found no table snapshots" in backup_tables(tables_root, tmp_path / "copy").stderr
    assert not (tmp_path / "copy").exists()
    (tables_root / "snapshots" / "_delta_log").mkdir(parents=True)
    done = backup_tables(tables_root, tmp_path)
    assert (done.returncode, "expected a new folder" in done.stderr) == (1, True)


def test_it_says_how_many_tables_it_copied_and_where_to(tmp_path: Path) -> None:
    for table in ("snapshots", "positions"):
        log = tmp_path / "tables" / table / "_delta_log"
        log.mkdir(parents=True)
        (log / "0.json").write_text("{}")
    copy = tmp_path / "copy"
    done = backup_tables(tmp_path / "tables", copy)
    assert (done.returncode, done.stdout) == (0, f"backup-tables: 2 tables copied to {copy}\n")
    assert (copy / "positions" / "_delta_log" / "0.json").read_text() == "{}"


def test_tables_beside_those_in_use_are_copied_after_what_names_them(tmp_path: Path) -> None:
    settings = Settings.model_validate({"home": tmp_path / "home"})
    aged = AgedTables(settings, Random(1))  # noqa: S311
    beside = AgedRebuilds(aged)
    aged.compact()
    beside.begin(SHARE_HOLDERS.name)
    beside.build()
    copy = tmp_path / "copy"
    command = ["bash", "-x", BACKUP_TABLES, settings.tables_root, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    copied = re.findall(r"^\+ copy_table (\S+)$", done.stderr, re.MULTILINE)
    assert copied[:2] == ["rebuilds", "snapshots"]
    assert "share_holders.2" in copied
    restored = settings.model_copy(update={"tables": str(copy)})
    aged.settings = restored
    beside.require_readable()
    beside.swap()
    assert snapshots.current(installed(restored).tables).folders == {
        SHARE_HOLDERS.name: "share_holders.2"
    }
    assert snapshots.current(installed(settings).tables).number == 1


@pytest.mark.parametrize("folders", [(), ("one",), ("one", "two", "three")])
def test_other_than_two_folders_are_bad_usage(folders: tuple[str, ...]) -> None:
    done = backup_tables(*folders)
    assert done.returncode == 2
    assert "expected two folders: scripts/backup-tables TABLES COPY" in done.stderr
