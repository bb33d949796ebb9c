"""What became of a week's e-mail, as documents: its counts, who is in a state, one client.

The command `emails` prints them, and the page shows them.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from sqlite3 import Connection
from typing import Any

from shardpost.delta.storage import Tables
from shardpost.errors import shown
from shardpost.installation import Installation
from shardpost.instants import instant_of
from shardpost.kafka.records import partition_of
from shardpost.kafka.topic_metadata import partition_counts, partition_with
from shardpost.weekly_email import week_state
from shardpost.weekly_email.delivery_status import (
    NOT_MAILED,
    ListedClient,
    WeekStatus,
    audience_of,
    find_late,
)
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_projection import ask_shards, sent_since, states_of
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import STATES, ShardStatus, cause_of, status_document
from shardpost.weekly_email.model.week_tables import ClosedWeek


@dataclass(frozen=True)
class KnownWeek:
    """A week that a run has started: its row if frozen, and how it was closed, if so."""

    week: IsoWeek
    frozen: FrozenWeek | None
    closed: ClosedWeek | None


def known_weeks(tables: Tables) -> list[KnownWeek]:
    """Return the weeks that runs have started, newest first; from the tables alone."""
    frozen = {row.week: row for row in FrozenWeeks(tables).list_all()}
    closed = week_state.list_closed(tables)
    begun = {mark.week for mark in week_state.list_marks(tables)}
    names = sorted(frozen.keys() | closed.keys() | begun, reverse=True)
    return [KnownWeek(IsoWeek.parse(name), frozen.get(name), closed.get(name)) for name in names]


def find_week(installation: Installation, week: IsoWeek, now: datetime) -> WeekStatus:
    """Return the week as of now."""
    topic = installation.kafka.topic("weekly-emails")
    partitions = partition_counts(installation.kafka, [topic])[topic]
    state = week_state.WeekState(installation, week)
    closed = state.closed(now)
    return WeekStatus(state, None if closed else audience_of(state, now), partitions, closed)


def has_run(found: WeekStatus, counted: Sequence[ShardStatus] | None = None) -> bool:
    """Return whether a run started the week: it has an audience or ledger records."""
    if found.audience is not None or found.closed is not None:
        return True
    shards = found.by_shard() if counted is None else counted
    return any(getattr(shard, state) for shard in shards for state in STATES)


def no_run(week: IsoWeek) -> str:
    """Return the message for a week without a run."""
    return f"{week}: no run of this week: nobody was mailed"


def week_document(
    found: WeekStatus, counted: Sequence[ShardStatus] | None = None
) -> dict[str, Any]:
    """Return the counts of each shard, why clients got no mail, and more about the week."""
    closed, audience = found.closed, found.audience
    shards = found.by_shard() if counted is None else counted
    document = status_document(found.week, shards)
    if isinstance(audience, FrozenWeek):
        if (at := audience.audience_erased_at) is not None:
            erased = {"at": at.isoformat(), "clients": audience.recipients}
            document["audience_erased"] = erased
        document["late"] = find_late(found.state.installation, audience)
    document["has_run"] = has_run(found, shards)
    if closed is not None:
        document["closed"] = closed.explanation
    elif paused := found.state.paused:
        document["paused"] = paused.as_json()
    return document


def rows_of(found: WeekStatus, client: str) -> list[dict[str, Any]]:
    """Return the ledger's records of one client, oldest first; none of a closed week."""
    if found.closed is not None:
        return []
    shard = partition_of(client, found.partitions)
    start = found.state.first_offsets(found.partitions).get(shard)
    ledger = ShardLedger(found.state.installation.kafka, found.week, shard)
    return ledger.rows_of(client, start=start)


def states_of_client(
    installation: Installation, client: str, weeks: Collection[str]
) -> dict[str, tuple[str, str | None]]:
    """Return {week: (state, reason)} of a client, by the projection of its shard alone."""
    kafka = installation.kafka
    _, shard = partition_with(kafka, kafka.topic("weekly-emails"), client)
    found = ask_shards(installation, [shard], lambda _, ledger: states_of(ledger, client, weeks))
    return found[0]


