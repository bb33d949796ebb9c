"""A lock that a second holder finds."""

import logging
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
