"""What is printed of clients: a name from a record cannot steer a terminal."""

import json

import pytest

from shardpost.commands.email import _text
from shardpost.commands.week_counts import counts_text
from shardpost.settings import load
from shardpost.weekly_email.model.causes import Cause
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.shard_counts import ShardCounts
from shardpost.weekly_email.model.week_status import ShardStatus, status_document
from shardpost.weekly_email.send_result import exit_code_of

EVIL = "c\x1b[2J\u202e\n1"
HARMLESS = "c\ufffd[2J\ufffd\ufffd1"


def test_unknown_clients_are_listed_harmlessly_and_what_to_do_is_named() -> None:
    text = counts_text({"week": "2026-W47", "shards": [], "unknown": [EVIL, "client2"]})
    assert f"delivery unknown: {HARMLESS}, client2\n" in text
    assert "`shardpost emails resolve`" in text


def test_who_would_get_an_e_mail_is_listed_harmlessly() -> None:
    row = {"client": EVIL, "email": f"{EVIL}@x", "shard": 1, "positions": [EVIL]}
    assert list(_text(iter([json.dumps(row)]))) == [
        f"{HARMLESS} <{HARMLESS}@x>, shard 1: {HARMLESS}\n",
        "1 would get an e-mail; nothing was sent\n",
    ]


def test_what_stopped_a_shard_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    document = status_document(IsoWeek(2026, 47), [])
    assert exit_code_of(load({}), document, {2: f"1 clients stay open: {EVIL}: DATA"}) == 1
    assert capsys.readouterr().err == (
        f"shardpost: shard 2: 1 clients stay open: {HARMLESS}: DATA\n"
    )


def test_too_many_failed_clients_are_named_with_why_and_what_lists_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = Cause("550 no such user", 500, ("c1", "c2", "c3"))
    causes = {"failed": [refused, Cause(f"no contact{EVIL}", 2, (EVIL, "c9"))]}
    shards = [ShardStatus(ShardCounts(0, sent=2, failed=502), causes)]
    assert exit_code_of(load({}), status_document(IsoWeek(2026, 47), shards), {}) == 3
    said = capsys.readouterr().err
    assert said.startswith("shardpost: 2026-W47: 502 of 504 clients failed, more than SHARDPOST_")
    assert '500 with "550 no such user" (c1, c2, c3, …); 2 with "no contact' in said
    assert f"({HARMLESS}, c9)" in said
    assert "`shardpost emails --week 2026-W47 --state failed` lists them all" in said
    assert said.count("\n") == 1
