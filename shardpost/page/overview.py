"""What needs a person now, and the numbers that each lead to their page.

All of it is at hand: the newest snapshot, what is firing, and the last look of the DAG watch_kafka,
which is shown with its age. Kafka is only asked whether it listens.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost.alerts.model.alert import Firing, urgency
from shardpost.delta import snapshots
from shardpost.delta.query import table_errors
from shardpost.delta.snapshot import NEVER, Snapshot
from shardpost.errors import ShardpostError
from shardpost.holders.following import following
from shardpost.locks.refused_runs import Refusal, refusals
from shardpost.page.access import KAFKA, sees
from shardpost.page.alerts import firing, needs_a_person, place_of, title_of
from shardpost.page.record_outcomes import with_links
from shardpost.page.rendering import ROWS_OF_A_PAGE, Link, Listing
from shardpost.page.request import LISTEN_SECONDS, CurrentRequest, PageRequest
from shardpost.page.topics import time_to_loss
from shardpost.topics.model.finding import Severity
from shardpost.values.schedules import longest_pause
from shardpost.watch.model.conditions import UNKNOWN_EXCHANGE, refused
from shardpost.wording import counted, duration_text, in_bytes

if TYPE_CHECKING:
    from shardpost.alerts.history import LastValues

router = APIRouter(dependencies=[sees(KAFKA)])
NEEDS = ("severity", "what", "found", "since", "see")
ALL_WELL = "Nothing needs a person."
T = TypeVar("T")


@dataclass(frozen=True)
class Need:
    """Something that needs a person, where to see more, its alert, and when data will be lost."""

    severity: Severity
    what: str
    text: str
    since: datetime | None
    see: Link
    alert: str | None = None
    loses_at: datetime | None = None
    title: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        of_need = {"severity": str(self.severity), "what": self.what, "text": self.text}
        return {**of_need, "since": self.since, "see": self.see.url, "alert": self.alert}


@dataclass(frozen=True)
class Card:
    """A number, what it is, and the page that it leads to; `at` is when it was measured."""

    title: str
    value: str
    more: str
    url: str
    at: datetime | None = None


@dataclass
class Known:
    """What is known at once; of what cannot be read, why."""

    snapshot: Snapshot | None
    firing: list[Firing]
    looks: "Mapping[str, LastValues]"
    refusals: Mapping[str, Refusal]
    problems: list[str]

    @property
    def looked_at(self) -> datetime | None:
        """When the watch looked last."""
        return max((one.at for one in self.looks.values()), default=None)


@router.get("/")
def overview(visit: CurrentRequest) -> Response:
    """Show what needs a person, then the numbers."""
    from shardpost.alerts.history import last_looks

    installation, problems = visit.installation, list[str]()
    known = Known(
        _of(problems, lambda: snapshots.newest(installation.tables), None),
        _of(problems, lambda: firing(visit), []),
        _of(problems, lambda: last_looks(installation.tables, visit.now), {}),
        _of(problems, lambda: refusals(installation.files, visit.now), {}),
        problems,
    )
    found = sorted(_needs(visit, known), key=lambda one: (urgency(one), str(one.since)))
    cards = list(_cards(visit, known))
    silenced = sum(one.is_silenced(visit.now) for one in known.firing)
    document = {"needs": found, "cards": cards, "silenced": silenced}
    rows = [(str(one.severity), one.what, one.text, one.since, one.see) for one in found]
    return visit.answer(
        "overview.html",
        document,
        Listing(NEEDS, rows, ALL_WELL, total=len(found)),
        needs=found[:ROWS_OF_A_PAGE],
        cards=cards,
        with_links=with_links,
        silenced=silenced,
        is_new=known.snapshot is None and not known.problems,
        looked_at=known.looked_at,
    )


def _of(problems: list[str], ask: Callable[[], T], otherwise: T) -> T:
    """Return an answer; of one that is not to be had, note why."""
    try:
        with table_errors():
            return ask()
    except ShardpostError as error:
        if str(error) not in problems:
            problems.append(str(error))
        return otherwise


def _needs(visit: PageRequest, known: Known) -> Iterator[Need]:
    tables = Link("Tables", visit.url("tables"))
    for problem in known.problems:
        yield Need(Severity.LOSS, "tables", problem, None, tables)
    for one in known.firing:
        if needs_a_person(one, visit):
            condition = one.condition
            see, name = place_of(condition, visit), condition.name
            said, more = condition.text, (name, condition.loses_at, title_of(condition))
            yield Need(condition.severity, name, said, one.since, see, *more)
    names = {one.condition.name for one in known.firing}
    for job, refusal in known.refusals.items():
        broken = refused(job, refusal.why)
        if broken.name not in names:
            text = broken.text if visit.sees_clients else broken.meaning
            see = place_of(broken, visit)
            yield Need(broken.severity, broken.name, text, refusal.at, see, title=title_of(broken))
    unknown = known.snapshot.counts.unknown if known.snapshot else None
    is_told = any(one.condition.rule == UNKNOWN_EXCHANGE.name for one in known.firing)
    if unknown and unknown.unknown_positions and not is_told:
        text = f"{unknown}: not counted"
        yield Need(Severity.RISK, "unknown exchanges", text, None, tables)
    yield from _of_kafka(visit)
    yield from _of_watch(visit, known)
    runs = known.looks.get("runs")
    conflicts = int((runs and runs.one("run_conflicts")) or 0)
    if runs and conflicts:
        text = f"{counted(conflicts, 'request')} did not run: another payload was active"
        see = Link("Run requests", visit.url("runs"))
        title = "Run requests conflict"
        yield Need(Severity.DRIFT, "run request conflicts", text, runs.at, see, title=title)


def _of_kafka(visit: PageRequest) -> Iterator[Need]:
    kafka = visit.installation.kafka
    if why := kafka.why_nobody_listens(LISTEN_SECONDS):
        text = f"{kafka.bootstrap} does not answer: {why}; `shardpost doctor` shows more"
        yield Need(Severity.RISK, "kafka", text, None, Link("Topics", visit.url("topics")))


def _of_watch(visit: PageRequest, known: Known) -> Iterator[Need]:
    """Report that the watch does not run: no alerts are sent then."""
    dag, at = "watch_kafka", known.looked_at
    most = 2 * longest_pause(visit.installation.settings.watch_schedule)
    if known.snapshot is None and at is None:
        return
    if at is None or visit.now - at > most:
        ago = f"has not run for {duration_text(visit.now - at)}" if at else "has not run yet"
        text = f"the DAG {dag} {ago}: no alerts since then; expected each run to finish"
        yield Need(Severity.RISK, "watch", text, at, Link(dag, visit.dag_url(dag)))


def _cards(visit: PageRequest, known: Known) -> Iterator[Card]:
    yield _snapshot_card(visit, known.snapshot)
    makers = {
        "lag": _lag_card,
        "emails": _emails_card,
        "letters": _letters_card,
        "runs": _runs_card,
        "sizes": _sizes_card,
    }
    for source, make in makers.items():
        if source in known.looks:
            yield make(visit, known.looks[source])
    active = [one for one in known.firing if one.ended_at is None]
    yield Card("Alerts", str(len(active)), "firing, or happened today", visit.url("alerts"))


def _snapshot_card(visit: PageRequest, newest: Snapshot | None) -> Card:
    if newest is None:
        return Card("Snapshot", "none", "no snapshot yet", visit.url("tables/snapshots"))
    known, counts = newest.as_known(visit.now), newest.counts
    age = "age unknown"
    if known.looked_at != NEVER:
        age = f"{duration_text(visit.now - known.looked_at)} old"
    held = f"{counted(counts.holders, 'holder')} of {counted(counts.held, 'position')}"
    more = f"snapshot {newest.number}: {held}"
    if one := following(visit.installation.files, visit.now):
        more += f"; {one.summary(visit.now)}"
    return Card("Snapshot", age, more, visit.url("tables/snapshots"))


def _lag_card(visit: PageRequest, last: "LastValues") -> Card:
    left = [
        (value, f"{labels['group']} in {labels['topic']}")
        for labels, value in last.of("least_time_to_loss_seconds")
    ]
    seconds, where = min(left, default=(None, "no unread records are at risk"))
    if seconds is not None and last.at is not None:
        where = f"{where}, from about {last.at + timedelta(seconds=seconds):%Y-%m-%d %H:%M} UTC on"
        seconds = max(0.0, seconds - (visit.now - last.at).total_seconds())
    return Card("Time to loss", time_to_loss(seconds), where, visit.url("topics"), last.at)


def _emails_card(visit: PageRequest, last: "LastValues") -> Card:
    weeks: dict[str, dict[str, int]] = {}
    for labels, value in last.of("emails"):
        weeks.setdefault(labels["week"], {})[labels["state"]] = int(value)
    if not weeks:
        return Card("Weekly e-mails", "none", "no week is frozen yet", visit.url("emails"), last.at)
    week = max(weeks)
    states = weeks[week]
    others = [f"{count:,} {name}" for name, count in states.items() if count and name != "sent"]
    sent = f"{states.get('sent', 0):,} of {sum(states.values()):,} sent"
    more = f"{week}: {', '.join(others) or 'all'}"
    return Card("Weekly e-mails", sent, more, visit.url("emails/week", week=week), last.at)


def _letters_card(visit: PageRequest, last: "LastValues") -> Card:
    states = last.by_label("letters", "state")
    waiting, parked = (int(states.get(state, 0)) for state in ("waiting", "parked"))
    more = f"parked; {waiting:,} waiting for a retry"
    return Card("Dead letters", f"{parked:,}", more, visit.url("letters"), last.at)


def _runs_card(visit: PageRequest, last: "LastValues") -> Card:
    states = last.by_label("runs", "state")
    oldest = last.one("run_age_seconds")
    if oldest is not None and last.at is not None:
        oldest += (visit.now - last.at).total_seconds()
    more = f"oldest for {duration_text(oldest)}" if oldest is not None else "all keys are free"
    count = int(sum(states.values()))
    return Card("Active run keys", f"{count:,}", more, visit.url("runs"), last.at)


def _sizes_card(visit: PageRequest, last: "LastValues") -> Card:
    sizes, free = last.by_label("table_bytes", "table"), last.one("disk_free_bytes")
    more = counted(len(sizes), "table")
    if free is not None:
        more = f"{more}; {in_bytes(free)} of disk space free"
    return Card("Tables", in_bytes(sum(sizes.values())), more, visit.url("tables"), last.at)
