"""What a compaction is requested to do."""

from dataclasses import dataclass
from datetime import datetime

from shardpost.values.topic_names import INPUTS, TopicName


@dataclass(frozen=True)
class Follow:
    """A run that follows the inputs until then or a stop, one turn in `every` seconds at most."""

    until: datetime
    every: float = 1.0

    def __str__(self) -> str:
        return f"until {self.until:%Y-%m-%d %H:%M:%S} UTC, every {self.every:g} s"


@dataclass(frozen=True)
class CompactionRequest:
    """One run; `reconcile`: what the inputs do not hold any more is closed.

    With `follow` the run follows the inputs, or is a turn of one that does; what else is asked for
    counts for its first turn.

    A person says that another country than the last one is meant (`country_changed`), or another
    SHARDPOST_INPUTS (`inputs_changed`), that so many are gone (`accept_drop`), or that this
    installation is to own the topics from now on (`take_over`).
    """

    reconcile: bool = False
    country_changed: bool = False
    inputs_changed: bool = False
    accept_drop: bool = False
    take_over: bool = False
    follow: Follow | None = None


@dataclass(frozen=True)
class CheckRequest:
    """Of which inputs some records, the newest, are to be decoded, and how many of each."""

    topics: tuple[TopicName, ...] = INPUTS
    sample: int = 100
