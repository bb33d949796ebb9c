"""What holds for every command: wrong settings stop it before it does anything."""

import pytest

from shardpost import cli
from shardpost.settings import loading

WITH_ARGUMENTS = {
    "explain": [["client1"]],
    "topics": [["apply"], ["apply", "--dry-run"], ["audit"]],
    "import": [["list.csv"]],
    "tables": [["list"], ["maintain"]],
    "email": [["--week", "2026-W40"], ["--week", "2026-W40", "--dry-run"]],
    "emails": [["--week", "2026-W40"]],
    "erase": [["client1", "--why", "x"]],
    "letters": [["list"], ["show", "x"], ["sweep"], ["redrive"], ["discard"]],
    "runs": [["list"], ["dispatch"], ["release", "key", "--why", "x"], ["request", "x", "--dag=y"]],
    "rebuild": [["start"], ["diff"], ["swap"], ["rollback"], ["drop"], ["list"]],
    "alerts": [["test"]],
    "airflow": [["dags", "list"]],
}
# `doctor` names them too, among all else that is wrong (test_doctor.py).
STOPPED = [name for name in cli.COMMANDS if name != "doctor"]
CALLS = [[name, *more] for name in STOPPED for more in WITH_ARGUMENTS.get(name, [[]])]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_wrong_settings_stop_every_command_by_name(
    call: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "_of_this_process", loading._of_this_process.__wrapped__)
    monkeypatch.setenv("SHARDPOST_KAFKA__FOO", "1")
    monkeypatch.setenv("SHARDPOST_UNSUBSCRIBE_URL", "https://bank.com/{clinet}")
    assert cli.run(call) == 2
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    assert "SHARDPOST_KAFKA__FOO" in said
    assert "SHARDPOST_UNSUBSCRIBE_URL" in said


def test_help_is_printed_whatever_the_settings_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHARDPOST_KAFKA__FOO", "1")
    assert cli.run(["compact", "--help"]) == 0
    assert "--reconcile" in capsys.readouterr().out
