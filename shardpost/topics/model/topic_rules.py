"""Rules of the audit about topics: whether they exist, their settings, replicas and partitions."""

from collections.abc import Iterator
from typing import NamedTuple

from shardpost.kafka.records import ONE_PARTITIONER
from shardpost.topics.declared import DEAD_LETTERS, PARKING_LOT, PASSED_ON_MORE, RETRIES
from shardpost.topics.model import finding
from shardpost.topics.model.cluster import (
    IN_SYNC,
    IN_SYNC_OF_THREE,
    REPLICAS,
    UNCLEAN,
    FoundTopic,
    Source,
    View,
)
from shardpost.topics.model.departures import (
    AT_LEAST,
    POLICY,
    TIMESTAMPS,
    departures,
    is_as_declared,
)
from shardpost.topics.model.finding import Finding, Severity
from shardpost.topics.model.plan import PARTITIONS, steps
from shardpost.topics.model.plan import REPLICAS as REPLICATION_FACTOR
from shardpost.wording import counted

LARGEST = "max.message.bytes"


class _Rule(NamedTuple):
    rule: str
    why: str
    severity: Severity = Severity.RISK


# Of settings that are not as declared.
_RULES = {
    POLICY: _Rule(
        "cleanup-policy",
        "Kafka removes records by a different rule than this topic needs",
        Severity.LOSS,
    ),
    "retention.ms": _Rule("retention", "records are deleted while they are still needed"),
    "retention.bytes": _Rule("retention", "a burst of records deletes unread ones"),
    "delete.retention.ms": _Rule(
        "tombstone-retention",
        "a reader that is behind for longer misses tombstones: closed positions remain open",
    ),
    "min.compaction.lag.ms": _Rule(
        "compaction-lag", "superseded records may be removed before they are read"
    ),
    LARGEST: _Rule("message-size", "larger records are refused"),
    TIMESTAMPS: _Rule(
        "timestamp-type", "its timestamps come from a different clock than its readers expect"
    ),
    UNCLEAN: _Rule(
        "unclean-election",
        "a replica that is behind can become leader, and the records that it lacks are lost",
    ),
    PARTITIONS: _Rule(
        "declared-partitions",
        "work is spread over a different number of partitions than intended",
        Severity.DRIFT,
    ),
}
_OTHER = _Rule("other-setting", "it differs from its declaration", Severity.DRIFT)
SETTING_RULES = (*_RULES.values(), _OTHER)


def missing_topic(view: View) -> Iterator[Finding]:
    """Find a declared topic that does not exist; Kafka may create it with its defaults."""
    creates = any(
        name == "auto.create.topics.enable" and one.value == "true"
        for config in view.cluster.configs.values()
        for name, one in config.items()
    )
    why = "nothing can be written to it or read from it"
    if creates:
        why = (
            "auto.create.topics.enable=true: at the first write Kafka creates it with default"
            " settings, and deletes records after some time"
        )
    for one in view.expected:
        if one.name not in view.cluster.topics:
            yield Finding(
                severity=Severity.LOSS if creates else Severity.RISK,
                topic=one.name,
                setting="topic",
                found="missing",
                expected="a topic",
                why=why,
                fix=finding.APPLY,
            )


def topic_settings(view: View) -> Iterator[Finding]:
    """Find settings that are not as declared; that of replicas in sync has a rule of its own."""
    for one, found in view.there:
        for step in steps(one, found, view.bootstrap):
            if step.setting == IN_SYNC:
                continue
            rule = _RULES.get(step.setting, _OTHER)
            yield Finding(
                rule=rule.rule,
                severity=rule.severity,
                topic=one.name,
                setting=step.setting,
                found=step.found,
                source=source_of(found, step.setting),
                expected=f"{step.expected}{' or more' * (step.setting in AT_LEAST)}",
                why=rule.why,
                fix=step.fix,
            )


def letter_sizes(view: View) -> Iterator[Finding]:
    """Find topics that refuse letters which `dead-letters` accepts and passes on to them."""
    sizes = {one.product: (one, found) for one, found in view.there if found.value(LARGEST)}
    if DEAD_LETTERS.name not in sizes:
        return
    store, letters = sizes[DEAD_LETTERS.name]
    least = int(letters.value(LARGEST) or 0) + PASSED_ON_MORE
    for product in (RETRIES.name, PARKING_LOT.name):
        if product not in sizes or LARGEST in departures(*sizes[product]):
            continue  # that is another finding
        one, found = sizes[product]
        value = str(found.value(LARGEST))
        if int(value) < least:
            yield Finding(
                topic=one.name,
                setting=LARGEST,
                found=value,
                source=source_of(found, LARGEST),
                expected=f"{least} or more, since {store.name} accepts {letters.value(LARGEST)}",
                why="a letter that the store accepts can be neither retried nor parked",
                fix=finding.set_on_topic(view.bootstrap, one.name, LARGEST, str(least)),
            )


