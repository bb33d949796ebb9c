"""How a job is submitted: on loopback to this machine, and so that remote workers reach it."""

import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from shardpost.settings import Settings
from shardpost.spark.submit import job_environment, submit_command

LOCAL = ("local", "local[2]", "local[*]", "local-cluster[1,1,1024]")
REMOTE = ("spark://10.0.0.5:7077", "yarn", "k8s://https://10.0.0.5:6443")


def settings_with(master: str, home: Path) -> Settings:
    return Settings.model_validate({"home": home, "spark_master": master})


@pytest.mark.parametrize("master", LOCAL)
def test_with_a_local_master_everything_stays_on_loopback(master: str, tmp_path: Path) -> None:
    settings = settings_with(master, tmp_path)
    command = submit_command(settings, {"a": "b"})
    assert job_environment(settings)["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert {"a=b", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"} <= {
        *command
    }
    assert "--py-files" not in command


@pytest.mark.parametrize("own", [None, "10.0.0.7"])
@pytest.mark.parametrize("master", REMOTE)
def test_with_a_remote_master_the_driver_is_where_its_workers_reach_it(
    master: str, own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own:
        monkeypatch.setenv("SPARK_LOCAL_IP", own)
    else:
        monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    settings = settings_with(master, tmp_path)
    assert job_environment(settings).get("SPARK_LOCAL_IP") == own
    assert not [part for part in submit_command(settings, {"a": "b"}) if "127.0.0.1" in part]


def test_remote_workers_are_sent_the_package(tmp_path: Path) -> None:
    command = submit_command(settings_with(REMOTE[0], tmp_path), {"a": "b"})
    [sent] = [after for part, after in pairwise(command) if part == "--py-files"]
    assert "shardpost/holders/model/fields.py" in zipfile.ZipFile(sent).namelist()
