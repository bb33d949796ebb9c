"""A compaction that stays: turn after turn by one warm driver, until its time limit is reached.

Each turn is a whole compaction, with its own lock, commit, publishing and letters; between two of
them nothing is held. A turn begins when the last one is over and the topics have something new,
at most every second. With nothing new nothing is written but, once a minute, that they were looked
at.

What may pass is waited for: a Kafka that is silent, a run that holds the lock, a turn that another
run fenced, or was ahead of. What a person has to see ends it, as it ends any compaction, and so
does what fails again and again.
"""

import gc
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from shardpost import checkout
from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import COULD_NOT, ShardpostError
from shardpost.holders import following
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.holders.following import NOTED_EVERY, FollowerHeartbeat
from shardpost.holders.inputs import Arrivals, Inputs, mappings_of
from shardpost.holders.model.compaction_request import CompactionRequest, Follow
from shardpost.holders.model.topic_state import Unread
from shardpost.holders.spark.compaction import build_snapshot
from shardpost.installation import Installation
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.locks import refused_runs
from shardpost.locks.locks import LockedError
from shardpost.logs import step
from shardpost.spark import driver
from shardpost.spark.job import FOLLOWING, JobResult, is_asked_to_stop
from shardpost.spark.submit import is_local
from shardpost.wording import counted, duration_text

log = logging.getLogger(__name__)

Turn = Callable[[Installation, CompactionRequest], JobResult]

# So many turns in a row may fail, each after a longer pause, before the job does.
MOST_FAILURES = 5
LONGEST_PAUSE = 30.0
# Seconds between two looks at who else follows and at the code, and at whether it is to stop.
SUCCESSOR_EVERY = 5.0
STOP_EVERY = 0.5


