"""How large partitions with `retention.bytes` are, and how they grow.

librdkafka does not ask for sizes. The Java client does (DescribeLogDirs, KIP-113), by py4j and the
jars of Spark, in a JVM that starts only where a size matters (docs/decisions/0028).
"""

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shardpost.errors import ShardpostError
from shardpost.kafka.java_settings import java_settings
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.offsets import endings, first_offsets_since
from shardpost.kafka.records import TopicPartition
from shardpost.lag.model.partition import Partition
from shardpost.lag.model.time_to_loss import Position
from shardpost.spark.jars import jars_of, spark_home

JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
# As the Java client prints a replica; one that is on the way to another disk is `isFuture`.
_REPLICA = re.compile(r"([\w.-]+)-(\d+)=ReplicaInfo\(size=(\d+), offsetLag=\d+, isFuture=false\)")


def partition_sizes(
    kafka: Kafka, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the bytes of each partition's largest replica; unknown ones are missing.

    ShardpostError if Kafka cannot be asked.
    """
    from py4j.protocol import Py4JError

    try:
        with _gateway() as jvm:
            try:
                return sizes_in(_describe(kafka, jvm), partitions)
            except Py4JError as error:  # its text is asked of the JVM
                raise _not_known(str(error)) from None
    except (Py4JError, OSError, ValueError) as error:  # ValueError: the JVM ended at once
        raise _not_known(str(error)) from None


def sizes_in(answer: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the sizes in the Java client's printed answer."""
    wanted, found = set(partitions), dict[TopicPartition, int]()
    for topic, number, size in _REPLICA.findall(answer):
        partition = TopicPartition(topic, int(number))
        if partition in wanted:
            found[partition] = max(found.get(partition, 0), int(size))
    return found


def _describe(kafka: Kafka, jvm: Any) -> str:
    properties = jvm.java.util.Properties()
    milliseconds = str(int(1000 * kafka.timeout))
    given = {
        "bootstrap.servers": kafka.bootstrap,
        "default.api.timeout.ms": milliseconds,
        "request.timeout.ms": milliseconds,
        **java_settings(kafka.client_settings),
    }
    for name, value in given.items():
        properties.setProperty(name, value)
    client = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        brokers = jvm.java.util.ArrayList()
        for node in jvm.java.util.ArrayList(client.describeCluster().nodes().get()):
            brokers.add(node.id())
        return str(client.describeLogDirs(brokers).allDescriptions().get().toString())
    finally:
        client.close(jvm.java.time.Duration.ZERO)


@contextmanager
def _gateway() -> Iterator[Any]:
    """Give a JVM with Kafka's client, which ends with this process at the latest."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    home, own = os.environ.get("JAVA_HOME"), spark_home() / "jars"
    # The last are for logins by tokens.
    jars = [*jars_of("spark"), *own.glob("slf4j-api*.jar"), *own.glob("jackson-*.jar")]
    port, token = launch_gateway(
        jarpath=str(next(own.glob("py4j*.jar"))),
        classpath=os.pathsep.join(map(str, jars)),
        javaopts=JVM,
        java_path=f"{home}/bin/java" if home else "java",
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


def _not_known(text: str) -> ShardpostError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Exception: " in line]
    reason = (told or lines or ["no reason given"])[-1]
    return ShardpostError(f"the sizes of partitions are unknown: {reason}")


# The fastest growth within these spans counts, seconds.
SPANS = (60, 600, 3600)
LEAST_SPAN_MS = 500

Partitions = Mapping[TopicPartition, Partition]


def with_sizes(
    kafka: Kafka,
    partitions: Partitions,
    positions: Collection[Position],
    now_ms: int,
    measured: float,
    problems: list[str],
) -> dict[TopicPartition, Partition]:
    """Return the partitions, those with a limit and an unread record with their sizes and growth.

    `measured` is when ends were asked for (monotonic clock). Sizes that nobody tells become
    problems.
    """
    limited = {
        position.partition: found
        for position in positions
        if (found := partitions.get(position.partition)) is not None
        and found.retention.size is not None
        and position.committed is not None
        and found.unread(position.committed).first is not None
    }
    if not limited:
        return dict(partitions)
    try:
        sizes = partition_sizes(kafka, limited)
    except ShardpostError as error:
        problems.append(f"{error}; deletion by retention.bytes is left out")
        return dict(partitions)
    if missing := limited.keys() - sizes.keys():
        named = ", ".join(map(str, sorted(missing)))
        problems.append(f"the sizes of {named}, and so the effect of retention.bytes on them")
    growth = _growth(kafka, limited, now_ms, measured)
    known = {
        at: replace(found, size=sizes.get(at), growth=growth[at]) for at, found in limited.items()
    }
    return {**partitions, **known}


def _growth(
    kafka: Kafka, partitions: Partitions, now_ms: int, measured: float
) -> dict[TopicPartition, float]:
    """Return by how many offsets a second each partition grows: the highest rate that is known.

    That is by Kafka's index of times, which knows timestamps, and by the ends since a moment ago,
    which are right whatever the timestamps are.
    """
    found = dict.fromkeys(partitions, 0.0)
    for span in SPANS:
        first = first_offsets_since(kafka, partitions, now_ms - 1000 * span)
        for at, since in first.found.items():
            if since.offset >= 0:
                milliseconds = max(LEAST_SPAN_MS, now_ms - since.timestamp)
                rate = 1000 * (partitions[at].high - since.offset) / milliseconds
                found[at] = max(found[at], rate)
    ends = endings(kafka, partitions, committed=False).found
    seconds = max(LEAST_SPAN_MS / 1000, time.monotonic() - measured)
    for at, (end, _) in ends.items():
        found[at] = max(found[at], (end - partitions[at].high) / seconds)
    return found
