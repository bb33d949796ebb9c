"""What is told to people: one message, of one or several alerts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shardpost.printable import one_line


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


@dataclass(frozen=True)
class Alert:
    """One thing that needs a person, or does not any more.

    `rule` is the name of its page in the runbook, `subject` what it is about, such as a topic;
    `meaning` what it means for a client or a record.
    """

    state: AlertState
    severity: Severity
    rule: str
    subject: str
    text: str
    meaning: str
    since: datetime

    def title(self) -> str:
        """Return it in a few words."""
        of = f" of {self.subject}" if self.subject else ""
        return one_line(f"{self.state} ({self.severity}): {self.rule}{of}")

    def body(self, runbook: str) -> str:
        """Return it in a few lines; `runbook` is what the page's name is put behind."""
        lines = [
            self.title(),
            one_line(self.text),
            f"since {self.since:%Y-%m-%d %H:%M:%S} UTC",
            f"what it means: {one_line(self.meaning)}",
            f"what to do: {runbook}{self.rule}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Message:
    """What a channel is given; `is_good` if nothing in it needs a person."""

    title: str
    body: str
    is_good: bool = False


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


def _urgency(alert: Alert) -> tuple[int, int, str, str]:
    states, severities = list(AlertState), list(Severity)
    return (
        states.index(alert.state),
        severities.index(alert.severity),
        alert.rule,
        alert.subject,
    )
