"""`scripts/setup`: what its steps say. Nothing is installed."""

import os
import subprocess
from itertools import islice
from pathlib import Path

from shardpost.checkout import CHECKOUT

STEPS = (CHECKOUT / "scripts" / "setup").read_text().removesuffix('main "$@"\n')


def test_a_step_that_says_nothing_gives_signs_of_life_until_it_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "end")
    script = (
        f'{STEPS}\nlog={tmp_path}/log quiet_seconds=0\nrun "a step" cat {tmp_path}/end && say done'
    )
    with subprocess.Popen(
        ["bash", "-c", script, CHECKOUT / "scripts" / "setup"],
        stdout=subprocess.PIPE,
        text=True,
    ) as done:
        assert done.stdout
        for _ in range(2):
            assert "setup: a step: still running after " in done.stdout.readline()
        with (tmp_path / "end").open("w") as step:
            step.write("2026-11-23 07:44:33,845 INFO step: read\n")
            step.flush()
            assert any(line.endswith(" s: step: read\n") for line in islice(done.stdout, 9))
            step.write("Prepared pyspark\n")
        assert done.stdout.read().endswith("setup: a step: prepared pyspark\nsetup: done\n")
    assert (tmp_path / "log").read_text().endswith("step: read\nPrepared pyspark\n")


def test_a_step_that_fails_is_no_success_of_what_reads_it(tmp_path: Path) -> None:
    script = f'{STEPS}\nlog={tmp_path}/log\nrun "a step" false || say failed'
    done = subprocess.run(
        ["bash", "-c", script, CHECKOUT / "scripts" / "setup"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "setup: failed\n"
