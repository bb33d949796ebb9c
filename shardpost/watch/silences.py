"""Silencing an alert, on record: who did so, until when, and why. For commands and the page.

The table of what fires has the silence; the topic `decisions` has it, too, for a year.
"""

from datetime import UTC, datetime

from shardpost.alerts import telling
from shardpost.alerts.model.firing import Firing, Silence
from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.errors import one_line
from shardpost.installation import Installation
from shardpost.kafka.transactions import anyone


def silence(installation: Installation, name: str, wanted: Silence, now: datetime) -> Firing:
    """Silence what fires under a name, and record that; return it.

    A silence until now ends the one before. UsageError if nothing of that name fires;
    ShardpostError, with the silence in force, where it cannot be recorded.
    """
    found = telling.silence(installation, name, wanted, now)
    kind = Kind.SILENCED if wanted.until > now else Kind.UNSILENCED
    about = f"alert/{name}"
    decisions_topic.record(
        installation.kafka,
        f"{installation.kafka.topic('decisions')}/{about}",
        Decision(about.encode(), kind, wanted.by, now, wanted.why),
        {"until": wanted.until.astimezone(UTC).isoformat(timespec="seconds").encode()},
        may_write=anyone,  # the alerts are this installation's own
        done=f"{one_line(name)} is {kind}; once Kafka answers, do it again",
    )
    return found


def silence_text(found: Firing, now: datetime) -> str:
    """Return what holds of a condition from now on, as one line."""
    name, until = one_line(found.condition.name), found.silenced_until
    if until is None or until <= now:
        return f"{name}: not silenced any more; it is told again at the next look"
    return f"{name}: silenced until {until:%Y-%m-%d %H:%M} UTC"
