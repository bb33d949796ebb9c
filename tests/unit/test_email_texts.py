"""What is printed of clients: a name from a record cannot steer a terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardpost.commands.email import _dry_run_document, counts_text
from shardpost.settings import load
from shardpost.weekly_email.dry_run_lists import DryRunList, text_lines
from shardpost.weekly_email.email_run import exit_code_of
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import (
    Cause,
    ShardCounts,
    ShardStatus,
    status_document,
)

EVIL = "c\x1b[2J\u202e\n1"
HARMLESS = "c\ufffd[2J\ufffd\ufffd1"


def test_unknown_clients_are_listed_harmlessly_and_what_to_do_is_named() -> None:
    text = counts_text({"week": "2026-W47", "shards": [], "unknown": [EVIL, "client2"]})
    assert f"delivery unknown: {HARMLESS}, client2\n" in text
    assert "`shardpost emails resolve`" in text


def dry_run_of(compared_with: str | None = None, **counts: int) -> dict[str, Any]:
    all_counts = dict.fromkeys(map(str, DryRunList), 0) | counts
    return {"week": "2026-W47", "compared_with": compared_with, "counts": all_counts}


def test_a_dry_run_names_everybody_under_a_heading_and_ends_with_the_counts(
    tmp_path: Path,
) -> None:
    for kind, client in ((DryRunList.SUPPRESSED, "c1"), (DryRunList.FAILED, "c2")):
        row = {"client": client, "shard": 1, "reason": "why"}
        (tmp_path / kind).write_text(json.dumps(row) + "\n")
    (tmp_path / DryRunList.NEW).write_text('"c3"\n"c4"\n')
    result = dry_run_of("2026-W46", suppressed=1, failed=1, new=2)
    assert "".join(text_lines(result, tmp_path)).splitlines() == [
        *("would be suppressed:", "c1, shard 1: why", "would fail:", "c2, shard 1: why"),
        *("new, compared with 2026-W46:", "c3", "c4"),
        "0 would get an e-mail, 1 would be suppressed, 1 would fail, 2 new and 0 left since"
        " 2026-W46; nothing was sent",
    ]


def test_a_log_has_the_first_of_a_list_and_what_lists_the_others(tmp_path: Path) -> None:
    (tmp_path / DryRunList.LEFT).write_text('"c1"\n"c2"\n"c3"\n')
    assert "".join(text_lines(dry_run_of("2026-W46", left=3), tmp_path, 1)).splitlines()[:3] == [
        "left, compared with 2026-W46:",
        "c1",
        "… and 2 more: `shardpost email --week 2026-W47 --dry-run` lists them",
    ]


def test_the_json_of_a_dry_run_is_one_document_with_all_lists(tmp_path: Path) -> None:
    for kind in DryRunList:
        (tmp_path / kind).write_text(f'"{kind} 1"\n"{kind} 2"\n')
    (tmp_path / DryRunList.FAILED).write_text("")
    result = dry_run_of("2026-W46")
    assert json.loads("".join(_dry_run_document(result, tmp_path))) == {
        **result,
        **{kind: [f"{kind} 1", f"{kind} 2"] for kind in map(str, DryRunList)},
        "failed": [],
    }


def test_who_would_get_an_e_mail_is_listed_harmlessly(tmp_path: Path) -> None:
    row = {"client": EVIL, "email": f"{EVIL}@x", "shard": 1, "positions": [EVIL]}
    (tmp_path / "recipients").write_text(json.dumps(row) + "\n")
    assert list(text_lines(dry_run_of(recipients=1), tmp_path)) == [
        f"{HARMLESS} <{HARMLESS}@x>, shard 1: {HARMLESS}\n",
        "1 would get an e-mail; nothing was sent\n",
    ]


def test_what_stopped_a_shard_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    document = status_document(IsoWeek(2026, 47), [])
    assert exit_code_of(load({}), document, {2: f"1 clients remain open: {EVIL}: DATA"}) == 1
    assert capsys.readouterr().err == (
        f"shardpost: shard 2: 1 clients remain open: {HARMLESS}: DATA\n"
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
