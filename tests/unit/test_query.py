"""The public module `shardpost.tables`, and holders, explain and snapshots; real Delta tables."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shardpost import tables
from shardpost.checkout import CHECKOUT
from shardpost.delta import snapshots
from shardpost.errors import ShardpostError, UsageError
from shardpost.holders.model.view_tables import REJECTED_RECORDS, SHARE_HOLDERS
from shardpost.kafka.records import partition_of
from shardpost.settings import Settings
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.histories import (
    SHARDS,
    START,
    Batch,
    close,
    country_of,
    overwrite,
    put,
    reject,
    rejected_row,
    snapshot,
    write,
)
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.object_store import folder_of

HOUR = timedelta(hours=1)
STORY = [
    Batch(
        [
            put("1", "client1", "NASDAQ", 1),
            put("2", "client1", "LON", 2),
            put("10", "client1", "NASDAQ", 3),
            put("3", "client1", "NASDAQ", 3),
            put("4", "client2", "NASDAQ", 4),
            put("5", "client3", "LON", 5),
        ],
        [country_of("NASDAQ", "US"), country_of("LON", "GB")],
    ),
    Batch([close("1", 30), put("4", "client1", "NASDAQ", 31)]),
]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Give a home that is only read."""
    settings = Settings(home=tmp_path_factory.mktemp("story"), snapshot_days=36_500)
    write(settings, STORY)
    return settings


@pytest.fixture
def shardpost(story: Settings) -> CommandLine:
    return CommandLineHere(story.environ())


def test_holders_are_those_of_the_newest_snapshot_or_of_an_older_one(
    shardpost: CommandLine,
) -> None:
    assert shardpost.json("holders") == {"client1": ["3", "4", "10"]}
    older = {"client1": ["1", "3", "10"], "client2": ["4"]}
    assert shardpost.json("holders", "--snapshot", "1") == older


def test_holders_as_of_a_time_are_those_of_the_records_before_it(shardpost: CommandLine) -> None:
    then = {"client1": ["1", "3", "10"], "client2": ["4"]}
    assert shardpost.json("holders", "--as-of", "2026-11-17") == then
    assert shardpost.json("holders", "--as-of", "2026-11-17T08:00:00+02:00") == then
    assert shardpost.json("holders", "--as-of", "2026-11-16T03:00") == {"client1": ["1"]}
    assert shardpost.json("holders", "client2", "--as-of", "2026-11-17") == {"client2": ["4"]}
    assert shardpost.json("holders", "--as-of", "2026-11-17T06:30", "--snapshot", "1") == then


def test_holders_of_one_client_or_one_shard_alone(shardpost: CommandLine) -> None:
    both = {"client1": ["1", "3", "10"], "client2": ["4"]}
    assert partition_of("client1", SHARDS) == partition_of("client2", SHARDS) == 0
    assert shardpost.json("holders", "client2", "--snapshot", "1") == {"client2": ["4"]}
    for when in (["--snapshot", "1"], ["--as-of", "2026-11-17"]):
        assert shardpost.json("holders", "--shard", "0", *when) == both
        assert shardpost.json("holders", "--shard", "7", *when) == {}
        assert shardpost.json("holders", "client2", "--shard", "0", *when) == {"client2": ["4"]}
        assert shardpost.json("holders", "client2", "--shard", "7", *when) == {}


@pytest.mark.parametrize("client", ["client2", "client3", "nobody", "' OR '1'='1", "\\"])
def test_a_client_that_holds_nothing_is_an_empty_object(
    client: str, shardpost: CommandLine
) -> None:
    assert shardpost.json("holders", client) == {}


def test_a_person_reads_a_table(shardpost: CommandLine) -> None:
    assert shardpost("holders") == "client   positions\nclient1  3, 4, 10\n"
    assert shardpost.answer("holders", "client3") == (0, "client3 holds none\n", "")
    assert shardpost.answer("holders", "--shard", "7") == (0, "nobody\n", "")
    lines = shardpost("snapshots").splitlines()
    assert [line.split()[0] for line in lines] == ["snapshot", "1", "2"]


