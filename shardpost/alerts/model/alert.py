"""What is told to people: one message, of one or several alerts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shardpost.errors import one_line


class AlertState(StrEnum):
    """Why an alert is told now."""

    FIRING = "firing"
    STILL_FIRING = "still firing"
    RESOLVED = "resolved"


class Severity(StrEnum):
    """How bad it is: data is, or will be, lost; one failure away from that; or worth a look."""

    LOSS = "loss"
    RISK = "risk"
    DRIFT = "drift"


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

    def in_words(self) -> str:
        """Return it as one line."""
        return one_line(f"{self.title()}: {self.text}")

    def title(self) -> str:
        """Return what it is of, in a few words."""
        return f"({self.severity}) {self.rule}{f' of {self.subject}' if self.subject else ''}"


@dataclass(frozen=True)
class Alert:
    """What people are told of a condition that is there, or was, since then."""

    state: AlertState
    condition: Condition
    since: datetime

    def title(self) -> str:
        """Return it in a few words."""
        return one_line(f"{self.state} {self.condition.title()}")

    def body(self, runbook: str) -> str:
        """Return it in a few lines; `runbook` is what the page's name is put behind."""
        since = f"since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        text = one_line(self.condition.text)
        if self.state is AlertState.RESOLVED:
            return "\n".join([self.title(), f"it was, {since}: {text}"])
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
    """What a channel is given; `is_good` if nothing in it needs a person.

    `in_log` is what alerts.log has of it, the body unless it says otherwise.
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
        if (number := sum(one.state is state for one in alerts))
    ]
    title = ordered[0].title() if len(ordered) == 1 else ", ".join(counts)
    body = "\n\n".join(one.body(runbook) for one in ordered)
    is_good = all(one.state is AlertState.RESOLVED for one in alerts)
    return Message(f"Shardpost: {title}", body, is_good)


def _urgency(alert: Alert) -> tuple[int, int, Key]:
    states, severities = list(AlertState), list(Severity)
    place = severities.index(alert.condition.severity)
    return states.index(alert.state), place, alert.condition.key
