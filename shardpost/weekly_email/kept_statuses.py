"""Statuses of weeks that are kept in memory: who asks again waits only for what is new.

For the page, whose process goes on. A thread reads what is not known, while who asked waits for a
moment; what both say is what `delivery_status` says. The newest weeks are counted as soon as the
server starts, so that nobody waits for them.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from shardpost.errors import ShardpostError, said
from shardpost.installation import Installation
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.kafka.topic_metadata import partition_counts, topic_ids
from shardpost.weekly_email.delivery_status import WeekStatus, audience_of
from shardpost.weekly_email.ledger_projection import last_offsets
from shardpost.weekly_email.limits import totals
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardStatus
from shardpost.weekly_email.week_state import WeekState
from shardpost.weekly_email.week_status import KnownWeek, known_weeks

log = logging.getLogger(__name__)

# Who asks for a page waits so long for a ledger that is being read.
WAIT_SECONDS = 0.25
# More than the weeks of a page, each with a few clients and reasons.
MOST_WEEKS = 200
# Threads that read for pages; who comes then asks again.
MOST_READING = 2
# The newest weeks are those that somebody looks at first.
NEWEST_WEEKS = 4
# What fails at the start is tried again, after a pause that doubles up to the longest.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 600.0


class Totals(NamedTuple):
    """{week: {state: clients}} as far as they are known, and whether some are being read.

    `problems` says why the counts of a week cannot be read; those shown are old, of `read_at`.
    """

    counts: dict[str, dict[str, int]]
    is_reading: bool
    problems: dict[str, str]
    read_at: dict[str, datetime]


@dataclass
class Kept:
    """The last counts of a week, of which audience and records, when; and why none are newer.

    They are of `read_at`, when the count began; it was over at `ended_at`. Both are None before
    the first one.
    """

    of: object = None
    shards: Sequence[ShardStatus] = ()
    read_at: datetime | None = None
    ended_at: datetime | None = None
    problem: str | None = None

    def keep(self, of: object, shards: Sequence[ShardStatus], read_at: datetime) -> None:
        """Keep newer counts: only they end a problem."""
        self.shards, self.of, self.problem = shards, of, None
        self.read_at, self.ended_at = read_at, datetime.now(UTC)


class KeptStatuses:
    """The statuses of weeks that were asked for, each of its audience and its last records."""

    def __init__(self) -> None:
        self._kept: dict[IsoWeek, Kept] = {}
        self._lock = threading.Lock()
        self._reading: dict[tuple[IsoWeek, ...], threading.Thread] = {}

    def by_shard(self, status: WeekStatus) -> Sequence[ShardStatus]:
        """Return what `status.by_shard()` does."""
        self._count(status.installation, [status], datetime.now(UTC))
        found = self._of(status.week)
        if found.problem is not None:
            raise ShardpostError(found.problem)
        return found.shards

    def by_shard_soon(self, status: WeekStatus) -> Kept:
        """Return the same after a moment, or what is known if that takes longer or fails."""
        asked_at = datetime.now(UTC)
        for _ in range(2):  # what somebody else has begun to count may lack the newest records
            is_reading = self._is_reading((status.week,), lambda: self.by_shard(status))
            kept = replace(self._of(status.week))
            if is_reading or kept.problem or (kept.read_at and kept.read_at >= asked_at):
                break
        return kept

    def of_weeks(
        self, installation: Installation, weeks: Sequence[KnownWeek], now: datetime
    ) -> Totals:
        """Return the counts of weeks as far as they are known now; the rest is being read."""
        open_ = tuple(known.week for known in weeks if known.closed is None)
        is_reading = bool(open_) and self._is_reading(
            open_, lambda: self._read(installation, open_, now)
        )
        kept = {str(week): self._of(week) for week in open_}
        shards = {week: [one.counts for one in own.shards] for week, own in kept.items()}
        shards |= {str(one.week): one.closed.shards for one in weeks if one.closed is not None}
        return Totals(
            {week: totals(map(vars, counts)) for week, counts in shards.items() if counts},
            is_reading,
            {week: own.problem for week, own in kept.items() if own.problem},
            {week: own.read_at for week, own in kept.items() if own.read_at},
        )

    def begin(self, make: Callable[[], Installation]) -> None:
        """Count the newest weeks in a thread, which tries again until the ledger was read."""

        def is_read() -> bool:
            try:
                installation = make()
                newest = known_weeks(installation.tables)[:NEWEST_WEEKS]
                if weeks := [known.week for known in newest if known.closed is None]:
                    self._read(installation, weeks, datetime.now(UTC))
            except BaseException:
                log.exception("the weekly e-mails cannot be counted")
                return False
            return True

        def work() -> None:
            pause = PAUSE_SECONDS
            while not is_read():
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

        threading.Thread(target=work, daemon=True).start()

    def _of(self, week: IsoWeek) -> Kept:
        with self._lock:
            own = self._kept[week] = self._kept.pop(week, Kept())
            while len(self._kept) > MOST_WEEKS:
                del self._kept[next(iter(self._kept))]
            return own

    def _is_reading(self, weeks: tuple[IsoWeek, ...], read: Callable[[], object]) -> bool:
        """Tell, after a moment, whether weeks are being read yet; begin with it if nobody does."""

        def work() -> None:
            try:
                read()
            except BaseException as error:  # also the panic of a library in another language
                for week in weeks:
                    self._fail(week, error)
            finally:
                with self._lock:
                    del self._reading[weeks]

        with self._lock:
            thread = self._reading.get(weeks)
            if thread is None:
                if len(self._reading) >= MOST_READING:
                    return True
                thread = threading.Thread(target=work, daemon=True)
                thread.start()  # which removes the entry, once this lock is free
                self._reading[weeks] = thread
        thread.join(WAIT_SECONDS)
        return thread.is_alive()

    def _read(self, installation: Installation, weeks: Sequence[IsoWeek], now: datetime) -> None:
        topic = installation.kafka.topic("weekly-emails")
        partitions = partition_counts(installation.kafka, [topic])[topic]
        statuses = []
        for week in weeks:
            state = WeekState(installation, week)
            try:
                statuses.append(WeekStatus(state, audience_of(state, now), partitions))
            except Exception as error:
                self._fail(week, error)
        self._count(installation, statuses, now)

    def _count(
        self, installation: Installation, weeks: Sequence[WeekStatus], now: datetime
    ) -> None:
        """Count the weeks that have changed; what prevents it for one is no problem of others."""
        partitions = max((status.partitions for status in weeks), default=0)
        topic = installation.kafka.topic("weekly-emails")
        topic_id = topic_ids(installation.kafka, [topic]).get(topic)
        last = last_offsets(installation, partitions)
        for status in weeks:
            ends = [shard.get(str(status.week)) for shard in last]
            own, of = self._of(status.week), (status.audience, topic_id, ends)
            try:
                own.keep(of, own.shards if own.of == of else status.by_shard(), now)
            except KafkaUnreachableError:  # each week would wait for it
                raise
            except Exception as error:
                self._fail(status.week, error)

    def _fail(self, week: IsoWeek, error: BaseException) -> None:
        log.warning("%s: cannot be counted", week, exc_info=True)
        self._of(week).problem = said(error)
