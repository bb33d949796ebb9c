"""holders, explain and snapshots: real Delta tables, the command line, no JVM."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shardpost import cli
from shardpost.delta import snapshots
from shardpost.delta.query import path_of
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.kafka.partitioning import partition_of
from shardpost.settings import Settings, load, loading
from tests.support.histories import SHARDS, START, Batch, close, country_of, put, write

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

# (exit code, standard output, standard error)
Answer = tuple[int, str, str]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("SHARDPOST_HOME", str(tmp_path))
    monkeypatch.setenv("SHARDPOST_SNAPSHOT_DAYS", "36500")
    loading._of_this_process.cache_clear()
    yield load()
    loading._of_this_process.cache_clear()


@pytest.fixture
def story(at: Settings) -> Settings:
    write(at, STORY)
    return at


@pytest.fixture
def ask(at: Settings, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def ask(*argv: str) -> Answer:
        code = cli.run(list(argv))
        out, err = capsys.readouterr()
        return code, out, err

    return ask


@pytest.fixture
def answer(story: Settings, ask: Callable[..., Answer]) -> Callable[..., object]:
    """Return what a command that ends well prints with --json."""

    def answer(*argv: str) -> object:
        code, out, err = ask(*argv, "--json")
        assert code == 0, err
        return json.loads(out)

    return answer


def test_holders_are_those_of_the_newest_snapshot(answer: Callable[..., object]) -> None:
    assert answer("holders") == {"client1": ["3", "4", "10"]}


def test_holders_of_an_older_snapshot_are_read_at_its_version(
    answer: Callable[..., object],
) -> None:
    assert answer("holders", "--snapshot", "1") == {"client1": ["1", "3", "10"], "client2": ["4"]}


def test_holders_as_of_a_time_are_those_of_the_records_before_it(
    answer: Callable[..., object],
) -> None:
    then = {"client1": ["1", "3", "10"], "client2": ["4"]}
    assert answer("holders", "--as-of", "2026-11-17") == then
    assert answer("holders", "--as-of", "2026-11-17T08:00:00+02:00") == then
    assert answer("holders", "--as-of", "2026-11-16T03:00") == {"client1": ["1"]}
    assert answer("holders", "client2", "--as-of", "2026-11-17") == {"client2": ["4"]}
    assert answer("holders", "--as-of", "2026-11-17T06:30", "--snapshot", "1") == then


def test_holders_of_one_client_or_one_shard_alone(answer: Callable[..., object]) -> None:
    both = {"client1": ["1", "3", "10"], "client2": ["4"]}
    assert partition_of("client1", SHARDS) == partition_of("client2", SHARDS) == 0
    assert answer("holders", "client2", "--snapshot", "1") == {"client2": ["4"]}
    for when in (["--snapshot", "1"], ["--as-of", "2026-11-17"]):
        assert answer("holders", "--shard", "0", *when) == both
        assert answer("holders", "--shard", "7", *when) == {}
        assert answer("holders", "client2", "--shard", "0", *when) == {"client2": ["4"]}
        assert answer("holders", "client2", "--shard", "7", *when) == {}


@pytest.mark.parametrize("client", ["client2", "client3", "nobody", "' OR '1'='1", "", "\\"])
def test_a_client_that_holds_nothing_is_an_empty_object(
    client: str, answer: Callable[..., object]
) -> None:
    assert answer("holders", client) == {}


def test_a_person_reads_a_table(story: Settings, ask: Callable[..., Answer]) -> None:
    assert ask("holders")[1] == "client   positions\nclient1  3, 4, 10\n"
    assert ask("holders", "client3") == (0, "client3 holds none\n", "")
    assert ask("holders", "--shard", "7") == (0, "nobody\n", "")


UNKNOWN = "client typo is unknown to snapshot 2: no record of it or its positions\n"


def test_an_unknown_client_is_told_from_one_that_holds_nothing(
    story: Settings, ask: Callable[..., Answer]
) -> None:
    assert ask("holders", "typo") == (0, "", UNKNOWN)
    assert ask("holders", "typo", "--json") == (0, "{}\n", UNKNOWN)
    assert ask("holders", "client2", "--json") == (0, "{}\n", "")
    said = "client1 is in shard 0, not in 7\n"
    assert ask("holders", "client1", "--shard", "7") == (0, "", said)


def test_a_time_that_the_snapshot_does_not_cover_is_said(
    story: Settings, ask: Callable[..., Answer]
) -> None:
    code, out, err = ask("holders", "--json", "--as-of", "2200-01-01")
    assert (code, json.loads(out)) == (0, json.loads(ask("holders", "--json")[1]))
    looked_at = snapshots.current(story).looked_at
    assert err.startswith(f"snapshot 2 has what the topics held at {looked_at:%Y-%m-%d %H:%M:%S} ")
    assert ask("holders", "--json", "--as-of", looked_at.isoformat())[2] == ""


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
    argv: list[str], code: int, said: str, story: Settings, ask: Callable[..., Answer]
) -> None:
    found, out, err = ask(*argv)
    assert (found, out) == (code, "")
    assert said in err


def test_before_the_first_snapshot_it_says_to_compact(ask: Callable[..., Answer]) -> None:
    code, out, err = ask("holders", "--json")
    assert (code, out) == (1, "")
    assert err.endswith("yet: run `shardpost compact`\n")
    assert ask("snapshots", "--json")[:2] == (0, "[]\n")


def test_a_snapshot_kept_no_longer_says_so_but_the_newest_is_kept(story: Settings) -> None:
    strict = story.model_copy(update={"snapshot_days": 1})
    later = START + timedelta(days=9)
    assert snapshots.get(strict, 2, now=later).number == 2
    said = "snapshot 1 of 2026-11-17 is no longer kept: SHARDPOST_SNAPSHOT_DAYS is 1"
    with pytest.raises(ShardpostError, match=said):
        snapshots.get(strict, 1, now=later)


def test_files_that_were_vacuumed_away_are_named_in_one_line(
    story: Settings, ask: Callable[..., Answer]
) -> None:
    for file in Path(path_of(story, SHARE_HOLDERS)).rglob("*.parquet"):
        file.unlink()
    code, out, err = ask("holders", "--snapshot", "1")
    assert (code, out) == (1, "")
    assert err.startswith("shardpost: a file of share_holders@1 in ")
    assert err.count("\n") == 1


def test_explain_names_the_records_that_put_and_took(answer: Callable[..., object]) -> None:
    found = answer("explain", "client2", "4")
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
    assert answer("explain", "client2", "--snapshot", "1") == found[:1]


def test_explain_says_why_a_position_does_not_count(
    story: Settings, ask: Callable[..., Answer]
) -> None:
    code, out, _ = ask("explain", "client1", "2")
    assert code == 0
    assert out.splitlines()[1].endswith("2026-11-16T02:00:00.000+00:00  exchange LON is in GB")


def test_explain_of_a_stranger_is_empty(story: Settings, ask: Callable[..., Answer]) -> None:
    assert ask("explain", "typo", "--json") == (0, "[]\n", UNKNOWN)
    said = "position typo is unknown to snapshot 2: no record of it\n"
    assert ask("explain", "client1", "typo") == (0, "", said)
    said = "no record that was read gave client1 position 5\n"
    assert ask("explain", "client1", "5") == (0, "", said)


def test_explain_has_no_bound_on_a_clients_positions_and_exchanges(
    at: Settings, ask: Callable[..., Answer]
) -> None:
    many = range(20_000)
    positions = [put(str(n), "client1", f"X{n}") for n in many]
    write(at, [Batch(positions, [country_of(f"X{n}", "US") for n in many])])
    code, out, _ = ask("explain", "client1", "--json")
    assert (code, len(json.loads(out))) == (0, len(many))


def test_snapshots_have_the_form_of_the_contract(answer: Callable[..., Any]) -> None:
    first, second = answer("snapshots")
    assert (first["snapshot"], second["snapshot"]) == (1, 2)
    assert set(first) == {
        *("snapshot", "committed_at", "looked_at", "end_offsets", "tables"),
        *("positions", "holders", "rejected"),
    }
    assert first["tables"]["share_holders"] == 1


def test_snapshots_are_a_table_for_a_person(story: Settings, ask: Callable[..., Answer]) -> None:
    lines = ask("snapshots")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["snapshot", "1", "2"]


@pytest.mark.parametrize(
    "argv",
    [["holders"], ["holders", "--as-of", "2026-11-17"], ["explain", "client1"], ["snapshots"]],
)
def test_a_process_of_its_own_ends_well_and_starts_neither_spark_nor_airflow(
    argv: list[str], story: Settings
) -> None:
    code = (
        "import sys; from shardpost.cli import run; code = run(sys.argv[1:]);"
        " heavy = {'pyspark', 'airflow', 'pandas', 'confluent_kafka'} & set(sys.modules);"
        " sys.exit(code or (f'imported {heavy}' if heavy else 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv, "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)
