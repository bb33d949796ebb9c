"""A lock that a second holder finds."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from shardpost.locks import LockedError, exclusive
from shardpost.settings import Settings


def test_a_second_holder_is_told_who_has_it_and_a_later_one_gets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardpost.locks")
    settings = Settings(home=tmp_path)
    with exclusive(settings, "it", "the job"):
        for wait in (0.0, 0.3):
            with (
                pytest.raises(LockedError, match=r"the job is already running \(pid \d+, since 20"),
                exclusive(settings, "it", "the job", wait=wait),
            ):
                pass
    with exclusive(settings, "it", "the job"):
        pass
    [said] = [one.getMessage() for one in caplog.records if one.name == "shardpost.locks"]
    assert said.startswith("the job is already running (pid ")
    assert said.endswith("): waiting for it, up to 0.3 s")


FULL = """
import resource, signal, sys
from pathlib import Path
from shardpost.locks import LockedError, exclusive
from shardpost.settings import Settings
settings = Settings(home=Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with exclusive(settings, "it", "the job"):
    try:
        with exclusive(settings, "it", "the job"):
            print("twice")
    except LockedError as error:
        print(error)
"""


def test_it_is_held_on_a_full_disk_too(tmp_path: Path) -> None:
    args = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the job is already running (it holds ")
