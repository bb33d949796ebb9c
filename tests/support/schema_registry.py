"""A schema registry of this process of tests: Apicurio, in memory, on a free port of its own."""

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from shardpost.embedded import daemons
from shardpost.embedded.broker import find_java
from shardpost.kafka.schema_registry import SchemaRegistry
from shardpost.spark.jars import JARS
from shardpost.spark.job import terminate_with_parent
from tests.support.job_process import wait_for

API = "/apis/ccompat/v7"
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass
class Registry:
    """A registry that runs: its port, and its process."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Where Confluent's API is."""
        return f"http://127.0.0.1:{self.port}{API}"

    @cached_property
    def client(self) -> SchemaRegistryClient:
        """Confluent's own client."""
        return SchemaRegistryClient({"url": self.url})

    def asked(self, topic: str, seconds: float = 20) -> SchemaRegistry:
        """Return a client of ours for a topic."""
        return SchemaRegistry(self.url, topic, seconds)

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", *references: SchemaReference
    ) -> int:
        """Register a schema as the newest of a subject; return its id."""
        made = Schema(schema, kind, list(references))
        return int(self.client.register_schema(subject, made))

    def serializer(self, schema: str, **conf: Any) -> AvroSerializer:
        """Return Confluent's serializer of Avro, which registers the schema."""
        made: AvroSerializer = AvroSerializer(self.client, schema, conf=conf)
        return made

    def protobuf_serializer(self, message: Any) -> ProtobufSerializer:
        """Return Confluent's serializer of a class of messages, which registers its schema."""
        conf = {"use.deprecated.format": False}
        made: ProtobufSerializer = ProtobufSerializer(message, self.client, conf)
        return made


def serialized(made: Any, topic: str, value: object, part: str = "value") -> bytes:
    """Return the bytes of a value, or key, of a record of a topic."""
    where = MessageField.VALUE if part == "value" else MessageField.KEY
    found = made(value, SerializationContext(topic, where))
    assert found is not None
    return bytes(found)


@contextmanager
def schema_registry(home: Path, port: int | None = None) -> Iterator[Registry]:
    """Run a registry without schemas until the end."""
    port = port or daemons.choose_port()
    [archive] = JARS.glob("registry/*.tar.gz")
    if not [*home.glob("*-runner.jar")]:
        with tarfile.open(archive) as packed:
            packed.extractall(home, filter="data")
    [jar] = home.glob("*-runner.jar")
    given = (f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1")
    with (home / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            [find_java(), *JVM, *given, "-jar", str(jar)],
            cwd=home,
            stdout=log,
            stderr=log,
            preexec_fn=terminate_with_parent,
        )
    made = Registry(port, process)
    try:
        wait_for(lambda: _answers(made), "the schema registry")
        yield made
    finally:
        process.terminate()
        process.wait(30)


def _answers(registry: Registry) -> bool:
    if registry.process.poll() is not None:
        raise AssertionError(f"the registry ended: {registry.process.returncode}")
    try:
        return httpx.get(f"{registry.url}/subjects", timeout=5).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
