"""A driver in which a home grows old: many tiny compactions, a quarter of an hour apart.

By a clock of its own, that is; all else is the product's own code. Started as a job is, with the
topic, how many records the topic began with and has now, how many compactions are to be made, with
how many records each, and when the first one is made by that clock (seconds since 1970).
"""

import sys
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import islice
from unittest.mock import patch

from bench import kafka, stream
from shardpost.holders import inputs
from shardpost.holders.spark import compaction
from shardpost.holders.spark.compaction import compact
from shardpost.settings import Settings
from shardpost.spark import driver
from shardpost.spark.job import JobResult
from tests.support.installed import installed

APART = timedelta(minutes=15)


class Clock(datetime):
    """A `datetime` whose `now` is set."""

    at = datetime(1970, 1, 1, tzinfo=UTC)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Clock":
        """Return the time that was set."""
        found = cls.at.astimezone(tz)
        return cls.combine(found.date(), found.timetz())


def grow_old(
    settings: Settings, *, topic: str, size: int, there: int, runs: int, more: int, at: int
) -> JobResult:
    """Compact so many times, with new records each time."""
    Clock.at = datetime.fromtimestamp(at, UTC)
    records = stream.records(size, there, there + runs * more - size)
    done: JobResult = (0, {})
    with patch.object(inputs, "datetime", Clock), patch.object(compaction, "datetime", Clock):
        for _ in range(runs):
            kafka.produce(settings, topic, islice(records, more))
            done = compact(installed(settings))
            Clock.at += APART
    return done


if __name__ == "__main__":
    topic, *numbers = sys.argv[1:]
    size, there, runs, more, at = map(int, numbers)
    body = partial(grow_old, topic=topic, size=size, there=there, runs=runs, more=more, at=at)
    driver.run_body(body, result=None)