UNKNOWN = "client typo is unknown to snapshot 2: no record of it or its positions\n"


def test_an_unknown_client_is_told_from_one_that_holds_nothing(shardpost: CommandLine) -> None:
    assert shardpost.answer("holders", "typo") == (0, "", UNKNOWN)
    assert shardpost.answer("holders", "typo", "--json") == (0, "{}\n", UNKNOWN)
    assert shardpost.answer("holders", "client2", "--json") == (0, "{}\n", "")
    said = "client1 is in shard 0, not in 7\n"
    assert shardpost.answer("holders", "client1", "--shard", "7") == (0, "", said)


def test_a_time_that_the_snapshot_does_not_cover_is_said(
    story: Settings, shardpost: CommandLine
) -> None:
    code, out, err = shardpost.answer("holders", "--json", "--as-of", "2200-01-01")
    assert (code, json.loads(out)) == (0, shardpost.json("holders"))
    looked_at = snapshots.current(installed(story).tables).looked_at
    assert err.startswith(f"snapshot 2 has the records up to {looked_at:%Y-%m-%d %H:%M:%S} ")
    assert shardpost.answer("holders", "--json", "--as-of", looked_at.isoformat())[2] == ""


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["holders", "--shard", "8"], 2, "shard 8: expected 0 to 7"),
        (["holders", "--shard", "-1"], 2, "shard -1: expected 0 to 7"),
        (["holders", "--as-of", "yesterday"], 2, "time 'yesterday': expected ISO 8601"),
        (["holders", "--as-of", "9999-12-31T23:00:00-05:00"], 2, "expected ISO 8601"),
        (["holders", "--as-of", "2400-01-01"], 2, "expected a time from 1678 to 2261"),
        (["holders", "a\udcff"], 2, "expected UTF-8"),
        (["holders", "--snapshot", "x"], 2, "'x' is not a valid integer"),
        (["holders", "--snapshot", "7"], 1, "no snapshot 7: there are 1 to 2"),
        (["explain", "client1", "--snapshot", "0"], 1, "no snapshot 0: there are 1 to 2"),
        (["explain"], 2, "Missing argument 'CLIENT'"),
    ],
)
def test_what_cannot_be_asked_is_said_with_the_exit_code(
    argv: list[str], code: int, said: str, shardpost: CommandLine
) -> None:
    found, out, err = shardpost.answer(*argv)
    assert (found, out, said in err) == (code, "", True), err


def test_before_the_first_snapshot_it_says_to_compact(settings: Settings) -> None:
    shardpost = CommandLineHere(settings.environ())
    assert shardpost.refused("holders", "--json", code=1).endswith("yet: run `shardpost compact`")
    assert shardpost.json("snapshots") == []


def test_a_snapshot_kept_no_longer_says_so_but_the_newest_is_kept(story: Settings) -> None:
    strict = story.model_copy(update={"snapshot_days": 1})
    later = START + timedelta(days=9)
    assert snapshots.get(installed(strict).tables, 2, now=later).number == 2
    said = "snapshot 1 of 2026-11-17 is no longer kept: SHARDPOST_SNAPSHOT_DAYS is 1"
    with pytest.raises(ShardpostError, match=said):
        snapshots.get(installed(strict).tables, 1, now=later)


def test_files_that_were_vacuumed_away_are_named_in_one_line(tmp_path: Path) -> None:
    at = Settings(home=tmp_path, snapshot_days=36_500)
    write(at, STORY)
    for file in folder_of(at, SHARE_HOLDERS).rglob("*.parquet"):
        file.unlink()
    code, out, err = CommandLineHere(at.environ()).answer("holders", "--snapshot", "1")
    assert (code, out) == (1, "")
    assert err.startswith("shardpost: a file of share_holders@1 in ")
    assert err.count("\n") == 1


