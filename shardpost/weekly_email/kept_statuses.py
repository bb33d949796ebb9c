"""Statuses of weeks that the page keeps in memory, each until its audience or ledger changes."""

import logging
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from shardpost.errors import ShardpostError, said
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

# After that long no further week is counted for a list of weeks.
COUNT_SECONDS = 2.0


class Totals(NamedTuple):
    """{week: {state: clients}} of weeks, and why others cannot be counted.

    `has_more`: some were not counted for lack of time.
    """

    counts: dict[str, dict[str, int]]
    has_more: bool
    problems: dict[str, str]


# The id of its topic, and {week: last offset} of each of its partitions.
_Ledger = tuple[str | None, Sequence[dict[str, int]]]


class KeptStatuses:
    """The statuses of weeks that were asked for, each of its audience and its last records."""

    def __init__(self) -> None:
        self._kept: dict[IsoWeek, tuple[object, Sequence[ShardStatus]]] = {}

    def by_shard(self, status: WeekStatus) -> Sequence[ShardStatus]:
        """Return what `status.by_shard()` does."""
        if status.closed is not None:
            return status.by_shard()
        return self._counted(status, _ledger_now(status.state.installation, status.partitions))

    def of_weeks(
        self, installation: Installation, weeks: Sequence[KnownWeek], now: datetime
    ) -> Totals:
        """Return the counts of weeks, in their order as many as there is time for."""
        closed = {str(one.week): one.closed.shards for one in weeks if one.closed is not None}
        found = Totals({week: totals(map(vars, own)) for week, own in closed.items()}, False, {})
        open_ = [one for one in weeks if one.closed is None]
        if not open_:
            return found
        try:
            topic = installation.kafka.topic("weekly-emails")
            partitions = partition_counts(installation.kafka, [topic])[topic]
            ledger = _ledger_now(installation, partitions)
        except ShardpostError as error:
            return found._replace(problems={str(one.week): said(error) for one in open_})
        until = time.monotonic() + COUNT_SECONDS
        for number, one in enumerate(open_):
            if number and time.monotonic() > until:
                return found._replace(has_more=True)
            week = str(one.week)
            try:
                state = WeekState(installation, one.week)
                audience = one.frozen or audience_of(state, now)
                shards = self._counted(WeekStatus(state, audience, partitions), ledger)
            except Exception as error:  # no problem of the others
                log.warning("%s: cannot be counted", week, exc_info=True)
                found.problems[week] = said(error)
            else:
                found.counts[week] = totals(map(vars, shards))
        return found

    def _counted(self, status: WeekStatus, ledger: _Ledger) -> Sequence[ShardStatus]:
        topic_id, last = ledger
        now = (status.audience, topic_id, [shard.get(str(status.week)) for shard in last])
        of, shards = self._kept.get(status.week, (None, ()))
        if of != now:
            shards = status.by_shard()
            if status.audience is not None:  # else it may be any week, of all that there are
                self._kept[status.week] = now, shards
        return shards


def _ledger_now(installation: Installation, partitions: int) -> _Ledger:
    topic = installation.kafka.topic("weekly-emails")
    topic_id = topic_ids(installation.kafka, [topic]).get(topic)
    return topic_id, last_offsets(installation, partitions)
