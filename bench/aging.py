"""A driver in which a home grows old: many tiny compactions, a quarter of an hour apart.

By a clock of its own, that is; all else is the product's own code. Started as a job is, with the
topic, how many records the topic began with and has now, how many compactions are to be made, with
how many records each, and the number of seconds that the first one lies back.
"""

import sys
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from unittest.mock import patch

from bench import kafka, stream
from shardpost.holders import inputs
from shardpost.holders.compaction import compact
from shardpost.holders.spark import snapshot_build
from shardpost.settings import Settings
from shardpost.spark import job
from shardpost.spark.job_spec import JobResult

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
    settings: Settings, *, topic: str, size: int, there: int, runs: int, more: int, back: int
) -> JobResult:
    """Compact so many times, with new records each time."""
    Clock.at = datetime.now(UTC) - timedelta(seconds=back)
    done: JobResult = (0, {})
    with patch.object(inputs, "datetime", Clock), patch.object(snapshot_build, "datetime", Clock):
        for number in range(runs):
            first = there + number * more
            kafka.produce(settings, topic, stream.records(size, first, first + more - size))
            done = compact(settings)
            Clock.at += APART
    return done


if __name__ == "__main__":
    topic, *numbers = sys.argv[1:]
    size, there, runs, more, back = map(int, numbers)
    body = partial(grow_old, topic=topic, size=size, there=there, runs=runs, more=more, back=back)
    job.run(body, result=None)
