"""The last line on a terminal: drawn on one only, erased by all that is written."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

# Quick, so that a test need not wait; what runs below it is given.
SCRIPT = """
import sys, time
from shardpost import logs
logs.AFTER_SECONDS = logs.EVERY_SECONDS = 0.01

def drawn():  # waits until the line was drawn
    while not logs.current_line()._is_drawn:
        time.sleep(0.005)

with logs.line_shown("compact"):
"""


def shown(*lines: str, stdout: int | None = None) -> str:
    """Run lines of Python below a progress line on a terminal; return all that it gets."""
    body = "".join(f"    {line}\n" for line in lines)
    return on_a_terminal([sys.executable, "-c", SCRIPT + body], stdout)


def on_a_terminal(
    command: Sequence[str],
    stdout: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=stdout or theirs, stderr=theirs, env=environ
    )
    os.close(theirs)
    got = b""
    while chunk := _read(ours):
        got += chunk
    os.close(ours)
    assert process.wait() == 0, got
    return got.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody has it open any more
        return b""


def left_on(terminal: str) -> list[str]:
    """Return the lines that a person sees in the end: a line that is erased begins anew."""
    return [re.sub(r".*\r\x1b\[K|.*\r(?!$)", "", line).strip("\r") for line in terminal.split("\n")]


def test_nothing_that_is_written_steers_the_terminal() -> None:
    got = shown(
        "logs.configure_logging()",
        "print('a\\x1b[2Jb\\x07')",
        "logs.log.warning('c\\x1b]0;d')",
    )
    printed, logged, _ = left_on(got)
    assert printed == "a\ufffd[2Jb\ufffd"
    assert logged.endswith(" WARNING c\ufffd]0;d")


def test_it_says_what_is_done_and_for_how_long_and_leaves_nothing() -> None:
    got = shown(
        "drawn()",
        "print('2026-11-26 10:00:00,000 INFO step: publish', file=sys.stderr)",
        "drawn()",
        "print('2026-11-26 10:00:00,000 INFO share-holders[0]: published 2', file=sys.stderr)",
        "drawn()",
        "print('starting Kafka on port 9092 …', file=sys.stderr)",
        "drawn()",
        "print('snapshot 1')",
    )
    drawn = re.findall(r"\r([^\r\x1b]+)\x1b\[K", got)
    assert list(dict.fromkeys(re.sub(r"\d+ s", "N s", one) for one in drawn)) == [
        "compact, N s",
        "compact: publish, N s",
        "compact: starting Kafka on port 9092, N s",
    ]
    assert left_on(got) == [
        "2026-11-26 10:00:00,000 INFO step: publish",
        "2026-11-26 10:00:00,000 INFO share-holders[0]: published 2",
        "starting Kafka on port 9092 …",
        "snapshot 1",
        "",
    ]


def test_a_result_that_another_program_reads_is_as_it_is_and_ends_the_line() -> None:
    reading, writing = os.pipe()
    got = shown(
        "drawn()",
        "print('{}')",
        "assert logs.current_line()._ended.is_set()",
        stdout=writing,
    )
    os.close(writing)
    assert os.fdopen(reading).read() == "{}\n"
    assert left_on(got) == [""]


def test_a_question_is_not_disturbed_and_the_line_goes_on_after_the_answer() -> None:
    got = shown(
        "drawn()",
        "sys.stderr.write('Why: '); sys.stderr.flush()",
        "assert logs.current_line()._is_held and not logs.current_line()._is_drawn",
        "logs.resume_line()",
        "drawn()",
    )
    assert "Why: \rcompact" in got


def test_it_fits_the_terminal_and_steers_nothing() -> None:
    got = shown(f"print('INFO step: {'x' * 300}\\x1b[31m'.replace('INFO', ' INFO'))", "drawn()")
    [drawn, *_] = re.findall(r"\r(compact: [^\r\x1b]+)\x1b\[K", got)
    assert len(drawn) < 80
    assert drawn.endswith(" s")


def test_the_job_of_a_command_writes_above_it(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    job = f"""
import pathlib, time
print(" INFO step: read", flush=True)
while not pathlib.Path({str(seen)!r}).exists():
    time.sleep(0.01)
"""
    got = shown(
        "import pathlib, threading",
        "from shardpost.spark.job import run_job",
        "def look():",
        "    while not logs.current_line()._doing: time.sleep(0.005)",
        "    drawn()",
        f"    pathlib.Path({str(seen)!r}).touch()",
        "threading.Thread(target=look).start()",
        f"job = [sys.executable, '-c', {job!r}]",
        "run_job(job, env={}, cwd=pathlib.Path())",
    )
    assert re.search(r"compact: read, \d+ s", got)
    assert left_on(got) == [" INFO step: read", ""]


def test_nothing_is_shown_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    script = SCRIPT + "    print(logs.current_line())\n"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert capfd.readouterr() == ("None\n", "")


def test_a_command_has_it_from_its_start_to_its_end(tmp_path: Path) -> None:
    command = """
import sys
from shardpost import cli
from shardpost import logs
logs.AFTER_SECONDS = 0.0
sys.argv[1:] = ["snapshots"]
cli.main()
"""
    environ = os.environ | {"SHARDPOST_HOME": str(tmp_path)}
    got = on_a_terminal([sys.executable, "-c", command], environ=environ)
    assert re.search(r"snapshots, \d+ s", got)
    assert left_on(got) == ["no snapshot yet: run `shardpost compact`", ""]
