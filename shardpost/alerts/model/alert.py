"""Conditions that need a person, the alerts about them, and which is due to which channel.

On a change of state, and once a day while it lasts, to each channel by itself: what one has taken
it is not sent again while another is down. Pure: what was known and what is found now give what is
known afterwards, and that gives what is due to a channel.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from shardpost.delta.table import Json, Table, columns_of
from shardpost.errors import one_line
from shardpost.topics.model.finding import Severity

CHANNEL_DOWN = "alert-channel-down"
TASK_FAILED = "task-failed"
DEADLINE_MISSED = "deadline-missed"
NEEDS_A_PERSON = "needs-attention"
REQUESTS_LOST = "requests-lost"
# Sources that no look measures: conditions that others report, until they report their end; and
# what happened once.
REPORTED = "reported"
EVENT = "event"


class AlertState(StrEnum):
    """Why an alert is sent now."""

    FIRING = "firing"
    STILL_FIRING = "still firing"
    HAPPENED = "happened"
    RESOLVED = "resolved"


_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
# The rule and the subject of a condition.
Key = tuple[str, str]


def urgency(one: Any) -> tuple[float, ...]:
    """Return the sort key of a condition: losses, then what is lost soonest, then risks."""
    lost_at = one.loses_at.timestamp() if one.loses_at else math.inf
    return one.severity is not Severity.LOSS, lost_at, one.severity.rank


@dataclass(frozen=True)
class Condition:
    """Something that needs a person, as it is at one moment.

    `rule` is the name of its page in the runbook, `subject` what it is about, such as a topic;
    `meaning` what it means for a client or a record. `source` is what found it. `text` may name
    clients; `public` is what others may read of it, "" if nothing. Data is lost at `loses_at`.
    """

    rule: str
    subject: str
    severity: Severity
    text: str
    meaning: str
    source: str = ""
    public: str = ""
    loses_at: datetime | None = None

    @property
    def key(self) -> Key:
        """What distinguishes it from others at the same time."""
        return self.rule, self.subject

    @property
    def name(self) -> str:
        """Its key as one text, by which a person silences it: `rule`, or `rule:subject`."""
        return one_line(f"{self.rule}:{self.subject}" if self.subject else self.rule)

    @property
    def cause(self) -> str:
        """Its text without what differs from run to run: numbers, times, ids in hexadecimal."""
        return _NUMBERS.sub("#", self.text)

    def without_clients(self) -> "Condition":
        """Return it for users without access to clients."""
        return replace(self, text=self.public or self.meaning)

    def line(self) -> str:
        """Return title and text on one line."""
        return one_line(f"{self.title()}: {self.text}")

    def title(self) -> str:
        """Return severity, rule and subject."""
        return f"({self.severity}) {self.rule}{f' of {self.subject}' if self.subject else ''}"


@dataclass(frozen=True)
class Alert:
    """A notification about a condition, and since when it has been firing, or was."""

    state: AlertState
    condition: Condition
    since: datetime

    def title(self) -> str:
        """Return its state, and the condition's title."""
        return one_line(f"{self.state} {self.condition.title()}")

    def body(self, runbook: str) -> str:
        """Return its text in a few lines; `runbook` precedes the rule's name in the link."""
        since = f"since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        text = one_line(self.condition.text)
        if self.state is AlertState.RESOLVED:
            return "\n".join([self.title(), f"it was firing {since}: {text}"])
        lines = [
            self.title(),
            text,
            since if self.state is not AlertState.HAPPENED else since.removeprefix("since "),
            f"what it means: {one_line(self.condition.meaning)}",
            f"what to do: {runbook}{self.condition.rule}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Message:
    """What is sent through a channel; `is_good` if nothing in it needs a person."""

    title: str
    body: str
    is_good: bool = False


# A message has so many alerts in full, and counts the others.
MOST_IN_FULL = 20


def message_of(alerts: Sequence[Alert], runbook: str, most: int = MOST_IN_FULL) -> Message:
    """Return one message of several alerts, the worst first; ValueError for none."""
    if not alerts:
        raise ValueError("expected at least one alert, found nothing")
    states = list(AlertState)
    ordered = sorted(
        alerts, key=lambda one: (states.index(one.state), urgency(one.condition), one.condition.key)
    )
    counts = [
        f"{number} {state}"
        for state in AlertState
        if (number := sum(alert.state is state for alert in alerts))
    ]
    title = ordered[0].title() if len(ordered) == 1 else ", ".join(counts)
    body = "\n\n".join(alert.body(runbook) for alert in ordered[:most])
    if others := ordered[most:]:
        body += f"\n\nand {len(others)} more: `shardpost alerts list` has all that is firing"
    is_good = all(alert.state is AlertState.RESOLVED for alert in alerts)
    return Message(f"Shardpost: {title}", body, is_good)


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
    """A silence: until then, a condition is sent only when it ends or becomes worse."""

    until: datetime
    by: str
    why: str


@dataclass(frozen=True)
class Firing:
    """A firing condition: since when, and which channel took which alert of it.

    ALERTS says what its columns are. After `silenced_until` it is sent again.
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
        of_condition = ("severity", "text", "meaning", "source")
        own = ("since", "ended_at", "silenced_until", "silenced_why", "silenced_by")
        return {
            "key": self.condition.name,
            **{name: getattr(self.condition, name) for name in of_condition},
            **{name: getattr(self, name) for name in own},
            "told": {name: told.at for name, told in self.told.items()},
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
        """Return the alert that is due to the channel; None if there is none."""
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
        """Return it as found now; if no channel was notified before, it begins now."""
        is_new = self.ended_at is not None and not self.told
        since = now if is_new else self.since
        return replace(self, condition=condition, since=since, ended_at=None)

    def reported(self, condition: Condition, now: datetime) -> "Firing":
        """Return it as reported now; it is sent again if the cause differs."""
        is_other = condition.cause != self.condition.cause
        return replace(self.found(condition, now), told={} if is_other else self.told)

    def ended(self, now: datetime) -> "Firing":
        """Return it as ended, now or earlier."""
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
        "subject": "such as a topic or week; possibly empty",
        "severity": "`loss`, `risk`, `drift`",
        "meaning": "for a client or record",
        "source": "`kafka`, `letters` …",
        "public": "text for users without access to clients",
        "ended_at": "set until all channels got the end",
        "told": "JSON: per channel, when and with which severity",
        "silenced_until": "until then only its end or a worse state is sent",
    },
)