class Follower:
    """One compaction that stays; `turn` compacts once."""

    def __init__(self, turn: Turn, installation: Installation, follow: Follow) -> None:
        self._turn, self._installation, self._follow = turn, installation, follow
        self._own = following.begun(installation.files, datetime.now(UTC))
        self._code = checkout.code_stamp()
        self._asked = CompactionRequest()
        self._result: JobResult | None = None
        self._last: Snapshot | None = None
        self._arrivals = Arrivals(installation)
        self._failures = 0
        # Why the last turn failed, and since when turns have.
        self._failed: tuple[ShardpostError, float] | None = None
        self._looked_at = self._noted_at = self._successor_at = self._told_at = float("-inf")

    def run(self, first: CompactionRequest) -> JobResult:
        """Follow; the first turn is as asked. Return the last turn's result, and why it ended.

        ShardpostError if the last turn failed; at once if a person has to see it, or it is the last
        of MOST_FAILURES.
        """
        try:
            kafka = self._installation.kafka
            with kafka.writers.keeping(), kafka.consumers.keeping(), closing(self._arrivals):
                return self._run(first)
        finally:
            with suppress(ShardpostError):  # else it counts as gone a little later
                following.forget(self._installation.files, self._own)

    def _run(self, first: CompactionRequest) -> JobResult:
        log.info("following the inputs: %s", self._follow)
        if following.following(self._installation.files, self._own.noted_at):
            step("warm up")
            warm_up(self._installation)
        self._asked, end = first, None
        while end is None:
            began = time.monotonic()
            pause, is_idle = self._follow.every, False
            try:
                with driver.job_errors():
                    is_idle = not self._is_due(began)
                    if not is_idle:
                        self._compact()
                self._failures, self._failed = 0, None
            except ShardpostError as error:
                self._failed = error, self._failed[1] if self._failed else began
                pause = self._after_failure(error)
            end = self._pause(began + pause, is_idle=is_idle)
        log.info("following ends after %s: %s", counted(self._own.turns, "turn"), end)
        if self._failed:
            why, since = self._failed
            failing = duration_text(timedelta(seconds=time.monotonic() - since))
            said = f"following ended ({end}); for {failing} it could not compact"
            raise ShardpostError(f"{said}: {why}") from why
        assert self._result is not None  # noqa: S101 - the last turn did not fail
        code, document = self._result
        return code, document | {FOLLOWING: self._own.as_json() | {"ended": end}}

    def _is_due(self, now: float) -> bool:
        """Tell whether a turn is due: something is new, a minute is over, or the last failed."""
        is_late = now - self._looked_at >= NOTED_EVERY.total_seconds()
        is_late |= self._failed is not None
        return is_late or self._last is None or self._arrivals.look(self._last)

    def _compact(self) -> None:
        if self._failed is None:  # else it is tried again and again
            step("turn")
        began = time.monotonic()
        result = self._turn_as_asked()
        if self._result is None or self._failed:
            refused_runs.note(self._installation.files, COMPACT_POSITIONS.name, None)
        self._result = result
        is_changed = result[1]["changed"]
        self._arrivals.note(is_changed=is_changed)
        # Of one that another run commits later, the topics look new: the next turn finds it.
        self._last = snapshots.newest(self._installation.tables)
        own = replace(self._own, noted_at=datetime.now(UTC))
        if result[1]["published"]:
            own = replace(own, published_in=result[1]["snapshot"]["snapshot"])
        if is_changed:
            _release()
            if not own.turns:
                gc.collect()
                gc.freeze()  # what a first turn has made stays: not to be looked through again
            seconds = round(time.monotonic() - began, 2)
            own = replace(own, turns=own.turns + 1, turn_at=own.noted_at, seconds=seconds)
        self._looked_at = time.monotonic()
        self._note(own)

    def _note(self, own: FollowerHeartbeat) -> None:
        self._own, self._noted_at = own, time.monotonic()
        following.note(self._installation.files, own)

    def _turn_as_asked(self) -> JobResult:
        """Compact once; what a person confirmed holds for one snapshot, even if more fails."""
        asked, tables = self._asked, self._installation.tables
        is_asked = asked != CompactionRequest()
        before = snapshots.newest(tables) if is_asked else None
        try:
            result = self._turn(self._installation, replace(asked, follow=self._follow))
        except Exception:
            if is_asked and snapshots.newest(tables) != before:
                self._asked = CompactionRequest(take_over=asked.take_over)
            raise
        self._asked = CompactionRequest()
        return result

    def _tell(self, error: ShardpostError) -> None:
        """Log what it waits for, once a minute."""
        now = time.monotonic()
        if now - self._told_at >= NOTED_EVERY.total_seconds():
            self._told_at = now
            log.warning("waiting: %s", error)

    def _after_failure(self, error: ShardpostError) -> float:
        """Return how many seconds to wait before the next turn; raise what is not to be retried."""
        if isinstance(error, (KafkaUnreachableError, LockedError)):
            self._tell(error)
            return self._follow.every
        self._failures += 1
        _release()
        if error.exit_code != COULD_NOT or self._failures >= MOST_FAILURES:
            raise error
        pause = min(LONGEST_PAUSE, 2.0**self._failures)
        log.warning("turn failed, the next turn in %g s: %s", pause, error)
        return pause

    def _pause(self, until: float, *, is_idle: bool) -> str | None:
        """Wait, if idle not longer than until a record comes; return why it ends, if it does."""
        while (end := self._end()) is None and (left := until - time.monotonic()) > 0:
            seconds = min(left, STOP_EVERY)
            if not is_idle or self._last is None:
                time.sleep(seconds)
            elif self._arrivals.wait(self._last, seconds):
                break
        return end

    def _end(self) -> str | None:
        if is_asked_to_stop():
            return "a stop was requested"
        at = datetime.now(UTC)
        if at >= self._follow.until:
            return "its time limit is reached"
        now = time.monotonic()
        if now - self._successor_at < SUCCESSOR_EVERY:
            return None
        self._successor_at = now
        if checkout.code_stamp() != self._code:
            return "the code or .env has changed"
        try:
            with driver.job_errors():
                successor = following.successor(self._installation.files, self._own, at)
                # While it waits, too, or where it looks less often.
                if self._result and now - self._noted_at >= NOTED_EVERY.total_seconds():
                    self._note(replace(self._own, noted_at=at))
        except ShardpostError as error:  # a store that does not answer, as a turn would find it
            self._tell(error)
            return None
        if successor is None:
            return None
        return f"{successor.holder} follows since {successor.since:%H:%M:%S} UTC"


def _release() -> None:
    if spark := SparkSession.getActiveSession():
        spark.catalog.clearCache()


# Of each partition, in each of two rounds: the first fills empty tables, the second changes them.
RECORDS = 100


def warm_up(installation: Installation) -> None:
    """Compact the last records of the topics, twice, into tables that nobody else sees.

    So the JVM of a driver that is to take over has loaded and compiled what a turn needs, while
    another one still follows. Nothing is published; what goes wrong is for the first turn. Not with
    workers on other machines, which have no part in a folder of this one.
    """
    if not is_local(installation.settings.spark_master):
        return
    with tempfile.TemporaryDirectory() as folder:
        own = installation.having(home=Path(folder), tables=None)
        try:
            with driver.job_errors():
                for left in (RECORDS, 0):
                    state, unread = Inputs(own).state()
                    unread = _last(unread, left)
                    rule, mappings = own.settings.rule, mappings_of(own)
                    snapshot, _ = build_snapshot(own, state, unread, rule, mappings)
                    snapshots.commit(own.tables, snapshot)
        except ShardpostError as error:
            log.info("the driver is not warm: %s", error)


def _last(unread: Unread, left: int) -> Unread:
    """Return the last records of each partition, except the last few."""
    ends = {
        topic: {number: max(0, end - left) for number, end in of_topic.items()}
        for topic, of_topic in unread.ends.items()
    }
    ranges = (
        replace(range_, first=max(range_.first, until - RECORDS), until=until)
        for range_ in unread.ranges
        if (until := ends[range_.topic][range_.partition]) > range_.first
    )
    return replace(unread, ranges=[*ranges], ends=ends)
