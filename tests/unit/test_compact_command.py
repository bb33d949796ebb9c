"""What `shardpost compact` prints, and its exit code, by what its job returned."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shardpost import cli
from shardpost.commands import positions

RESULT: dict[str, Any] = {
    "snapshot": {"snapshot": 4, "positions": 1_000_002, "holders": 2},
    "changed": True,
    "published": 2,
    "too_large": 0,
    "rejected": 0,
    "reconciled": 0,
    "uncertain": 0,
    "open_transactions": [],
}


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_list_that_is_too_large_is_told_and_the_exit_code_is_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    result = RESULT | {"too_large": 1}
    monkeypatch.setattr(positions, "submit", lambda *_: (3, result))
    assert cli.run(["compact", *arguments]) == 3
    out, err = capsys.readouterr()
    assert "1 too large for a record of share-holders" in err
    if arguments:
        assert json.loads(out) == result
    else:
        assert out.startswith("snapshot 4: 1000002 open positions, 2 holders, 2 records published")


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], result: dict[str, object]
) -> tuple[str, str]:
    monkeypatch.setattr(positions, "submit", lambda *_: (0, RESULT | result))
    assert cli.run(["compact"]) == 0
    out, err = capsys.readouterr()
    return out, err


def test_rejected_records_are_in_the_summary_with_where_to_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = printed(monkeypatch, capsys, {"rejected": 3})
    assert out.endswith("2 records published, 3 rejected (`shardpost letters list` has them)\n")
    assert err == "3 records rejected\n"


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (timedelta(minutes=-5), "snapshot 4 (nothing new): "),
        (timedelta(minutes=5), "snapshot 4 (made by another run meanwhile; nothing new since): "),
    ],
)
def test_a_snapshot_that_another_run_made_meanwhile_is_not_nothing_new(
    since: timedelta,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = RESULT["snapshot"] | {"committed_at": (datetime.now(UTC) + since).isoformat()}
    out, _ = printed(monkeypatch, capsys, {"changed": False, "snapshot": made})
    assert out.startswith(said)


@pytest.mark.parametrize(("code", "exit_code"), [(1, 1), (2, 2), (3, 3), (0, 1)])
def test_without_a_result_the_exit_code_is_the_jobs_and_never_0(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    exit_code: int,
) -> None:
    monkeypatch.setattr(positions, "submit", lambda *_: (code, None))
    assert cli.run(["compact"]) == exit_code
    assert capsys.readouterr().out == ""


def test_what_needs_a_person_is_told_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = {"topic": "positions", "partition": 1, "offset": 7, "since": None}
    result = RESULT | {"uncertain": 2, "open_transactions": [hidden]}
    monkeypatch.setattr(positions, "submit", lambda *_: (3, result))
    assert cli.run(["compact", "--reconcile"]) == 3
    err = capsys.readouterr().err
    assert "2 keys may have lost records" in err
    assert "open transaction at positions[1]@7: what is behind it is not read yet" in err
