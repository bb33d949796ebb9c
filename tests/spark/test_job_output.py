"""What a job prints is passed on, but for lines that say nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shardpost.spark.job_process import NOISE, pass_on, run_job
from tests.support.job_process import wait_for

NOISY = "\n".join(
    [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        "WARNING: Using incubator modules: jdk.incubator.foreign",
        "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
        "  WARNING: Using incubator modules: jdk.incubator.vector",
        "shardpost: an error of ours",
        "the last line, without its end",
    ]
)


def run(code: str) -> int:
    return run_job(
        [sys.executable, "-c", code], env=dict(os.environ), cwd=Path.cwd(), preexec=lambda: None
    )


def test_exactly_the_known_lines_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"import sys; sys.stderr.write({NOISY!r}); sys.exit(3)") == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "WARNING: Using incubator modules: jdk.incubator.foreign",
        "  WARNING: Using incubator modules: jdk.incubator.vector",
        "shardpost: an error of ours",
        "the last line, without its end",
    ]


def test_standard_output_of_a_job_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("print('found')") == 0
    assert capfd.readouterr() == ("", "found\n")


def test_bytes_that_are_no_text_are_passed_on_as_they_are(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    run(r"import sys; sys.stdout.buffer.write(b'\xff\r\n')")
    assert capfdbinary.readouterr().err == b"\xff\r\n"


def test_a_job_is_read_to_its_end_though_nobody_takes_its_lines(tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"a line\n" * 100_000)
    reading, writing = os.pipe()
    os.close(reading)
    descriptor = os.open(source, os.O_RDONLY)
    pass_on(os.fdopen(descriptor, "rb", closefd=False), writing)
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    os.close(writing)


def test_the_lines_are_compared_without_their_ends() -> None:
    assert all(line == line.strip() for line in NOISE)


def test_ctrl_c_reaches_nobody_but_the_command_which_ends_the_job_in_silence(
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    job = f"import pathlib, signal; pathlib.Path({str(ready)!r}).touch(); signal.pause()"
    running = f"""
from pathlib import Path
from shardpost.spark.job_process import run_job
try:
    run_job([{sys.executable!r}, "-c", {job!r}], env={{}}, cwd=Path(), preexec=lambda: None)
except KeyboardInterrupt:
    print("interrupted")
"""
    command = subprocess.Popen(
        [sys.executable, "-c", running],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(ready.exists, "the job to begin", seconds=30)
    tree = psutil.Process(command.pid).children(recursive=True)
    os.killpg(command.pid, signal.SIGINT)
    assert command.communicate(timeout=30) == ("interrupted\n", "")
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert alive == []
