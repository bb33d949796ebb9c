"""What needs a person, what people are told of it, and when.

They are told on a change of state, and once a day while it lasts. Pure: what was known, and
what is found now, to what is to be told and what is known then.
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
    """Why an alert is told now."""

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
    condition = alert.condition
    return list(AlertState).index(alert.state), condition.severity.rank, condition.key


TOLD_AGAIN_AFTER = timedelta(days=1)
# What was told by a clock that was ahead by more than this is told again.
MOST_AHEAD = timedelta(minutes=5)


@dataclass(frozen=True)
class Firing:
    """A condition that is there since then, and when people were last told of it; None: not yet.

    `ended_at`: it is there no more, and nobody could be told of that.
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
    """What is to be told, and what is known after that.

    `if_told` is known if at least one channel took the message, `if_not` if none did: then the same
    is told again the next time.
    """

    alerts: list[Alert] = field(default_factory=list)
    if_told: list[Firing] = field(default_factory=list)
    if_not: list[Firing] = field(default_factory=list)

    def tell(self, state: AlertState, told: Firing | None, not_told: Firing | None) -> None:
        """Add an alert, of the first that there is."""
        one = told or not_told
        assert one is not None  # noqa: S101 - an alert is of something
        self.alerts.append(one.alert(state))
        self.if_told.extend([told] if told else [])
        self.if_not.extend([not_told] if not_told else [])

    def keep(self, firing: Firing) -> None:
        """Add what nobody has to be told of."""
        self.if_told.append(firing)
        self.if_not.append(firing)


def advance(
    known: Iterable[Firing],
    found: Iterable[Condition],
    now: datetime,
    unmeasured: Collection[str] = (),
) -> Advance:
    """Return what is to be told at that time.

    What is not found any more is resolved, unless its source is one of `unmeasured`: then nothing
    is known of it, and it stays as it was. A condition that is worse than before is told at once.
    """
    before: Mapping[Key, Firing] = {one.condition.key: one for one in known}
    current = {one.key: one for one in found}
    result = Advance()
    for key, condition in current.items():
        _advance_found(result, before.get(key), condition, now)
    for key, firing in before.items():
        if key in current:
            continue
        if firing.condition.source in unmeasured and firing.ended_at is None:
            _advance_found(result, firing, firing.condition, now)
        elif firing.told_at is None:
            continue  # nobody was told that it was there
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
    if _is_worse_than(condition, before.condition):
        as_told = replace(condition, severity=before.condition.severity)
        return result.tell(AlertState.FIRING, told, replace(firing, condition=as_told))
    if before.told_at + TOLD_AGAIN_AFTER <= now or before.told_at > now + MOST_AHEAD:
        return result.tell(AlertState.STILL_FIRING, told, firing)
    return result.keep(firing)


def _is_worse_than(now: Condition, before: Condition) -> bool:
    return now.severity.rank < before.severity.rank


# What needed a person when it was looked at last, by the `run` that wrote it, in seconds since
# 1970.
ALERTS = Table("alerts", (("run", "BIGINT"), *columns_of(Firing)))
