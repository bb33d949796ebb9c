"""Imports that were applied, as the topic `decisions` has them: under their id, for a year."""

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import Decision, Kind
from shardpost.kafka.offsets import partition_counts
from shardpost.kafka.partitioning import partition_of
from shardpost.kafka.records import Outgoing
from shardpost.position_import.model.import_ids import CONTENT_HEADER, AppliedImport
from shardpost.settings import Settings


def applied_import(settings: Settings, import_id: str) -> AppliedImport | None:
    """Return when and by whom an import was applied; None if it was not, or not to its end."""
    topic, about = settings.topic("decisions"), import_id.encode()
    partition = partition_of(about, partition_counts(settings, [topic])[topic])
    found = None
    for decision, headers in decisions_topic.of_partition(settings, partition, None):
        if decision.kind is Kind.IMPORTED and decision.about == about:
            content = headers.get(CONTENT_HEADER, b"").decode(errors="replace")
            found = AppliedImport(import_id, content, decision.who, decision.when)
    return found


def record_of(settings: Settings, applied: AppliedImport, why: str) -> Outgoing:
    """Return the record that says that an import was applied."""
    about = applied.import_id.encode()
    decision = Decision(about, Kind.IMPORTED, applied.who, applied.when, why)
    return decisions_topic.written(settings, decision, {CONTENT_HEADER: applied.content.encode()})
