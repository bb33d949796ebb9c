import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shardpost.embedded.daemons import stat_of
from shardpost.spark.job_process import job_folder
from tests.support.job_process import wait_for

HOLD = """
import os, subprocess, sys
from shardpost.spark.job_process import job_folder
with job_folder() as folder:
    (folder / "spilled").write_text("x")
    env = {"PATH": os.defpath, "TMPDIR": str(folder)}
    child = subprocess.Popen(["sleep", "600"], env=env, stdout=subprocess.DEVNULL)
    print(folder, child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def holding() -> tuple["subprocess.Popen[str]", Path, int]:
    """Start a job with a process in its folder; return it, the folder, and that process's id."""
    job = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    folder, child = job.stdout.readline().split()
    return job, Path(folder), int(child)


def test_a_folder_goes_with_its_job_also_when_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), job_folder() as folder:  # noqa: PT012
        (folder / "deep").mkdir()
        assert folder.parent == tmp_path
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_job_left_goes_with_the_next_once_nobody_works_in_it(tmp_path: Path) -> None:
    job, folder, child = holding()
    with job_folder():
        assert folder.exists()
    job.kill()
    job.communicate()
    with job_folder():
        assert folder.exists()  # its child lives
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: stat_of(child) is None, "its child's end")
    with job_folder():
        assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_not_ours_are_left(tmp_path: Path) -> None:
    (tmp_path / "shardpost-notes").mkdir()
    (tmp_path / "shardpost-file").write_text("x")
    with job_folder():
        pass
    assert len(list(tmp_path.iterdir())) == 2
