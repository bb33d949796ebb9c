"""The command `import` as its users have it: processes, kill -9, exit codes, one clear line."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shardpost.imports.import_job import IMPORT_POSITIONS, find_source
from shardpost.imports.model.source import ImportRequest
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.command_line import CommandLine
from tests.support.compacting import run
from tests.support.how_far import drawn, up_to
from tests.support.imports import NOW, csv_of, decided, import_ids, records, row
from tests.support.installed import installed
from tests.support.job_process import kill_at
from tests.support.jobs_here import CommandsHere
from tests.support.postgresql import PASSWORD, USER, postgresql
from tests.support.reference import position, produce

OPEN = 20
MANY = up_to(25_000, 12_000)  # more than two transactions, or than one
KILLED_AT = [("import batch in its transaction", 0), ("import batch written", 10_000)]


@pytest.fixture
def world(settings: Settings, spark: SparkSession) -> Settings:
    """Have open positions in a snapshot."""
    del spark  # the compaction finds it
    apply_topics(installed(settings))
    produce(settings, [position(str(n), "client1", "NASDAQ") for n in range(OPEN)])
    run(settings)
    return settings


@pytest.fixture
def shardpost(world: Settings) -> CommandLine:
    return CommandsHere(world.environ())


@pytest.mark.one_of("imports beside other changes")
def test_plan_apply_and_again(world: Settings, shardpost: CommandLine, tmp_path: Path) -> None:
    listed = [row(str(n), "client1") for n in range(1, OPEN)] + [row("x", "client1", amount="1,5")]
    path = csv_of(tmp_path / "list.csv", [*listed, row("neu", "client2")])
    planned = shardpost("import", str(path))
    assert "new              1  such as neu" in planned
    _, _, to_do = planned.partition("2 records would be written; to apply exactly this, add ")
    exactly = to_do.splitlines()[0].split()
    assert exactly[:2] == ["--apply", "--up-to"]
    done = shardpost.json("import", str(path), *exactly, "--why", "a new feed", "--by", "Ann")
    assert (done["applied"], done["written"], done["new"], done["closed"]) == (True, 2, 1, 1)
    assert [one["row"]["PositionId"] for one in done["rejected"]] == ["x"]
    assert len(records(world)) == 2
    shardpost("compact")
    again = shardpost("import", str(path), "--apply")
    assert "applied already, at " in again
    assert " by Ann" in again
    few = csv_of(tmp_path / "few.csv", listed[:10])
    refused = shardpost.run("import", str(few), "--apply", "--json")
    assert refused.returncode == 3
    assert "10 of 20 open positions would close (50%)" in json.loads(refused.stdout)["refused"]
    assert "shardpost: refused: 10 of 20 open" in refused.stderr
    assert len(records(world)) == 2


@pytest.mark.one_of("kills of what sends")
def test_killed_within_a_transaction_and_after_one_all_is_there_once(
    world: Settings, shardpost: CommandLine, tmp_path: Path
) -> None:
    listed = [row(str(n), "client1") for n in range(OPEN, OPEN + MANY)]
    path = csv_of(tmp_path / "list.csv", listed)
    request = ImportRequest(find_source(str(path)), "Ann", is_applied=True, max_closed=1.0, now=NOW)
    there = 0
    for step, written in drawn(KILLED_AT):
        kill_at(world, IMPORT_POSITIONS, request, pause_at=step)
        if written:  # readers of committed records wait for an open transaction
            assert len(records(world)) == written
            there = written
        assert decided(world) == []
    done = shardpost.json("import", str(path), "--apply", "--max-closed", "100%")
    assert done["written"] == MANY + OPEN - there
    keys = [record.key for record in records(world)]
    assert len(keys) == len(set(keys)) == MANY + OPEN
    assert import_ids(world) == {done["import_id"]}
    assert decided(world) == [done["import_id"]]


@pytest.mark.one_of("imports beside other changes")
def test_a_database_by_the_command_and_no_password_anywhere(
    world: Settings, tmp_path: Path
) -> None:
    with postgresql() as database:
        database.run(
            "CREATE TABLE list AS SELECT n::text AS positionid, 'client1' AS client, 'T' AS ticker,"
            " 1 AS amount, 'NASDAQ' AS exchange FROM generate_series(0, 20) AS n;"
        )
        shardpost = CommandLine(
            world.environ()
            | {"SHARDPOST_IMPORT_JDBC_USER": USER, "SHARDPOST_IMPORT_JDBC_PASSWORD": PASSWORD}
        )
        call = ("import", database.url, "--table", "list", "--apply", "--json")
        done = shardpost.run(*call)
        result = json.loads(done.stdout)
        assert (result["new"], result["equal"], result["written"]) == (1, OPEN, 1)
        assert PASSWORD not in done.stdout + done.stderr
        shardpost_without = CommandsHere(world.environ())
        assert "no password was provided" in shardpost_without.refused(*call[:-1], code=1)


def test_lists_that_cannot_be_read_are_said_in_one_line(
    shardpost: CommandLine, tmp_path: Path
) -> None:
    junk = tmp_path / "junk.parquet"
    junk.touch()
    assert "is not a complete Parquet file" in shardpost.refused("import", str(junk), code=1)
    few = tmp_path / "few.csv"
    few.write_text("PositionId,Client\n1,c\n")
    assert "Ticker is missing" in shardpost.refused("import", str(few), code=1)
    assert "no such file" in shardpost.refused("import", str(tmp_path / "none.csv"), code=2)


def test_a_list_that_is_cut_or_garbled_closes_nothing(
    world: Settings, shardpost: CommandLine, tmp_path: Path
) -> None:
    path = csv_of(tmp_path / "list.csv", [row(str(n), "client1") for n in range(OPEN)])
    whole = path.read_bytes()
    apply = ("import", str(path), "--apply", "--max-closed", "100%")
    path.write_bytes(whole.replace(b"\n7,client1", b'\n7,"client1'))
    assert "line 9: expected a closing quote" in shardpost.refused(*apply, code=1)
    path.write_bytes(whole[:-12])
    assert "line 21: expected a line break" in shardpost.refused(*apply, code=1)
    path.write_bytes(whole)
    (tmp_path / "_more.csv").write_bytes(whole)
    apply = ("import", str(tmp_path), *apply[2:])
    assert "_more.csv: names that begin with _" in shardpost.refused(*apply, code=2)
    assert records(world) == []