def source_of(found: FoundTopic, setting: str) -> Source:
    """Return where an effective value, or the number of partitions, comes from."""
    return found.config[setting].source if found.config and setting != PARTITIONS else "topic"


def replication_factor(view: View) -> Iterator[Finding]:
    """Find topics with fewer than three replicas on a cluster that could have them."""
    known = view.cluster.known_brokers
    for one, found in () if view.has_few_brokers else view.there:
        # Fewer than three only as declared of a user's own.
        is_own = one.product is None and not one.is_internal
        least = one.replicas if is_own else max(one.replicas, REPLICAS)
        if found.replicas < least:
            yield Finding(
                severity=Severity.RISK if found.replicas < REPLICAS else Severity.DRIFT,
                topic=one.name,
                setting=REPLICATION_FACTOR,
                found=str(found.replicas),
                source="topic",
                expected=str(least),
                why="if a broker's disk is lost, so are records that no other broker has",
                fix=finding.reassign(view.bootstrap, one.name, found, known, least),
            )


def min_insync_replicas(view: View) -> Iterator[Finding]:
    """Find topics that acknowledge a record which only one replica has."""
    for one, found in () if view.has_few_brokers else view.there:
        value = found.value(IN_SYNC)
        wanted = one.config.get(IN_SYNC, str(IN_SYNC_OF_THREE))
        if found.replicas < REPLICAS or value is None or is_as_declared(IN_SYNC, wanted, value):
            continue
        yield Finding(
            topic=one.name,
            setting=IN_SYNC,
            found=value,
            source=source_of(found, IN_SYNC),
            expected=f"{wanted} or more",
            why="a record is acknowledged while only one broker has it",
            fix=next(
                (step.fix for step in steps(one, found, view.bootstrap) if step.setting == IN_SYNC),
                finding.set_on_topic(view.bootstrap, one.name, IN_SYNC, wanted),
            ),
        )


def run_topics(view: View) -> Iterator[Finding]:
    """Find `run-requests` and `run-commands` with different numbers of partitions."""
    requests, asked = view.product("run-requests")
    issued_in, issued = view.product("run-commands")
    if not asked or not issued or len(asked.partitions) == len(issued.partitions):
        return
    yield Finding(
        topic=issued_in,
        setting="partitions",
        found=str(len(issued.partitions)),
        source="topic",
        expected=f"{len(asked.partitions)}, as {requests} has",
        why="no run is started on request",
        fix="wait until all runs have ended, then delete both topics and run `shardpost topics"
        " apply`",
    )


def partitions_of_tables(view: View) -> Iterator[Finding]:
    """Find topics with another number of partitions than the newest snapshot."""
    if view.built is None:
        return
    read = {**view.built.partitions, view.built.holders: view.built.shards}
    for topic, expected in read.items():
        found = view.cluster.topics.get(topic)
        count = len(found.partitions) if found else expected
        if count == expected:
            continue
        severity, fix = Severity.DRIFT, "shardpost compact"
        why = "the records of a key are in two partitions; the next compaction reads both"
        if topic == view.built.holders:
            severity, why = Severity.RISK, "no compaction runs: clients would be in other shards"
            declare = f"declare it with {counted(expected, 'partition')}"
            fix = f"delete {topic}, {declare}, `{finding.APPLY}`"
        elif count < expected:
            severity, why = Severity.LOSS, "the topic was recreated, and records are gone"
            fix = "shardpost compact --reconcile"
        yield Finding(
            severity=severity,
            topic=topic,
            setting="partitions",
            found=str(count),
            source="topic",
            expected=f"{expected}, as at snapshot {view.built.snapshot}",
            why=why,
            fix=fix,
        )


def scattered_keys(view: View) -> Iterator[Finding]:
    """Find keys with records in several partitions, which added partitions do not explain."""
    for topic, found in sorted(view.built.scattered.items()) if view.built else ():
        yield Finding(
            topic=topic,
            setting="partition of a key",
            found=f"several, of {found}",
            expected="one, the same for all producers",
            why="Kafka orders and compacts records within a partition only: among records that "
            "one compaction reads, timestamps decide, and a record closed by a tombstone remains in"
            " the other partition",
            fix=ONE_PARTITIONER,
        )
