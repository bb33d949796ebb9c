"""Conditions while they are firing, and which alert is due to which channel.

On a change of state, and once a day while it lasts, to each channel by itself: what one has taken
it is not sent again while another is down. Pure: what was known and what is found now give what is
known afterwards, and that gives what is due to a channel.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from shardpost.alerts.model.alert import EVENT, REPORTED, Alert, AlertState, Condition
from shardpost.delta.table import Table
from shardpost.delta.typed_rows import Json, columns_of
from shardpost.topics.model.finding import Severity

REPEATED_AFTER = timedelta(days=1)
# What was sent by a clock that was ahead by more than this is sent again.
MOST_AHEAD = timedelta(minutes=5)
# For so long an event is kept for channels that did not take it. One that all took is kept for a
# day, so that the same is not told again.
EVENTS_KEPT = timedelta(days=7)


@dataclass(frozen=True)
class Taken:
    """When a channel last took an alert of a condition, and how bad that said it was."""

    at: datetime
    severity: Severity


@dataclass(frozen=True)
class Silence:
    """Until when nothing of a condition is sent but its end, or that it became worse."""

    until: datetime
    by: str
    why: str


@dataclass(frozen=True)
class Firing:
    """A firing condition: since when, and which channel took which alert of it.

    `ended_at`: when it ended, while a channel that was told of it has not taken that. Until
    `silenced_until` nothing is sent but its end, or that it is worse than `silenced_severity`; a
    person did that, and said why. Once that is over, it is told again.
    """

    condition: Condition
    since: datetime
    ended_at: datetime | None = None
    told: Json[Mapping[str, Taken]] = field(default_factory=dict)
    silenced_until: datetime | None = None
    silenced_why: str | None = None
    silenced_by: str | None = None
    silenced_severity: Severity | None = None

    def is_silenced(self, now: datetime) -> bool:
        """Tell whether a person silenced it, that has not ended, and it is no worse than then."""
        if self.silenced_until is None or now >= self.silenced_until:
            return False
        then = self.silenced_severity
        return then is None or self.condition.severity.rank >= then.rank

    def as_json(self) -> dict[str, object]:
        """Return the form of `alerts list --json`."""
        condition = self.condition
        return {
            "key": condition.name,
            "severity": condition.severity,
            "text": condition.text,
            "meaning": condition.meaning,
            "source": condition.source,
            "since": self.since,
            "ended_at": self.ended_at,
            "told": {name: told.at for name, told in self.told.items()},
            "silenced_until": self.silenced_until,
            "silenced_why": self.silenced_why,
            "silenced_by": self.silenced_by,
        }

    def silenced(self, silence: Silence) -> "Firing":
        """Return it with a silence, in the place of the one before."""
        return replace(
            self,
            silenced_until=silence.until,
            silenced_by=silence.by,
            silenced_why=silence.why,
            silenced_severity=self.condition.severity,
        )

    def due(self, channel: str, now: datetime) -> AlertState | None:
        """Return the alert that the channel is to be sent; None if there is none."""
        told = self.told.get(channel)
        if self.ended_at is not None:
            return AlertState.RESOLVED if told else None
        if self.is_silenced(now):
            return None
        if self.condition.source == EVENT:
            return None if told else AlertState.HAPPENED
        if told is None or self.condition.severity.rank < told.severity.rank:
            return AlertState.FIRING
        is_old = told.at + REPEATED_AFTER <= now or told.at > now + MOST_AHEAD
        is_heard = self.silenced_until is not None and told.at < self.silenced_until <= now
        return AlertState.STILL_FIRING if is_old or is_heard else None

    def alert(self, state: AlertState) -> Alert:
        """Return it as an alert."""
        return Alert(state, self.condition, self.since)

    def taken(self, channel: str, now: datetime) -> "Firing":
        """Return what is known once a channel took what is due to it."""
        others = {name: told for name, told in self.told.items() if name != channel}
        if self.ended_at is not None:
            return replace(self, told=others)
        return replace(self, told={**others, channel: Taken(now, self.condition.severity)})

    def is_over(self, channels: Collection[str], now: datetime) -> bool:
        """Tell whether nothing will be due to any of these channels."""
        if self.silenced_until is not None and now < self.silenced_until:
            return False
        if self.condition.source == EVENT:
            age = now - self.since
            is_told = all(name in self.told for name in channels)
            return age > EVENTS_KEPT or (is_told and age >= REPEATED_AFTER)
        return self.ended_at is not None and not any(name in self.told for name in channels)

    def is_like(self, event: Condition, now: datetime) -> bool:
        """Tell whether it is an event of the last day that says the same as another."""
        own = self.condition
        is_same = (own.source, own.rule, own.text) == (event.source, event.rule, event.text)
        return is_same and event.source == EVENT and now - self.since < REPEATED_AFTER

    def found(self, condition: Condition, now: datetime) -> "Firing":
        """Return it as it is found now; if nobody was told of it before, it begins now."""
        is_new = self.ended_at is not None and not self.told
        since = now if is_new else self.since
        return replace(self, condition=condition, since=since, ended_at=None)

    def reported(self, condition: Condition, now: datetime) -> "Firing":
        """Return it as it is reported now: told again if that has another cause than before."""
        is_other = condition.cause != self.condition.cause
        return replace(self.found(condition, now), told={} if is_other else self.told)

    def ended(self, now: datetime) -> "Firing":
        """Return it as one that is over, since now or since before."""
        return replace(self, ended_at=self.ended_at or now)


def advance(
    known: Iterable[Firing],
    conditions: Iterable[Condition],
    now: datetime,
    unmeasured: Collection[str] = (),
) -> list[Firing]:
    """Return what is known after a look that found these conditions.

    One that is no longer found has ended, unless its source is one of `unmeasured`, or one that no
    look measures: then it stays as it was.
    """
    after = {firing.condition.key: firing for firing in known}
    current = {condition.key: condition for condition in conditions}
    kept = {*unmeasured, REPORTED, EVENT}
    for key, firing in after.items():
        if key not in current and firing.condition.source not in kept:
            after[key] = firing.ended(now)
    for key, condition in current.items():
        after[key] = after.get(key, Firing(condition, now)).found(condition, now)
    return list(after.values())


# The conditions that were firing at the last look.
ALERTS = Table(
    "alerts",
    (("run", "BIGINT"), *columns_of(Firing)),
    comments={
        "run": "that wrote it, in seconds since 1970",
        "rule": "section of the runbook",
        "subject": "such as a topic or week; may be empty",
        "severity": "`loss`, `risk`, `drift`",
        "text": "found, expected",
        "meaning": "for a client or record",
        "source": "`kafka`, `letters` …",
        "public": "text for users who may not see clients",
        "loses_at": "if known",
        "ended_at": "while a channel has not taken the end",
        "told": "JSON: per channel, when and with which severity",
        "silenced_until": "only its end or a worse state is sent",
    },
)