def test_explain_names_the_records_that_put_and_took(shardpost: CommandLine) -> None:
    found = shardpost.json("explain", "client2", "4")
    assert found == [
        {
            "position": "4",
            "change": "put",
            "topic": "positions",
            "partition": 1,
            "offset": 4,
            "timestamp": "2026-11-16T04:00:00+00:00",
        },
        {
            "position": "4",
            "change": "took",
            "topic": "positions",
            "partition": 1,
            "offset": 7,
            "timestamp": "2026-11-17T07:00:00+00:00",
        },
    ]
    assert shardpost.json("explain", "client2", "--snapshot", "1") == found[:1]


def test_explain_says_why_a_position_does_not_count(shardpost: CommandLine) -> None:
    out = shardpost("explain", "client1", "2")
    assert out.splitlines()[1].endswith("2026-11-16T02:00:00.000+00:00  exchange LON is in GB")


def test_explain_of_a_stranger_is_empty(shardpost: CommandLine) -> None:
    assert shardpost.answer("explain", "typo", "--json") == (0, "[]\n", UNKNOWN)
    said = "position typo is unknown to snapshot 2: no record of it\n"
    assert shardpost.answer("explain", "client1", "typo") == (0, "", said)
    said = "no record read so far gave client1 position 5\n"
    assert shardpost.answer("explain", "client1", "5") == (0, "", said)


def test_explain_says_of_a_position_that_all_of_its_records_were_rejected(
    settings: Settings,
) -> None:
    good = put("1", "client1", "NASDAQ")
    write(settings, [Batch([good, reject("BAD1")], [country_of("NASDAQ", "US")])])
    shardpost = CommandLineHere(settings.environ())
    said = "position BAD1 is unknown to snapshot 1: all of its records were rejected\n"
    assert shardpost.answer("explain", "client1", "BAD1") == (0, "", said)
    unknown = "client acme is unknown to snapshot 1: no record of it or its positions; "
    assert shardpost.answer("explain", "acme", "BAD1") == (0, "", unknown + said)


def test_explain_has_no_bound_on_a_clients_positions_and_exchanges(settings: Settings) -> None:
    many = range(up_to(20_000, quick=4_000))
    positions = [put(str(n), "client1", f"X{n}") for n in many]
    write(settings, [Batch(positions, [country_of(f"X{n}", "US") for n in many])])
    found = CommandLineHere(settings.environ()).json("explain", "client1")
    assert len(found) == len(many)


def test_snapshots_have_the_form_of_the_contract(shardpost: CommandLine) -> None:
    first, second = shardpost.json("snapshots")
    assert (first["snapshot"], second["snapshot"]) == (1, 2)
    assert set(first) == {
        *("snapshot", "committed_at", "looked_at", "end_offsets", "tables", "country", "holds"),
        *("positions", "holders", "rejected", "unknown_exchanges"),
    }
    assert first["country"] == "US"
    assert first["tables"]["share_holders"] == 1


# Runs one command after the other; ends at the first that fails, or has imported what is slow.
COMMANDS = """
import json, sys
from shardpost.cli import run
for argv in json.loads(sys.argv[1]):
    code = run([*argv, "--json"])
    heavy = {"pyspark", "airflow", "pandas", "confluent_kafka"} & {*sys.modules}
    if code or heavy:
        sys.exit(f"{argv} ended with {code}, imported {heavy}")
    print("\\0")
"""


def test_a_process_of_its_own_ends_well_and_starts_neither_spark_nor_airflow(
    story: Settings,
) -> None:
    as_of = ["holders", "--as-of", "2026-11-17"]
    sql = ["sql", "SELECT * FROM positions"]
    commands = json.dumps([["holders"], as_of, ["explain", "client1"], ["snapshots"], sql])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, commands],
        env=os.environ | story.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(map(json.loads, done.stdout.split("\0")[:5]))


