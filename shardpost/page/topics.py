"""The topics: what the audit finds, how far readers are behind, and when they lose data."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form
from fastapi.responses import Response

from shardpost.alerts.history import last_looks
from shardpost.delta.query import table_errors
from shardpost.errors import ShardpostError
from shardpost.page import access
from shardpost.page.record_outcomes import own_topics, topic_link
from shardpost.page.rendering import Link, Listing, page_of
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest
from shardpost.wording import duration_text

router = APIRouter(prefix="/topics", dependencies=[access.sees(access.KAFKA)])
FINDINGS = ("severity", "topic", "setting", "found", "expected", "why", "fix", "more")
READERS = ("group", "topic", "records behind", "time behind", "time to loss")
NOTHING_FOUND = "No findings: all is as declared."
NO_READER = "No reader has committed an offset, as of the last run of the DAG watch_kafka."
LAG = "lag"


@router.get("")
def topics(visit: CurrentRequest, page: PageNumber = 1) -> Response:
    """Show what the audit finds now, and the readers as they were at the last look."""
    problem, found, names = None, list[Any](), list[tuple[Link | str, int]]()
    try:
        found, names = _audited(visit)
    except ShardpostError as error:
        problem = str(error)
    last = _looked(visit)
    readers = list(_readers(visit, last)) if last else []
    listing = Listing(FINDINGS, [_finding_row(one, visit) for one in found], NOTHING_FOUND)
    return visit.answer(
        "topics.html",
        found,
        listing,
        problem=problem,
        own_topics=own_topics(visit.installation),
        topics=Listing(("topic", "partitions"), names, "No declared topic exists in Kafka."),
        readers=page_of(readers, READERS, page, NO_READER),
        looked_at=last.at if last else None,
    )


def _audited(visit: PageRequest) -> tuple[list[Any], list[tuple[Link | str, int]]]:
    from shardpost.topics.model.audit import findings
    from shardpost.watch.audit import view

    seen = view(visit.installation, visit.now)
    there = [(one.name, found) for one, found in seen.there if not one.is_internal]
    return findings(seen), [
        (topic_link(visit, name), len(found.partitions)) for name, found in there
    ]


def _finding_row(one: Any, visit: PageRequest) -> tuple[Any, ...]:
    said = (one.setting, f"{one.found} ({one.source})", one.expected, one.why, one.fix)
    return (str(one.severity), one.topic, *said, visit.runbook(one.rule))


def _readers(visit: PageRequest, last: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each group and topic, soonest loss first."""
    metrics = ("records_behind", "behind_seconds", "least_time_to_loss_seconds")
    values: dict[tuple[str, str], dict[str, float]] = {}
    for metric in metrics:
        for labels, value in last.of(metric):
            values.setdefault((labels["group"], labels["topic"]), {})[metric] = value
    never = float("inf")
    ordered = sorted(values.items(), key=lambda one: (one[1].get(metrics[2], never), one[0]))
    for (group, topic), of_both in ordered:
        behind, late, left = (of_both.get(metric) for metric in metrics)
        yield (
            Link(group, visit.url("topics/lag", group=group, topic=topic)),
            topic_link(visit, topic),
            None if behind is None else int(behind),
            None if late is None else duration_text(late),
            time_to_loss(left),
        )


def time_to_loss(seconds: float | None) -> str:
    """Return how long until a record is lost, or that none will be."""
    if seconds is None:
        return "never"
    return duration_text(seconds) if seconds else "now"


@router.get("/lag")
def lag(visit: CurrentRequest, group: str, topic: str) -> Response:
    """Show how far a group is behind in a topic."""
    last = _last(visit, group, topic)
    return visit.answer("lag.html", last, group=group, topic=topic, last=last)


@router.post("/look", dependencies=access.acts(access.KAFKA))
def look(visit: CurrentRequest, back: Annotated[Literal["", "topics"], Form()] = "") -> Response:
    """Have the DAG watch_kafka look now, unless it is looking."""
    dag = visit.own.id(access.KAFKA)
    run = access.unfinished_run(dag) or access.start_run(visit.name, dag, {}, "look now")
    return visit.back_to(back, f"{run} of {dag} is measuring: its results appear here when it ends")


def _last(visit: PageRequest, group: str, topic: str) -> dict[str, Any] | None:
    """Return what the last look of the watch found of the topic as a whole; None: no offsets."""
    last = _looked(visit)
    if last is None:
        return {}
    for reader, read, *values in _readers(visit, last):
        if (reader.text, getattr(read, "text", read)) == (group, topic):
            return {**dict(zip(READERS[2:], values, strict=True)), "as of": last.at}
    return None


def _looked(visit: PageRequest) -> Any:
    """Return what the last look that could ask for lag has found; None if none has."""
    with table_errors():
        return last_looks(visit.installation.tables, visit.now).get(LAG)
