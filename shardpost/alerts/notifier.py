"""Notifying people: what is due to each channel is sent, and what each took is stored.

What is to be sent is stored first, and that it was taken afterwards: a process that is killed in
between sends it once more, and nothing is lost. One process of a machine does so at a time.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shardpost.alerts import history
from shardpost.alerts.channels import LOG, Channel, Delivery, append, channels, send_all
from shardpost.alerts.model.alert import (
    CHANNEL_DOWN,
    EVENT,
    REPORTED,
    Alert,
    AlertState,
    Condition,
    Firing,
    Silence,
    message_of,
)
from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.delta.query import table_errors
from shardpost.errors import UsageError, one_line
from shardpost.installation import Installation
from shardpost.kafka.transactions import anyone
from shardpost.locks.locks import exclusive
from shardpost.locks.shared_files import Files
from shardpost.logs import step
from shardpost.topics.model.finding import Severity

LOCK = "alerts"
# Longer than the channels may take, twice.
LOCK_WAIT = 120.0

Change = Callable[[list[Firing]], list[Firing]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notified:
    """What was due, and the outcome of the messages in each channel."""

    alerts: list[Alert] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def is_reported(self) -> bool:
        """Whether a channel took a message; without any, alerts.log is enough."""
        return not self.deliveries or any(one.problem is None for one in self.deliveries)


def notify(installation: Installation, now: datetime, change: Change) -> Notified:
    """Change what is known to fire, send each channel what is due to it, store what it took.

    ShardpostError if the table cannot be read or written, or another process sends alerts for long.
    """
    with table_errors(), exclusive(installation.files, LOCK, "sending alerts", wait=LOCK_WAIT):
        known = history.list_firing(installation.tables)
        to = channels(installation)
        book = installation.settings.runbook
        round_ = _Round(installation.files, book, now, change(known), to)
        if round_.firing != known and any(map(round_.due, round_.names)):
            history.store_firing(installation.tables, known, round_.firing, now)
            known = round_.firing
        notified = round_.notify()
        # All of which something may be due later.
        after = [one for one in round_.firing if not one.is_over(round_.names, now)]
        if after != known:
            history.store_firing(installation.tables, known, after, now)
        return notified


class _Round:
    """One notification: what is known, as it changes by what channels take."""

    def __init__(
        self,
        files: Files,
        book: str,
        now: datetime,
        firing: Sequence[Firing],
        channels: Sequence[Channel],
    ) -> None:
        self._files, self._book, self._now = files, book, now
        self._channels = channels
        self.names = [LOG, *(channel.name for channel in channels)]
        # That a channel is down which is none any more has ended.
        gone = {one.condition.key for one in firing if one.condition.rule == CHANNEL_DOWN}
        gone -= {(CHANNEL_DOWN, name) for name in self.names}
        self.firing = [one.ended(now) if one.condition.key in gone else one for one in firing]

    def notify(self) -> Notified:
        """Send what is due; then once more, where a channel is found to be down, or to be back."""
        due = (alert for name in self.names for alert in self.due(name))
        alerts = list({(alert.state, alert.condition.key): alert for alert in due}.values())
        deliveries = self._send(self._channels)
        known = {one.condition.key: one for one in self.firing}
        for delivery in deliveries:
            key = (CHANNEL_DOWN, delivery.channel)
            if delivery.problem:
                meaning = "people on this channel alone get no alerts"
                text = f"alert channel {delivery}"
                found = Condition(*key, Severity.RISK, text, meaning, source=REPORTED)
                known[key] = known.get(key, Firing(found, self._now)).found(found, self._now)
            elif key in known:
                known[key] = known[key].ended(self._now)
        self.firing = list(known.values())
        down = {delivery.channel for delivery in deliveries if delivery.problem}
        self._send([channel for channel in self._channels if channel.name not in down])
        if alerts:
            step("told")
        return Notified(alerts, deliveries)

    def _send(self, channels: Sequence[Channel]) -> list[Delivery]:
        if due := self.due(LOG):
            whole = message_of(due, self._book, most=len(due))
            append(self._files, whole.body, self._now)
            self._taken(LOG, due)
        due_to = {channel: due for channel in channels if (due := self._to(channel))}
        messages = {channel: message_of(due, self._book) for channel, due in due_to.items()}
        deliveries = send_all(messages)
        for (channel, due), delivery in zip(due_to.items(), deliveries, strict=True):
            if delivery.problem:
                log.warning("alert channel %s", delivery)
            else:
                self._taken(channel.name, due)
        return deliveries

    def due(self, channel: str) -> list[Alert]:
        """Return what a channel is to be sent now."""
        states = ((one, one.due(channel, self._now)) for one in self.firing)
        return [one.alert(state) for one, state in states if state]

    def _taken(self, channel: str, alerts: Iterable[Alert]) -> None:
        keys = {alert.condition.key for alert in alerts}
        self.firing = [
            one.taken(channel, self._now) if one.condition.key in keys else one
            for one in self.firing
        ]

    def _to(self, channel: Channel) -> list[Alert]:
        """Return what is due to a channel; that it was down is not, unless there is nothing else.

        Then that finds out whether it works again.
        """
        due = self.due(channel.name)
        own = (CHANNEL_DOWN, channel.name)
        return [alert for alert in due if alert.condition.key != own] or due


def report(installation: Installation, condition: Condition, now: datetime, line: str = "") -> None:
    """Notify people of a condition that no look finds, until `resolve`; or of an event.

    An event that says what another one of the last day said is not sent. alerts.log has a title and
    a line each time: `line`, or the condition's text. Where the table of what fires cannot be used,
    a message goes to all channels at once. Raises nothing.
    """
    state = AlertState.HAPPENED if condition.source == EVENT else AlertState.FIRING
    alert = Alert(state, condition, now)
    append(installation.files, f"{alert.title()}\n{one_line(line or condition.text)}", now)
    try:
        notify(installation, now, lambda known: _reported(known, condition, now))
    except Exception as error:
        log.warning("the firing alerts cannot be stored, so all channels get a message: %s", error)
        message = message_of([alert], installation.settings.runbook)
        for delivery in send_all(dict.fromkeys(channels(installation), message)):
            log.info("alert channel %s", delivery)


def _reported(known: Iterable[Firing], condition: Condition, now: datetime) -> list[Firing]:
    firing = {one.condition.key: one for one in known}
    if any(one.is_like(condition, now) for one in firing.values()):
        return [*firing.values()]
    new = Firing(condition, now)
    if condition.source != EVENT:
        new = firing.get(condition.key, new).reported(condition, now)
    return [*(firing | {condition.key: new.taken(LOG, now)}).values()]


def resolve(
    installation: Installation, is_over: Callable[[Condition], bool], now: datetime
) -> None:
    """Notify people that reported conditions are over, if any of these was firing."""

    def ended(known: list[Firing]) -> list[Firing]:
        return [one.ended(now) if is_over(one.condition) else one for one in known]

    with table_errors():
        known = history.list_firing(installation.tables)
    if ended(known) != known:
        notify(installation, now, ended)


def silence(installation: Installation, name: str, wanted: Silence, now: datetime) -> str:
    """Silence a condition until a time, except its end or a worse state; record it, and say so.

    UsageError if none of that name fires. A silence until now ends the one before. ShardpostError,
    with the silence in force, where it cannot be recorded.
    """
    with (
        table_errors(),
        exclusive(installation.files, LOCK, "sending alerts", wait=installation.files.lock_wait),
    ):
        known = history.list_firing(installation.tables)
        found = [one for one in known if one.condition.name == name]
        if not found:
            names = ", ".join(one.condition.name for one in known)
            said = f"expected one of {names}" if names else "nothing is"
            raise UsageError(f"{one_line(name)} is not firing: {said}")
        silenced = [one.silenced(wanted) for one in found]
        history.store_firing(installation.tables, found, silenced, now)
    kind = Kind.SILENCED if wanted.until > now else Kind.UNSILENCED
    about = f"alert/{name}"
    decisions_topic.record(
        installation.kafka,
        f"{installation.kafka.topic('decisions')}/{about}",
        Decision(about.encode(), kind, wanted.by, now, wanted.why),
        {"until": wanted.until.astimezone(UTC).isoformat(timespec="seconds").encode()},
        may_write=anyone,  # the alerts are this installation's own
        done=f"{one_line(name)} is {kind}; repeat it once Kafka answers",
    )
    if kind is Kind.UNSILENCED:
        return f"{one_line(name)}: no longer silenced; alerts again at the next check"
    return f"{one_line(name)}: silenced until {wanted.until:%Y-%m-%d %H:%M} UTC"
