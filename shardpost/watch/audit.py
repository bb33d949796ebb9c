"""The audit of Kafka, for commands, the watch and programs; and what the doctor says of it.

The topics beside their declaration, the brokers, and the tables' newest snapshot.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.topics.declared import SHARE_HOLDERS
from shardpost.topics.model.audit import TOPIC_RULES, findings
from shardpost.topics.model.cluster import Built, Cluster, Expected, Unknown, View
from shardpost.topics.model.finding import APPLY, Finding, Severity
from shardpost.topics.observation import observe, observe_topics, require_cluster
from shardpost.topics.topics_file import expected_topics
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, unknown, warning


def audit(installation: Installation, now: datetime) -> list[Finding]:
    """Return every departure, the worst first.

    ShardpostError if Kafka does not answer at all, or is another cluster than declared; what only
    a part of it does not answer is a finding.
    """
    view = _view(installation, now, observe)
    built, problem = _built_with(installation, now)
    unknown = (*view.cluster.unknown, *([] if problem is None else [problem]))
    return findings(replace(view, cluster=replace(view.cluster, unknown=unknown), built=built))


def _view(
    installation: Installation,
    now: datetime,
    look: Callable[[Kafka, Sequence[Expected]], Cluster],
) -> View:
    """Return the cluster as `look` sees it, beside what is declared."""
    expected, file = expected_topics(installation)
    cluster = look(installation.kafka, expected)
    require_cluster(installation.kafka, file, cluster)
    return View(
        cluster,
        tuple(expected),
        installation.kafka.bootstrap,
        now,
        client=installation.kafka.client_settings,
        request_days=installation.settings.request_days,
    )


def _built_with(installation: Installation, now: datetime) -> tuple[Built | None, Unknown | None]:
    """Return what the newest snapshot was built with, or why that is not known."""
    try:
        newest = snapshots.newest(installation.tables)
    except ShardpostError as error:
        return None, Unknown(None, "tables", str(error))
    if newest is None:
        return None, None
    read = {topic: len(ends) for topic, ends in newest.end_offsets.items()}
    holders = installation.kafka.topic(SHARE_HOLDERS.name)
    scattered = {topic: str(found) for topic, found in newest.scattered_now(now).items()}
    return Built(newest.number, read, holders, newest.shards, scattered), None


MISSING_TOPIC = "missing-topic"  # said of all together


def check_topics(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Check all declared topics, as they are at this moment."""
    try:
        view = _view(
            installation,
            now,
            lambda _, wanted: observe_topics(installation.kafka, [one.name for one in wanted]),
        )
    except ShardpostError as problem:
        yield refused("topics", problem)
        return
    cluster, expected = view.cluster, view.expected
    wrong = [one for one in findings(view, TOPIC_RULES) if one.needs_attention]
    if missing := [str(one.topic) for one in wrong if one.rule == MISSING_TOPIC]:
        said = f"missing: {', '.join(missing)}"
        yield error("topics", said, "all declared topics", APPLY)
    yield from (_doctor_finding(one) for one in wrong if one.rule != MISSING_TOPIC)
    yield from (unknown(f"topic {one.topic}", one.why) for one in cluster.unknown)
    if not wrong and not cluster.unknown:
        other = _other_counts(installation.partitions, expected, cluster)
        yield ok("topics", f"all {len(expected)} are there, as declared{other}")


def _doctor_finding(one: Finding) -> DoctorFinding:
    """Return a finding of the audit as one of the doctor."""
    make = error if one.severity is Severity.LOSS else warning
    check = f"topic {one.topic}"
    return make(check, f"{one.setting}={one.found}", f"{one.expected} ({one.why})", one.fix)


def _other_counts(wanted: int, expected: Sequence[Expected], cluster: Cluster) -> str:
    """Return what to add where topics were created with another number of partitions."""
    counts = {one.name: len(cluster.topics[one.name].partitions) for one in expected}
    other = [name for name, count in counts.items() if count != wanted]
    if not other:
        return ""
    return (
        f"; {len(other)} of them were created with another number of partitions than"
        f" SHARDPOST_PARTITIONS={wanted}, which is for new topics: {other[0]}"
        f" has {counts[other[0]]}"
    )
