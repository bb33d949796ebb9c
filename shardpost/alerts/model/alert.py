"""Conditions that need a person, the alerts about them, and the message that has these."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from shardpost.errors import one_line
from shardpost.topics.model.finding import Severity

CHANNEL_DOWN = "alert-channel-down"
TASK_FAILED = "task-failed"
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
        """What tells it from the others of the same moment."""
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
        """Return it as those may see it from whom clients are hidden."""
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
        """Return its text of a few lines; `runbook` comes before the name of the rule's page."""
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
        raise ValueError("expected alerts, found none")
    states = list(AlertState)
    ordered = sorted(
        alerts,
        key=lambda one: (states.index(one.state), urgency(one.condition), one.condition.key),
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
