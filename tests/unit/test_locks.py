"""A lock that a second holder finds."""

from pathlib import Path

import pytest

from shardpost.adapters.locks import LockedError, exclusive


def test_a_second_holder_is_told_who_has_it_and_a_later_one_gets_it(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "it"
    with exclusive(lock, "the job"):
        for wait in (0.0, 0.3):
            with (
                pytest.raises(LockedError, match=r"the job is already running \(pid \d+, since 20"),
                exclusive(lock, "the job", wait=wait),
            ):
                pass
    with exclusive(lock, "the job"):
        pass
