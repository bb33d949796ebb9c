"""`shardpost demo`, as a newcomer runs it: real broker, Spark, Airflow and SMTP."""

import re
from pathlib import Path

import pytest

from tests.conftest import environ
from tests.e2e.conftest import processes_of
from tests.support.command_line import CommandLine
from tests.support.how_far import is_every


@pytest.mark.skipif(not is_every(), reason="`make demo` tells it, too")
@pytest.mark.parametrize("options", [(), ("--avro",)])
def test_the_demo_tells_the_story_and_leaves_nothing_behind(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = CommandLine(environ(home=tmp_path))("demo", *options)
    before, after = said.split("position 3 moves to client3")
    assert "client1: 1, 3" in before
    assert "client2: 4" in before
    assert "client3:" not in before.split("who holds US stock")[1].split("the e-mail")[0]
    assert "2 e-mails arrived" in before
    assert sorted(re.findall(r"  To: .*<(.*)>", before)) == [
        "client1@example.com",
        "client2@example.com",
    ]
    holders = after.split("who holds US stock")[1]
    assert "client1: 1\n" in holders
    assert "client3: 3\n" in holders
    assert "client2" not in holders
    assert list(tmp_path.glob("demo-*")) == []
    assert processes_of(tmp_path) == []
