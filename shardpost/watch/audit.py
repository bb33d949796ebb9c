"""The audit of Kafka, for commands, the watch and programs; and the doctor's checks of Kafka.

The audit looks at topics beside their declaration, brokers, and the tables' newest snapshot.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from shardpost import tables
from shardpost.dead_letters.model.letter_format import LetterState
from shardpost.delta import snapshots
from shardpost.delta.query import table_errors
from shardpost.delta.snapshot import SCATTERED_FOR
from shardpost.embedded.daemons import port_is_free
from shardpost.errors import ShardpostError
from shardpost.holders import inputs
from shardpost.installation import Installation
from shardpost.kafka.greeting import broker_level
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.records import total_size
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.topics import guards
from shardpost.topics.declared import SHARE_HOLDERS
from shardpost.topics.model.audit import TOPIC_RULES, findings
from shardpost.topics.model.cluster import (
    WHICH_RELEASE,
    WITHOUT_LOSS,
    Built,
    Cluster,
    Expected,
    Unknown,
    View,
    known_loss,
    release,
)
from shardpost.topics.model.finding import APPLY, Finding, Severity
from shardpost.topics.observation import observe, observe_topics, require_cluster
from shardpost.topics.topics_file import expected_topics
from shardpost.values.topic_names import TopicName
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, unknown, warning
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.week_state import WeekState
from shardpost.wording import counted


def audit(installation: Installation, now: datetime) -> list[Finding]:
    """Return every departure, the worst first.

    ShardpostError if Kafka does not answer at all, or is another cluster than declared; what only
    a part of it does not answer is a finding.
    """
    return findings(view(installation, now))


def view(
    installation: Installation,
    now: datetime,
    look: Callable[[Kafka, Sequence[Expected]], Cluster] = observe,
) -> View:
    """Return the cluster with its expected state; raises what `audit` raises."""
    expected, file = expected_topics(installation)
    cluster = look(installation.kafka, expected)
    require_cluster(installation.kafka, file, cluster)
    built, problems = _built_with(installation, now)
    return View(
        replace(cluster, unknown=(*cluster.unknown, *problems)),
        tuple(expected),
        installation.kafka.bootstrap,
        now,
        built,
        request_days=installation.settings.request_days,
    )


def _built_with(installation: Installation, now: datetime) -> tuple[Built | None, list[Unknown]]:
    try:
        with table_errors():
            newest = snapshots.newest(installation.tables)
    except ShardpostError as error:
        return None, [Unknown(None, "tables", str(error))]
    if newest is None:
        return None, []
    read = {topic: len(ends) for topic, ends in newest.end_offsets.items()}
    holders = installation.kafka.topic(SHARE_HOLDERS.name)
    found = newest.scattered.items()
    scattered = {topic: str(one) for topic, one in found if now - one.at < SCATTERED_FOR}
    return Built(newest.number, read, holders, newest.shards, scattered), []


MISSING_TOPIC = "missing-topic"  # said of all together


def check_topics(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Check all declared topics, as they are at this moment."""
    seen = view(
        installation,
        now,
        lambda _, wanted: observe_topics(installation.kafka, [one.name for one in wanted]),
    )
    cluster, expected = seen.cluster, seen.expected
    wrong = [one for one in findings(seen, TOPIC_RULES) if one.needs_attention]
    if missing := [str(one.topic) for one in wrong if one.rule == MISSING_TOPIC]:
        said = f"missing: {', '.join(missing)}"
        yield error("topics", said, "all declared topics", APPLY)
    for one in wrong:
        if one.rule != MISSING_TOPIC:
            make = error if one.severity is Severity.LOSS else warning
            expects = f"{one.expected} ({one.why})"
            yield make(f"topic {one.topic}", f"{one.setting}={one.found}", expects, one.fix)
    unread = [one for one in cluster.unknown if one.topic]  # the tables have checks of their own
    yield from (unknown(f"topic {one.topic}", one.why) for one in unread)
    if not wrong and not unread:
        said = f"all {len(expected)} exist as declared"
        counts = {one.name: len(cluster.topics[one.name].partitions) for one in expected}
        usual = installation.settings.partitions
        other = [name for name, count in counts.items() if count != usual]
        if other:
            said += (
                f"; {len(other)} of them were created with another number of partitions than"
                f" SHARDPOST_PARTITIONS={usual}, which applies to new topics: {other[0]} has"
                f" {counts[other[0]]}"
            )
        yield ok("topics", said)


