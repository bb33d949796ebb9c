"""The declared topics: what the audit finds of them, and what is to be known beside it."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from shardpost.doctor.finding import Finding, error, ok, refused, unknown, warning
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from shardpost.topics.model import audit, finding
from shardpost.topics.model.cluster import Cluster, Expected, View
from shardpost.topics.model.finding import Finding as Departure
from shardpost.topics.observation import observe_topics, require_cluster
from shardpost.topics.topics_file import expected_topics, read_topics_file

MISSING = "missing-topic"  # said of all together


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check all declared topics, as they are at this moment."""
    try:
        file = read_topics_file(settings.topics_file)
        expected = expected_topics(settings, file)
        cluster = observe_topics(settings, [one.name for one in expected])
        require_cluster(settings, file, cluster)
    except ShardpostError as problem:
        yield refused("topics", problem)
        return
    view = View(cluster, tuple(expected), settings.bootstrap, now)
    wrong = [one for one in audit.findings(view, audit.TOPIC_RULES) if one.severity != "drift"]
    if missing := [str(one.topic) for one in wrong if one.rule == MISSING]:
        said = f"missing: {', '.join(missing)}"
        yield error("topics", said, "all declared topics", finding.APPLY)
    yield from (_of_audit(one) for one in wrong if one.rule != MISSING)
    yield from (unknown(f"topic {one.topic}", one.why) for one in cluster.unknown)
    if not wrong and not cluster.unknown:
        other = _of_other_counts(settings, expected, cluster)
        yield ok("topics", f"all {len(expected)} are there, as declared{other}")


def _of_audit(one: Departure) -> Finding:
    """Return a finding of the audit as one of the doctor."""
    make = error if one.severity == "loss" else warning
    check = f"topic {one.topic}"
    return make(check, f"{one.setting}={one.found}", f"{one.expected} ({one.why})", one.fix)


def _of_other_counts(settings: Settings, expected: Sequence[Expected], cluster: Cluster) -> str:
    """Return what to add where topics were created with another number of partitions."""
    counts = {one.name: len(cluster.topics[one.name].partitions) for one in expected}
    other = [name for name, count in counts.items() if count != settings.partitions]
    if not other:
        return ""
    return (
        f"; {len(other)} of them were created with another number of partitions than"
        f" SHARDPOST_PARTITIONS={settings.partitions}, which is for new topics: {other[0]} has"
        f" {counts[other[0]]}"
    )
