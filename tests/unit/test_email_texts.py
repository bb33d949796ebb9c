"""What is printed of clients: a name from a record cannot steer a terminal."""

import json

import pytest

from shardpost.commands.email import _text
from shardpost.commands.week_counts import counts_text
from shardpost.weekly_email.model.shard_counts import ShardReport
from shardpost.weekly_email.send import _exit_code

EVIL = "c\x1b[2J\u202e\n1"
HARMLESS = "c\ufffd[2J\ufffd\ufffd1"


def test_unknown_clients_are_listed_harmlessly_and_what_to_do_is_named() -> None:
    text = counts_text({"shards": [], "unknown": [EVIL, "client2"]})
    assert f"delivery unknown: {HARMLESS}, client2\n" in text
    assert "`shardpost emails resolve`" in text


def test_who_would_get_an_e_mail_is_listed_harmlessly() -> None:
    row = {"client": EVIL, "email": f"{EVIL}@x", "shard": 1, "positions": [EVIL]}
    assert list(_text(iter([json.dumps(row)]))) == [
        f"{HARMLESS} <{HARMLESS}@x>, shard 1: {HARMLESS}\n",
        "1 would get an e-mail; nothing was sent\n",
    ]


def test_what_stopped_a_shard_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code([ShardReport(2, error=f"1 clients stay open: {EVIL}: DATA")], []) == 1
    assert capsys.readouterr().err == (
        f"shardpost: shard 2: 1 clients stay open: {HARMLESS}: DATA\n"
    )