def check_inputs(installation: Installation, now: datetime) -> DoctorFinding:
    """Count new records as a compaction does, without reading them; its errors are those of it."""
    _, unread = inputs.Inputs(installation).state(now=now)
    found = f"{counted(total_size(unread.ranges), 'offset')} not yet in a snapshot"
    if unread.open_transactions:
        hidden = "; ".join(map(str, unread.open_transactions))
        found = f"{found}; more after an open transaction: {hidden}"
        cure = "wait for it to finish, or abort it: docs/compaction.md, An open transaction"
        return warning("inputs", found, "transactions that finish within seconds", cure)
    return ok("inputs", found)


LEDGER: TopicName = "weekly-emails"
# Not the command that its error names: clients may be mailed twice by it, so a person decides.
DECIDE_LEDGER = "docs/weekly-email.md, The ledger was lost"
# Nothing can replace them: docs/stores.md.
STORES: tuple[TopicName, ...] = ("dead-letters", "parking-lot", "run-commands", LEDGER)


def check_stores(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Check each store as the job that uses it does; the ledger for the last week that ended."""
    week, existing = IsoWeek.last_ended(now), installation.kafka.metadata().topics
    for name in STORES:
        topic = installation.kafka.topic(name)
        check_name = f"store {topic}"
        if topic not in existing:
            yield unknown(check_name, "not checked: the topic is missing")
            continue
        try:
            if name == LEDGER:
                WeekState(installation, week).require_ledger()
            else:
                guards.inspect_stores(installation, name)
        except ShardpostError as problem:
            yield refused(check_name, problem, DECIDE_LEDGER if name == LEDGER else None)
        else:
            yield ok(check_name, "compacted, no known losses")


def check_letters(installation: Installation, now: datetime) -> DoctorFinding:
    """Count the dead letters that are waiting for a retry, and those parked for a person."""
    try:
        letters = tables.letters(installation.settings, closed_since=now)
        states = Counter(step.state for step in letters if step.is_in_topic)
    except ShardpostError as problem:
        return unknown("letters", f"not counted: {problem}")
    waiting, parked = states[LetterState.WAITING], states[LetterState.PARKED]
    found = f"{waiting} waiting for a retry, {parked} parked"
    if parked:
        return warning("letters", found, "none parked", "shardpost letters list --state parked")
    return ok("letters", found)


def check_kafka(installation: Installation, now: datetime) -> Iterator[DoctorFinding]:
    """Check the broker; if it answers, all that is in it."""
    if not is_reachable(installation.kafka, installation.kafka.timeout):
        is_free = port_is_free(installation.settings.kafka_port)
        cure = "shardpost up" if is_free else "see the fix of `port of kafka`"
        kafka = installation.kafka
        found = f"no answer from {kafka.bootstrap} within {kafka.timeout:g} s"
        if kafka.bootstrap_servers:
            cure = (
                "set SHARDPOST_BOOTSTRAP_SERVERS (and SHARDPOST_KAFKA__…) to a Kafka that answers"
            )
            if not kafka.why_nobody_listens():
                found = kafka.why_not_admitted() or found
        yield error("kafka", found, "an answer", cure)
        yield from (unknown(name, "not checked: Kafka does not answer") for name in IN_KAFKA)
        return
    yield ok("kafka", f"{installation.kafka.bootstrap} answers")
    for name, check in IN_KAFKA.items():
        try:
            with table_errors():
                yield from check(installation, now)
        except ShardpostError as problem:
            yield refused(name, problem)


def check_owner(installation: Installation) -> Iterator[DoctorFinding]:
    """Say that this installation does not own the topics; nothing if it does, or nobody."""
    try:
        guards.require_owner_to_begin(installation)
    except guards.NotOwnerError as problem:
        yield refused("owner", problem, "work in the owner's home: set SHARDPOST_HOME")
    except ShardpostError:
        return  # what is missing is a finding of the topics


def check_version(kafka: Kafka) -> DoctorFinding:
    """Check that this release is not known to lose the ends of transactions."""
    name = "kafka version"
    try:
        level = broker_level(kafka.config(), kafka.timeout)
    except (OSError, ValueError) as problem:
        return unknown(name, f"no answer: {problem}")
    if level is None:
        return unknown(name, "not reported by the broker: older than 4.0, or not Apache Kafka")
    if loss := known_loss(found := release(level)):
        return warning(name, f"Kafka {found}, which {loss}", WITHOUT_LOSS, WHICH_RELEASE)
    return ok(name, f"Kafka {found}")


# What is asked of a broker that answers; none can stop another.
IN_KAFKA: dict[str, Callable[[Installation, datetime], Iterable[DoctorFinding]]] = {
    "kafka version": lambda installation, _: [check_version(installation.kafka)],
    "owner": lambda installation, _: check_owner(installation),
    "topics": check_topics,
    "stores": check_stores,
    "letters": lambda installation, now: [check_letters(installation, now)],
    "inputs": lambda installation, now: [check_inputs(installation, now)],
}
