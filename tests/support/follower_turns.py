"""The turns of a follower in this process: before each, something is done, or fails."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest

from shardpost.holders.inputs import Inputs
from shardpost.holders.model.compaction_request import CompactionRequest, Follow
from shardpost.holders.spark import follower
from shardpost.holders.spark.follower import Follower, Turn
from shardpost.installation import Installation
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from shardpost.spark.job import JobResult
from tests.support.installed import installed

LATER = datetime(2100, 1, 1, tzinfo=UTC)


class Turns:
    """Turns of a follower, each by `turn`: before each, `begins` does something or fails."""

    def __init__(self, turn: Turn, settings: Settings, *begins: Callable[[], object]) -> None:
        self._turn_of, self._settings, self._begins = turn, settings, list(begins)
        self.asked: list[CompactionRequest] = []

    def follow(
        self,
        monkeypatch: pytest.MonkeyPatch,
        first: CompactionRequest,
        every: float = 0.01,
        until: datetime = LATER,
    ) -> JobResult:
        """Follow until nothing is left to begin."""
        monkeypatch.setattr(follower, "is_asked_to_stop", lambda: not self._begins)
        return Follower(self._turn, installed(self._settings), Follow(until, every)).run(first)

    def _turn(self, installation: Installation, asked: CompactionRequest) -> JobResult:
        self.asked.append(replace(asked, follow=None))
        self._begins.pop(0)()
        return self._turn_of(installation, asked)


def always_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have topics end elsewhere at each look."""
    ends = ({TopicPartition("any", 0): end} for end in count(1))
    monkeypatch.setattr(Inputs, "other_ends", lambda *_: next(ends))


def nothing() -> None:
    """Do nothing before a turn."""
