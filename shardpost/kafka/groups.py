"""The consumer groups of the cluster: their members' partitions, and what they have committed.

Their coordinators are asked in a process of its own, which runs this module, is given a question by
standard input, and is asked again if it dies. librdkafka 2.16 aborts the process that asks if the
connection to a coordinator is lost just then (`eonce->refcnt > 0`, its issue 3663; the correction,
its pull request 5397, is in no release), and of an answer to a request for a group's offsets, too
(its issue 5040).

First, all coordinators have to be ready to answer. One that has just taken over, or has just
started, leaves its groups out of a list of all groups without a word. So it is asked first for a
group that nobody has: to that it says that it is not ready.
"""

import itertools
import os
import pickle
import resource
import subprocess
import sys
import warnings
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from shardpost.kafka.kafka import Kafka, Patience
from shardpost.kafka.records import TopicPartition, partition_of_group
from shardpost.waiting import attempts

OFFSETS_TOPIC = "__consumer_offsets"
# Not `-m`: what it answers would be of another module.
ASKING = (sys.executable, "-c", "from shardpost.kafka.groups import main; main()")
# Of one question: it waits for coordinators, then for three answers.
MOST_TIMEOUTS = 5
ASK_AGAIN_SECONDS = 0.2
_NOT_READY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}


def await_coordinators(client: AdminClient, seconds: float) -> tuple[int, set[int]]:
    """Wait until every coordinator is ready, within a time limit.

    Return how many partitions `__consumer_offsets` has, and those whose coordinators are not ready.
    Without that topic there are no groups. KafkaException if Kafka does not answer.
    """
    found = client.list_topics(timeout=seconds).topics.get(OFFSETS_TOPIC)
    count = len(found.partitions) if found and not found.error else 0
    # For each partition, the name of a group that would be in it, and that nobody has.
    left: dict[int, str] = {}
    numbers = itertools.count()
    while len(left) < count:
        name = f"shardpost-asks-{next(numbers)}"
        left.setdefault(partition_of_group(name, count), name)
    for _ in attempts(seconds, ASK_AGAIN_SECONDS):
        if not left:
            break
        asked = client.describe_consumer_groups([*left.values()], request_timeout=seconds)
        left = {number: name for number, name in left.items() if not _is_ready(asked[name])}
    return count, set(left)


def _is_ready(answer: "Future[Any]") -> bool:
    """Tell whether it answered, even with an error about the group."""
    error = answer.exception()
    return error is None or error.args[0].code() not in _NOT_READY


@dataclass(frozen=True)
class Group:
    """A group: {partition: the next offset to read}, and the partitions that its members have.

    `has_members` is whether anybody is in it, so that its offsets do not expire.
    """

    name: str
    committed: dict[TopicPartition, int]
    assigned: frozenset[TopicPartition] = frozenset()
    has_members: bool = False


@dataclass(frozen=True)
class Groups:
    """What was found; `failed` is {group, or `groups`: why it could not be asked for}.

    `others` names groups that are no consumer groups, with their kind: `app (streams)`. Those of
    them that commit offsets as consumer groups do are among the groups, too.
    """

    groups: list[Group]
    others: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def find_groups(client: AdminClient, only: Collection[str], seconds: float) -> Groups:
    """Return the groups, or those of these names; KafkaException if they are not listed."""
    failed: dict[str, str] = {}
    partitions, unready = await_coordinators(client, seconds)
    listed = client.list_consumer_groups(request_timeout=seconds).result()
    if listed.errors:
        failed["groups"] = "; ".join(_text(error) for error in listed.errors)
    try:
        with warnings.catch_warnings():
            # The call that replaces it lists consumers' only. This one lists none of the kinds
            # (KIP-932, KIP-1071) that the client lacks.
            warnings.simplefilter("ignore", DeprecationWarning)
            of_all = client.list_groups(timeout=seconds)
        kinds = {str(one.id): one.protocol_type or "" for one in of_all}
    except KafkaException as error:
        failed["of other kinds"], kinds = _text(error), {}
    states = {one.group_id: one.state for one in listed.valid}
    if unready:
        failed["coordinators"] = (
            f"those for partitions {sorted(unready)} of {OFFSETS_TOPIC} are not ready"
        )
    known = sorted({*states, *kinds})
    ready = (name for name in known if partition_of_group(name, partitions) not in unready)
    names = [name for name in ready if not only or name in only]
    members = _members(client, [n for n in names if _has_members(states.get(n))], seconds, failed)
    committed = _committed(client, names, seconds, failed)
    found = [
        Group(name, offsets, members.get(name, frozenset()), _has_members(states.get(name)))
        for name, offsets in committed.items()
        if name in states or offsets
    ]
    others = {name: at for name, at in committed.items() if name not in states}
    newer = {name: "streams" if at else "share or streams" for name, at in others.items()}
    return Groups(found, [f"{name} ({kinds[name] or newer[name]})" for name in others], failed)


