"""The sizes of partitions on disk, by the Java client: librdkafka does not ask for them.

DescribeLogDirs (KIP-113) through py4j and the jars that Spark has anyway; a JVM of a second or two,
started only where a size matters (docs/decisions/0028).
"""

import os
import re
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shardpost.errors import ShardpostError
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.java_settings import java_settings
from shardpost.settings import Settings
from shardpost.spark.jars import spark_jars

JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
# As the Java client prints a replica; one that is on the way to another disk is `isFuture`.
_REPLICA = re.compile(r"([\w.-]+)-(\d+)=ReplicaInfo\(size=(\d+), offsetLag=\d+, isFuture=false\)")


def partition_sizes(
    settings: Settings, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the bytes of each partition, of its largest replica; none of one that nobody tells.

    ShardpostError if Kafka cannot be asked.
    """
    from py4j.protocol import Py4JError

    try:
        with _gateway() as jvm:
            try:
                return sizes_in(_describe(settings, jvm), partitions)
            except Py4JError as error:  # its text is asked of the JVM
                raise _not_known(str(error)) from None
    except (Py4JError, OSError, ValueError) as error:  # ValueError: the JVM ended at once
        raise _not_known(str(error)) from None


def sizes_in(answer: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the sizes in what the Java client prints of its answer."""
    wanted, found = set(partitions), dict[TopicPartition, int]()
    for topic, number, size in _REPLICA.findall(answer):
        partition = TopicPartition(topic, int(number))
        if partition in wanted:
            found[partition] = max(found.get(partition, 0), int(size))
    return found


def _describe(settings: Settings, jvm: Any) -> str:
    properties = jvm.java.util.Properties()
    milliseconds = str(int(1000 * settings.kafka_timeout))
    given = {
        "bootstrap.servers": settings.bootstrap,
        "default.api.timeout.ms": milliseconds,
        "request.timeout.ms": milliseconds,
        **java_settings(settings.kafka),
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

    port, token = launch_gateway(
        jarpath=str(next(_pyspark_jars("py4j"))),
        classpath=os.pathsep.join(map(str, [*spark_jars(), *_pyspark_jars("slf4j-api")])),
        javaopts=JVM,
        java_path=_java(),
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


def _pyspark_jars(name: str) -> Iterator[Path]:
    spec = find_spec("pyspark")
    folder = Path(spec.origin if spec and spec.origin else "").parent / "jars"
    return folder.glob(f"{name}*.jar")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def _not_known(text: str) -> ShardpostError:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Exception: " in line]
    reason = (told or lines or ["no reason given"])[-1]
    return ShardpostError(f"the sizes of partitions are not known: {reason}")
