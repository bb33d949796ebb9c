"""Conditions that need a person, the alerts about them, and when these are sent.

On a change of state, and once a day while it lasts. Pure: from what was known and what is found
now it derives what to send, and what is known afterwards.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from shardpost.delta.table import Table
from shardpost.delta.typed_rows import columns_of
from shardpost.errors import one_line
from shardpost.topics.model.finding import Severity

CHANNEL_DOWN = "alert-channel-down"
TASK_FAILED = "task-failed"
NEEDS_A_PERSON = "needs-attention"


class AlertState(StrEnum):
    """Why an alert is sent now."""

    FIRING = "firing"
    STILL_FIRING = "still firing"
    RESOLVED = "resolved"


# The rule and the subject of a condition.
Key = tuple[str, str]


@dataclass(frozen=True)
class Condition:
    """Something that needs a person, as it is at one moment.

    `rule` is the name of its page in the runbook, `subject` what it is about, such as a topic;
    `meaning` what it means for a client or a record. `source` is what found it.
    """

    rule: str
    subject: str
    severity: Severity
    text: str
    meaning: str
    source: str = ""

    @property
    def key(self) -> Key:
        """What tells it from the others of the same moment."""
        return self.rule, self.subject

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
        """Return its text of a few lines; `runbook` comes before the name of the rule's page."""
        since = f"since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        text = one_line(self.condition.text)
        if self.state is AlertState.RESOLVED:
            return "\n".join([self.title(), f"it was firing {since}: {text}"])
        lines = [
            self.title(),
            text,
            since,
            f"what it means: {one_line(self.condition.meaning)}",
            f"what to do: {runbook}{self.condition.rule}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Message:
    """What is sent through a channel; `is_good` if nothing in it needs a person.

    `in_log` is the text for alerts.log, by default the body.
    """

    title: str
    body: str
    is_good: bool = False
    in_log: str | None = None


def message_of(alerts: Sequence[Alert], runbook: str) -> Message:
    """Return one message of several alerts, the worst first; ValueError for none."""
    if not alerts:
        raise ValueError("expected alerts, found none")
    ordered = sorted(alerts, key=_urgency)
    counts = [
        f"{number} {state}"
        for state in AlertState
        if (number := sum(alert.state is state for alert in alerts))
    ]
    title = ordered[0].title() if len(ordered) == 1 else ", ".join(counts)
    body = "\n\n".join(alert.body(runbook) for alert in ordered)
    is_good = all(alert.state is AlertState.RESOLVED for alert in alerts)
    return Message(f"Shardpost: {title}", body, is_good)


def _urgency(alert: Alert) -> tuple[int, int, Key]:
    condition = alert.condition
    return list(AlertState).index(alert.state), condition.severity.rank, condition.key


TOLD_AGAIN_AFTER = timedelta(days=1)
# What was sent by a clock that was ahead by more than this is sent again.
MOST_AHEAD = timedelta(minutes=5)


@dataclass(frozen=True)
class Firing:
    """A firing condition: since when, and when it was last sent; None: not yet.

    `ended_at`: when it ended, if that could not be sent yet.
    """

    condition: Condition
    since: datetime
    told_at: datetime | None = None
    ended_at: datetime | None = None

    def alert(self, state: AlertState) -> Alert:
        """Return it as an alert."""
        return Alert(state, self.condition, self.since)


@dataclass(frozen=True)
class Advance:
    """What to send, and what is known afterwards.

    `if_told` is known if at least one channel took the message, `if_not` if none did: then the same
    is sent again the next time.
    """

    alerts: list[Alert] = field(default_factory=list)
    if_told: list[Firing] = field(default_factory=list)
    if_not: list[Firing] = field(default_factory=list)

    def tell(self, state: AlertState, told: Firing | None, not_told: Firing | None) -> None:
        """Add an alert; what is known afterwards depends on whether it could be sent."""
        firing = told or not_told
        assert firing is not None  # noqa: S101 - an alert is of something
        self.alerts.append(firing.alert(state))
        self.if_told.extend([told] if told else [])
        self.if_not.extend([not_told] if not_told else [])

    def keep(self, firing: Firing) -> None:
        """Add a condition about which nothing is sent."""
        self.if_told.append(firing)
        self.if_not.append(firing)


def advance(
    known: Iterable[Firing],
    conditions: Iterable[Condition],
    now: datetime,
    unmeasured: Collection[str] = (),
) -> Advance:
    """Return what to send at that time.

    A condition that is no longer found is resolved, unless its source is one of `unmeasured`: then
    it stays as it was. One that is worse than before is sent at once.
    """
    before: Mapping[Key, Firing] = {firing.condition.key: firing for firing in known}
    current = {condition.key: condition for condition in conditions}
    result = Advance()
    for key, condition in current.items():
        _advance_found(result, before.get(key), condition, now)
    for key, firing in before.items():
        if key in current:
            continue
        if firing.condition.source in unmeasured and firing.ended_at is None:
            _advance_found(result, firing, firing.condition, now)
        elif firing.told_at is None:
            continue  # that it was firing was never sent
        else:
            ended = replace(firing, ended_at=firing.ended_at or now)
            result.tell(AlertState.RESOLVED, None, ended)
    return result


def _advance_found(
    result: Advance, before: Firing | None, condition: Condition, now: datetime
) -> None:
    if before is None:
        firing = Firing(condition, now)
        return result.tell(AlertState.FIRING, replace(firing, told_at=now), firing)
    firing = replace(before, condition=condition, ended_at=None)
    told = replace(firing, told_at=now)
    if before.told_at is None:
        return result.tell(AlertState.FIRING, told, firing)
    if condition.severity.rank < before.condition.severity.rank:
        as_told = replace(condition, severity=before.condition.severity)
        return result.tell(AlertState.FIRING, told, replace(firing, condition=as_told))
    if before.told_at + TOLD_AGAIN_AFTER <= now or before.told_at > now + MOST_AHEAD:
        return result.tell(AlertState.STILL_FIRING, told, firing)
    return result.keep(firing)


# The conditions that were firing at the last look, by the `run` that wrote them, in seconds since
# 1970.
ALERTS = Table("alerts", (("run", "BIGINT"), *columns_of(Firing)))
