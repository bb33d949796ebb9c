"""What needs a person now, and the numbers that each lead to their page.

All of it is at hand: the newest snapshot, what is firing, and the last look of the DAG watch_kafka,
which is shown with its age. Kafka is only asked whether it listens.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost.alerts.history import LastValues, last_looks
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
from shardpost.topics.model.finding import Severity
from shardpost.values.schedules import longest_pause
from shardpost.watch.model.conditions import refused
from shardpost.wording import counted, duration_text

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


@dataclass
class Known:
    """What is known at once; of what cannot be read, why."""

    snapshot: Snapshot | None
    firing: list[Firing]
    looks: Mapping[str, LastValues]
    refusals: Mapping[str, Refusal]
    problems: list[str]

    @property
    def looked_at(self) -> datetime | None:
        """When the watch looked last."""
        return max((one.at for one in self.looks.values()), default=None)


@router.get("/")
def overview(visit: CurrentRequest) -> Response:
    """Show what needs a person, then the numbers."""
    installation, problems = visit.installation, list[str]()
    known = Known(
        _of(problems, lambda: snapshots.newest(installation.tables), None),
        _of(problems, lambda: firing(visit), []),
        _of(problems, lambda: last_looks(installation.tables, visit.now), {}),
        _of(problems, lambda: refusals(installation.files, visit.now), {}),
        problems,
    )
    found = sorted(_needs(visit, known), key=lambda one: (urgency(one), str(one.since)))
    silenced = sum(one.is_silenced(visit.now) for one in known.firing)
    document = {"needs": found, "looks": known.looks, "silenced": silenced}
    rows = [(str(one.severity), one.what, one.text, one.since, one.see) for one in found]
    return visit.answer(
        "overview.html",
        document,
        Listing(NEEDS, rows, ALL_WELL, total=len(found)),
        needs=found[:ROWS_OF_A_PAGE],
        known=known,
        follower=known.snapshot and following(installation.files, visit.now),
        never=NEVER,
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
