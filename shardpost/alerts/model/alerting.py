"""When people are told of what needs them: on a change of state, and once a day while it lasts.

Pure: what was known, and what is found now, to what is to be told and what is known then.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from shardpost.alerts.model.alert import Alert, AlertState, Condition, Key, Severity

AGAIN = timedelta(days=1)
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
    if _is_worse(condition, before.condition):
        as_told = replace(condition, severity=before.condition.severity)
        return result.tell(AlertState.FIRING, told, replace(firing, condition=as_told))
    if before.told_at + AGAIN <= now or before.told_at > now + MOST_AHEAD:
        return result.tell(AlertState.STILL_FIRING, told, firing)
    return result.keep(firing)


def _is_worse(now: Condition, before: Condition) -> bool:
    order = list(Severity)
    return order.index(now.severity) < order.index(before.severity)
