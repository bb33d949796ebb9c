"""Results of a watch: values of metrics, and conditions by rules, which have runbook sections."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shardpost.alerts.model.alert import Condition
from shardpost.alerts.model.metrics import Measure
from shardpost.topics.model.finding import Severity
from shardpost.values.holding_rule import COUNTRY_UNKNOWN


@dataclass
class Observations:
    """What the watch found: values of metrics, and conditions that need a person.

    Of the sources in `unmeasured` not all is known: what was wrong before may still be.
    """

    measures: list[Measure] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    unmeasured: set[str] = field(default_factory=set)

    def measure(self, name: str, value: float, **labels: str) -> None:
        """Add a value."""
        self.measures.append(Measure(name, float(value), labels))

    def age(self, name: str, since: datetime, now: datetime, **labels: str) -> float:
        """Add the age of something in seconds, and return it; 0 for a future time."""
        seconds = max(0.0, (now - since).total_seconds())
        self.measure(name, seconds, **labels)
        return seconds

    def report(self, rule: "Rule", subject: str, *texts: str) -> None:
        """Add that a rule does not hold, of what, and what was found; and that without clients."""
        self.conditions.append(rule.broken(subject, *texts))

    def add(self, other: "Observations") -> None:
        """Add all that something else found."""
        self.measures += other.measures
        self.conditions += other.conditions
        self.unmeasured |= other.unmeasured


@dataclass(frozen=True)
class Rule:
    """A rule: the name of its page in the runbook, how bad it is, and what it means for whom."""

    name: str
    meaning: str
    severity: Severity = Severity.RISK

    def broken(self, subject: str, text: str, public: str = "") -> Condition:
        """Return that it does not hold, of what, and what was found; and that without clients."""
        return Condition(self.name, subject, self.severity, text, self.meaning, public=public)


class PublicRule(Rule):
    """A rule that never names clients: users without access to clients see its texts."""

    def broken(self, subject: str, text: str, public: str = "") -> Condition:
        """Return the same, all of it public."""
        return super().broken(subject, text, public or text)


DATA_LOST = PublicRule(
    "data-lost",
    "records were deleted before this reader read them, or may be at any moment: its results are"
    " wrong from then on",
    Severity.LOSS,
)
TIME_TO_LOSS = PublicRule(
    "time-to-loss", "records will be deleted before this reader has read them, unless it catches up"
)
SNAPSHOT_AGE = PublicRule(
    "snapshot-age",
    "the holders are as of that time, and the weekly e-mail is not sent until a week's last"
    " records are compacted",
)
COMPACTION_REFUSED = Rule(
    "compaction-refused",
    "nothing is published, and the holders do not change, until a person corrects or confirms it",
)
RUN_REFUSED = Rule(
    "run-refused",
    "the work of that run is not done until a person corrects or confirms it and it runs again",
)
UNKNOWN_EXCHANGE = PublicRule(
    "unknown-exchange",
    f"open positions on it count {COUNTRY_UNKNOWN}: they are missing from share-holders and from"
    " the e-mails of their clients",
)
LETTERS_OVERDUE = PublicRule(
    "letters-overdue", "failed records are not retried: their consumers lack them"
)
LETTERS_PARKED = PublicRule(
    "letters-parked",
    "records failed for good: nobody retries them until a person redrives or discards them",
)
EMAILS_UNKNOWN = Rule(
    "emails-unknown",
    "it is unknown whether clients got the e-mail of a week: they are not mailed again until a"
    " person decides",
)
EMAILS_FAILED = Rule(
    "emails-failed", "more clients got no e-mail of a week than the settings allow"
)
EMAILS_LATE = Rule(
    "emails-late",
    "records dated before a week's end were read after its audience was frozen: clients got no"
    " e-mail of that week, or one with other positions, and get no correction",
)
EMAILS_OPEN = PublicRule(
    "emails-open", "clients are waiting for their e-mail of a week, and no run is sending it"
)
EMAILS_MISSING = PublicRule(
    "emails-missing", "no client gets the e-mail of that week until a person starts it"
)
LISTS_TOO_LARGE = Rule(
    "lists-too-large",
    "readers of share-holders see how many positions these clients hold, but not which",
)
RUN_AGE = PublicRule(
    "run-age",
    "no new run starts for that key: equal requests are answered `already running`, others are"
    " recorded as `conflict`",
)
DISK_FULL = PublicRule("disk-full", "nothing can be compacted once the disk is full")
NOT_MEASURED = Rule("not-measured", "problems there raise no alert, and earlier ones may persist")


def refused(job: str, why: str) -> Condition:
    """Return that the last run of a job was refused."""
    is_compaction = job == "compact_positions"
    return COMPACTION_REFUSED.broken("", why) if is_compaction else RUN_REFUSED.broken(job, why)


GIB = 1 << 30
# Below this much a compaction of a few million positions may not find room for what it rewrites.
LEAST_FREE = 5 * GIB
WARN_BEFORE = timedelta(days=7)
# A rate over a shorter time says nothing: a rewritten table is space that comes back.
LEAST_TIME = timedelta(days=1)


def disk_full(
    history: Sequence[tuple[datetime, float]], now: datetime, free: float
) -> Condition | None:
    """Return that the disk is full soon, or None; `history`: (when, bytes free), oldest first."""
    if free < LEAST_FREE:
        text = f"{free / GIB:.1f} GiB are free: expected at least {LEAST_FREE / GIB:g} GiB"
        return DISK_FULL.broken("", text)
    at, was = next((one for one in history if one[0] <= now - LEAST_TIME), (now, free))
    gone = was - free
    if gone <= 0:
        return None
    left = (now - at) * (free / gone)
    if left >= WARN_BEFORE:
        return None
    text = (
        f"{free / GIB:.1f} GiB are free, and {gone / GIB:.1f} GiB were used since"
        f" {at:%Y-%m-%d %H:%M} UTC: at that rate the disk is full in"
        f" {left / timedelta(days=1):.1f} days"
    )
    return DISK_FULL.broken("", text)