def rows_of_begun(
    installation: Installation, week: IsoWeek, client: str, now: datetime
) -> list[dict[str, Any]]:
    """Return `rows_of` of a started week; for another, return [] without reading."""
    is_begun = week_state.WeekState(installation, week).is_begun
    return rows_of(find_week(installation, week, now), client) if is_begun else []


def why_of(
    found: WeekStatus,
    client: str,
    rows: list[dict[str, Any]],
    unknown: Callable[[str], str | None] = lambda _: None,
    more: str = "",
) -> str:
    """Return one sentence on why the client got an e-mail or did not.

    `rows` come from `rows_of`; `unknown` is the message for an unknown client, if so.
    `more` is where to see why a client was not in the audience.
    """
    name = shown(client)
    if found.closed is not None:
        return f"{name}: {found.closed.explanation}"
    last, week = rows[-1] if rows else {"state": "open"}, found.week
    match last["state"]:
        case "sent":
            return f"{name} got the e-mail of {week}: {last['message_id']}{reason_text(last)}"
        case "sending" | "unknown":
            return f"{name}: delivery of the e-mail of {week} unknown{reason_text(last)}"
        case "failed" | "suppressed" as state:
            return f"{name} got no e-mail of {week}: {state}{reason_text(last)}"
    return _why_open(found, client, reason_text(last), unknown, more)


def _why_open(
    found: WeekStatus, client: str, reason: str, unknown: Callable[[str], str | None], more: str
) -> str:
    audience, week, name = found.audience, found.week, shown(client)
    if audience is None:
        return f"{name} got no e-mail of {week}: no run of that week, so it has no audience yet"
    if gone := getattr(audience, "why_no_audience", None):
        return (
            f"{name}: the ledger has no e-mail of {week}{reason}; whether it was in that week's"
            f" audience is no longer known: {gone}"
        )
    why = found.why_open(client)
    if why is None:
        no_member = f"{name} got no e-mail of {week}: the client was not in that week's audience"
        if (nothing_known := unknown(client)) is not None:
            return f"{no_member}: {nothing_known}"
        return (
            f"{no_member}, since the client held no stock of SHARDPOST_COUNTRY as of"
            f" {audience.as_of:%Y-%m-%d %H:%M} UTC at snapshot {audience.snapshot}{more}"
        )
    said = reason if why == NOT_MAILED else f": {why}"
    return f"{name} has not received the e-mail of {week} yet: it is open{said}"


def reason_text(row: dict[str, Any]) -> str:
    """Return the reason of one of `rows_of` in parentheses, or ""."""
    return f" ({row['reason']})" if row.get("reason") else ""


def state_document(week: IsoWeek, state: str, listed: Iterable[ListedClient]) -> dict[str, Any]:
    """Return the clients by cause, the largest group first, each with its own reason.

    Cause and reason are null for mailed clients.
    """
    groups: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
    for one in listed:
        cause = None if state == DeliveryState.SENT else cause_of(one.reason, one.client)
        groups[cause].append(vars(one))
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0] or ""))
    return {
        "week": str(week),
        "state": state,
        "count": sum(map(len, groups.values())),
        "groups": [
            {"reason": reason, "count": len(clients), "clients": clients}
            for reason, clients in ordered
        ],
    }


PACE_SECONDS = 120


@dataclass(frozen=True)
class Pace:
    """The mails of a week sent in the last `seconds`, and its newest record."""

    sent: int
    seconds: float
    newest: datetime | None

    @property
    def per_second(self) -> float:
        """Mails a second."""
        return self.sent / self.seconds


def pace_of(status: WeekStatus, now: datetime) -> Pace:
    """Return the sending rate of a week, from the timestamps of its ledger records."""
    since = int((now - timedelta(seconds=PACE_SECONDS)).timestamp() * 1000)

    def sent(_: int, ledger: Connection) -> tuple[int, int | None, int | None]:
        return sent_since(ledger, status.week, since)

    found = ask_shards(status.state.installation, range(status.partitions), sent)
    bounds = [at for _, *times in found for at in times if at is not None]
    if not bounds:
        return Pace(0, PACE_SECONDS, None)
    # The rate of a new run is measured since its start.
    seconds = min(PACE_SECONDS, max(1.0, now.timestamp() - min(bounds) / 1000))
    return Pace(sum(count for count, *_ in found), seconds, instant_of(max(bounds)))