COUNTRIES = [country_of("NASDAQ", "US"), country_of("LON", "GB")]
BATCHES = [
    Batch([put("1", "client1", "NASDAQ", 1), put("2", "client2", "NASDAQ", 2)], COUNTRIES),
    Batch([close("1", 30), put("3", "client2", "NASDAQ", 31)]),
]
REASON = 'expected a number for Amount, found "1,5"'


@pytest.fixture
def with_rejected(tmp_path: Path) -> Settings:
    """Give tables with two snapshots of holders, and a third with rejected records."""
    settings = Settings.model_validate({"home": tmp_path, "snapshot_days": 36500})
    write(settings, BATCHES)
    rows = [rejected("positions", 9), rejected("clients", 1), rejected("positions", 2)]
    versions = dict(tables.snapshot(settings=settings).tables)
    versions[REJECTED_RECORDS.name] = overwrite(settings, REJECTED_RECORDS, rows)
    snapshots.commit(installed(settings).tables, snapshot(3, versions))
    return settings


def rejected(topic: str, offset: int) -> dict[str, object]:
    return rejected_row(topic, offset, 3, value=b"{}", reason=REASON)


def test_a_snapshot_is_the_newest_or_the_one_asked_for(with_rejected: Settings) -> None:
    assert [one.number for one in tables.snapshots(with_rejected)] == [1, 2, 3]
    assert tables.snapshot(settings=with_rejected).number == 3
    assert tables.snapshot(1, with_rejected) == tables.snapshots(with_rejected)[0]
    with pytest.raises(ShardpostError, match="no snapshot 4: there are 1 to 3"):
        tables.snapshot(4, with_rejected)


def test_the_snapshots_are_those_that_can_be_asked(
    settings: Settings,
) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    two_each = [hour - ago * HOUR + n * HOUR / 4 for ago in (60, 47, 24) for n in (1, 2)]
    for number, at in enumerate([*two_each, hour], 1):
        snapshots.commit(installed(settings).tables, replace(snapshot(number, {}), committed_at=at))
    found = [one.number for one in tables.snapshots(settings)]
    assert found == [2, 3, 4, 5, 6, 7]
    assert [tables.snapshot(number, settings).number for number in found] == found
    with pytest.raises(ShardpostError, match="no longer kept"):
        tables.snapshot(1, settings)
    shown = CommandLineHere(settings.environ())("snapshots").splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [[str(number), "US"] for number in found]


def test_a_time_without_a_zone_is_refused(with_rejected: Settings) -> None:
    naive = datetime(2026, 11, 17)  # noqa: DTZ001 - that is the test
    with pytest.raises(UsageError, match="expected a time with its zone"):
        tables.holders(as_of=naive, settings=with_rejected)


def test_rejected_records_are_an_arrow_table_in_the_order_of_their_coordinates(
    with_rejected: Settings,
) -> None:
    found = tables.rejected(settings=with_rejected)
    assert found["topic"].to_pylist() == ["clients", "positions", "positions"]
    assert found["offset"].to_pylist() == [1, 2, 9]
    assert found["reason"].to_pylist() == [REASON] * 3
    assert found["value"].to_pylist() == [b"{}"] * 3


def test_before_the_first_snapshot_it_says_to_compact_of_python_too(settings: Settings) -> None:
    assert tables.snapshots(settings) == []
    for read in (tables.snapshot, tables.holders, tables.rejected):
        with pytest.raises(ShardpostError, match="yet: run `shardpost compact`"):
            read(settings=settings)


def test_the_snippet_of_the_documentation_prints_the_rejected_records(
    with_rejected: Settings,
) -> None:
    page = (CHECKOUT / "docs" / "compaction.md").read_text()
    [snippet] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", snippet],
        env={**with_rejected.environ(), "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        f"{coordinates} {REASON} b'{{}}'"
        for coordinates in ("clients[0]@1", "positions[0]@2", "positions[0]@9")
    ]