def _has_members(state: ConsumerGroupState | None) -> bool:
    return state not in {None, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}


def _committed(
    client: AdminClient, names: list[str], seconds: float, failed: dict[str, str]
) -> dict[str, dict[TopicPartition, int]]:
    asked: dict[str, Future[Any]] = {}
    for name in names:  # a request is of one group; all are under way at the same time
        request = [confluent_kafka.ConsumerGroupTopicPartitions(name)]
        asked |= client.list_consumer_group_offsets(request, request_timeout=seconds)
    found = {}
    for name, future in asked.items():
        if error := future.exception():
            failed[name] = _text(error)
            continue
        offsets = future.result().topic_partitions or []
        if errors := {_text(one.error) for one in offsets if one.error is not None}:
            failed[name] = f"not all of its offsets are known: {'; '.join(sorted(errors))}"
        found[name] = {
            TopicPartition(one.topic, one.partition): int(one.offset)
            for one in offsets
            if one.error is None and one.offset >= 0
        }
    return found


def _members(
    client: AdminClient, names: list[str], seconds: float, failed: dict[str, str]
) -> dict[str, frozenset[TopicPartition]]:
    if not names:
        return {}
    found = {}
    asked = client.describe_consumer_groups(names, request_timeout=seconds)
    for name, future in asked.items():
        if error := future.exception():
            failed[name] = _text(error)
            continue
        found[name] = frozenset(
            TopicPartition(one.topic, one.partition)
            for member in future.result().members
            for one in member.assignment.topic_partitions
        )
    return found


def _text(error: BaseException | KafkaError) -> str:
    found = error if isinstance(error, KafkaError) else error.args[0]
    return str(found.str())


def groups(kafka: Kafka, only: Collection[str] = ()) -> Groups:
    """Return the groups, or those of these names; KafkaUnreachableError if they are not listed."""
    if kafka.is_in_process:
        try:
            return find_groups(kafka.admin(), only, kafka.timeout)
        except KafkaException as error:
            raise kafka.unreachable(error) from None
    kafka.require_listening()
    question = pickle.dumps((kafka.config(), [*only], kafka.timeout))
    patience = Patience(kafka)
    # The process is asked again if it dies.
    while (answer := _answer(question, MOST_TIMEOUTS * kafka.timeout)) is None:
        if patience.is_over:
            raise kafka.unreachable(RuntimeError("its client ended without an answer"))
    if isinstance(answer, RuntimeError):
        raise kafka.unreachable(answer)
    found: Groups = answer
    return found


def _answer(question: bytes, seconds: float) -> Any:
    """Return what a client in a process of its own answers; None if it died."""
    try:
        done = subprocess.run(
            ASKING,
            input=question,  # it has secrets
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
        return pickle.loads(done.stdout)  # noqa: S301 - of our own process
    except (subprocess.TimeoutExpired, EOFError, pickle.UnpicklingError):
        return None


def main() -> None:
    """Answer the question on standard input: which groups, by which client."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    config, names, seconds = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own process
    answer: Groups | RuntimeError
    try:
        answer = find_groups(AdminClient(config), names, seconds)
    except KafkaException as error:
        answer = RuntimeError(_text(error))
    sys.stdout.buffer.write(pickle.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # what is answered is not lost with a client that dies while it ends
