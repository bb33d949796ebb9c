"""`shardpost rebuild …`, as a person types it: output, JSON, exit codes."""

import pytest
from pyspark.sql import SparkSession

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.command_line import CommandLine
from tests.support.jobs_here import CommandsHere
from tests.support.reference import position, produce


@pytest.fixture
def shardpost(settings: Settings, spark: SparkSession) -> CommandLine:
    del spark  # the jobs find it
    return CommandsHere(settings.environ())


@pytest.mark.timeout(600)
def test_another_country_from_start_to_drop(settings: Settings, shardpost: CommandLine) -> None:
    apply_topics(settings)
    assert shardpost("rebuild", "list") == "no rebuild yet\n"
    assert "shardpost compact" in shardpost.refused("rebuild", "diff", code=1)
    produce(settings, [position("1", "a", "NASDAQ"), position("2", "b", "LON")])
    shardpost("compact")
    advice = "start one with `shardpost rebuild start`"
    assert advice in shardpost.refused("rebuild", "swap", code=1)
    options = ("--country", "GB", "--tables", "share_holders")
    form = shardpost.json("rebuild", "start", *options)
    assert (form["state"], form["country"]) == ("ready", "GB")
    assert form["tables"] == {"share_holders": "share_holders.2"}
    other = shardpost.refused("rebuild", "start", "--country", "FR", code=1)
    assert "rebuild 2 (of share_holders, country GB, from history) is ready" in other
    form = shardpost.json("rebuild", "diff", code=3)
    assert form["positions"] == {"equal": 2, "changed": 0, "only_old": 0, "only_new": 0}
    assert form["holders"] == {"equal": 0, "changed": 0, "only_old": 1, "only_new": 1}
    refused = shardpost.run("rebuild", "swap", "--max-changed", "1%")
    assert refused.returncode == 3
    assert "100.00% differ, more than 1.00%: nothing was swapped" in refused.stderr
    assert shardpost.json("holders") == {"a": ["1"]}
    swapped = shardpost("rebuild", "swap", "--why", "we moved")
    assert "snapshot 2: 2 lists differ, 2 records published" in swapped
    assert shardpost.json("holders") == {"b": ["2"]}
    assert shardpost.json("holders", "--snapshot", "1") == {"a": ["1"]}
    shardpost("rebuild", "rollback")
    assert shardpost.json("holders") == {"a": ["1"]}
    [listed] = shardpost.json("rebuild", "list")
    assert (listed["state"], listed["behind"]) == ("rolled back", 1)
    shardpost("rebuild", "drop")
    assert "rebuild 2 is dropped" in shardpost("rebuild", "list")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "--tables", "letters"], "letters: expected a table: position_events, "),
        (["start", "--from", "thin air"], "'thin air'"),
        (["start", "--country", " "], "--country: expected a code, found none"),
        (["swap", "--max-changed", "much"], "'much': expected a percentage such as 5%"),
        (["swap", "--by", ""], "--by: expected a name, found none"),
    ],
)
def test_bad_usage_is_said_before_anything_is_done(
    shardpost: CommandLine, arguments: list[str], said: str
) -> None:
    done = shardpost.run("rebuild", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
