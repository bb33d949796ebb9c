"""Statuses of weeks that are kept in memory: who asks again waits only for what is new.

For the page, whose process goes on. A thread reads what is not known, while who asked waits for a
moment; what both say is what `delivery_status` says.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.topic_metadata import partition_counts, topic_ids
from shardpost.weekly_email.delivery_status import WeekStatus, audience_of
from shardpost.weekly_email.ledger_projection import last_offsets
from shardpost.weekly_email.limits import totals
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardStatus
from shardpost.weekly_email.week_state import WeekState
from shardpost.weekly_email.week_status import KnownWeek

log = logging.getLogger(__name__)

# Who asks for a page waits so long for a ledger that is being read.
WAIT_SECONDS = 0.25
# More than the weeks of a page, each with a few clients and reasons.
MOST_WEEKS = 200


class Totals(NamedTuple):
    """{week: {state: clients}} as far as they are known, whether some are being read.

    `problem` is why some cannot be read: then the counts are old, of `read_at` or before that.
    """

    counts: dict[str, dict[str, int]]
    is_reading: bool
    problem: str | None
    read_at: datetime | None


class KeptStatuses:
    """The statuses of weeks that were asked for, each of its audience and its last records."""

    def __init__(self) -> None:
        self._kept: dict[IsoWeek, tuple[object, list[ShardStatus]]] = {}
        self._lock = threading.Lock()
        self._reading: dict[tuple[IsoWeek, ...], threading.Thread] = {}
        self._problem: str | None = None
        self._read_at: datetime | None = None

    def by_shard(self, status: WeekStatus) -> list[ShardStatus]:
        """Return what `status.by_shard()` does."""
        return self._by_shard(status, _ends(status.installation, status.partitions))

    def is_read(self, status: WeekStatus) -> bool:
        """Tell whether `by_shard` is quick now; if not, it is being read meanwhile."""
        return not self._is_reading((status.week,), lambda: self.by_shard(status))

    def of_weeks(
        self, installation: Installation, weeks: Sequence[KnownWeek], now: datetime
    ) -> Totals:
        """Return the counts of weeks as far as they are known now; the rest is being read."""
        open_ = tuple(known.week for known in weeks if known.closed is None)
        is_reading = self._is_reading(open_, lambda: self._read(installation, open_, now))
        shards = {week: [one.counts for one in kept] for week, (_, kept) in [*self._kept.items()]}
        shards |= {known.week: known.closed.shards for known in weeks if known.closed is not None}
        counts = {str(week): totals(map(vars, counts)) for week, counts in shards.items()}
        return Totals(counts, is_reading, self._problem, self._read_at)

    def _is_reading(self, weeks: tuple[IsoWeek, ...], read: Callable[[], object]) -> bool:
        """Tell, after a moment, whether weeks are being read yet; begin with it if nobody does."""

        def work() -> None:
            try:
                read()
                self._problem = None
            except ShardpostError as error:
                log.warning("a ledger could not be read", exc_info=True)
                self._problem = str(error)
            except Exception as error:
                log.exception("a ledger could not be read")
                self._problem = f"unexpected {type(error).__name__}: {error}"
            finally:
                with self._lock:
                    del self._reading[weeks]

        with self._lock:
            thread = self._reading.get(weeks)
            if thread is None:
                thread = self._reading[weeks] = threading.Thread(target=work, daemon=True)
                thread.start()
        thread.join(WAIT_SECONDS)
        return thread.is_alive()

    def _read(self, installation: Installation, weeks: Sequence[IsoWeek], now: datetime) -> None:
        topic = installation.kafka.topic("weekly-emails")
        partitions = partition_counts(installation.kafka, [topic])[topic]
        ends = _ends(installation, partitions)
        for week in weeks:
            state = WeekState(installation, week)
            self._by_shard(WeekStatus(state, audience_of(state, now), partitions), ends)
        self._read_at = now

    def _by_shard(self, status: WeekStatus, ends: Callable[[IsoWeek], object]) -> list[ShardStatus]:
        of = (status.audience, ends(status.week))
        known, shards = self._kept.get(status.week, (None, []))
        if known != of:
            shards = status.by_shard()
            with self._lock:
                self._kept.pop(status.week, None)
                self._kept[status.week] = of, shards
                while len(self._kept) > MOST_WEEKS:
                    del self._kept[next(iter(self._kept))]
        return shards


def _ends(installation: Installation, partitions: int) -> Callable[[IsoWeek], object]:
    """Return what says where the ledger's topic has the last record of a week now, by shard."""
    topic = installation.kafka.topic("weekly-emails")
    topic_id = topic_ids(installation.kafka, [topic]).get(topic)
    shards = last_offsets(installation, partitions)
    return lambda week: (topic_id, *(shard.get(str(week)) for shard in shards))
