"""Completion in a real bash, with click's own script: quick, and without any heavy import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("pyspark", "airflow", "confluent_kafka", "deltalake", "pyarrow", "email_validator")
FOLDER = Path(sys.executable).parent
IN_BASH = """
eval "$(_SHARDPOST_COMPLETE=bash_source shardpost)"
COMP_WORDS=({words}); COMP_CWORD={at}
_shardpost_completion shardpost
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("shardpost comp", ["compact"]),
        ("shardpost letters re", ["redrive"]),
        ("shardpost tables maintain --d", ["--dry-run"]),
        ("shardpost letters list --state pa", ["parked"]),
        ("shardpost compact --rec", ["--reconcile"]),
        ("shardpost letters discard --b", ["--by"]),
    ],
)
def test_bash_completes_commands_options_and_their_values(words: str, expected: list[str]) -> None:
    script = IN_BASH.format(words=words, at=len(words.split()) - 1)
    environ = os.environ | {"PATH": f"{FOLDER}:{os.environ['PATH']}"}
    # Settings that are wrong are no reason not to complete.
    environ |= {"SHARDPOST_NONSENSE": "1"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("words", ["shardpost ", "shardpost letters redrive --", "shardpost comp"])
def test_completing_imports_nothing_heavy(words: str) -> None:
    program = (
        "import sys\nfrom shardpost import cli\n"
        "try:\n    cli.main()\n"
        f"finally:\n    print(*sorted({{*sys.modules}} & {{*{HEAVY}}}), file=sys.stderr)"
    )
    at = str(len(words.split()) - (not words.endswith(" ")))
    complete = {"_SHARDPOST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | complete,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (bool(done.stdout), done.stderr) == (True, "\n")
