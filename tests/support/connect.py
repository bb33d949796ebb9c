"""Records as Kafka Connect writes them: its own converter to JSON, and Debezium's own envelope."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from shardpost.spark.jars import jars_of


@dataclass(frozen=True)
class Connect:
    """Connect's classes in a JVM of their own, which has nothing of Spark."""

    jvm: Any

    def schema(self, name: str, **types: Any) -> Any:
        """Return the schema of an optional struct; types are names of Connect's constants."""
        data = self.jvm.org.apache.kafka.connect.data
        made = data.SchemaBuilder.struct().name(name).optional()
        for field, type_ in types.items():
            own = getattr(data.Schema, f"{type_}_SCHEMA") if isinstance(type_, str) else type_
            made.field(field, own)
        return made.build()

    def decimal(self, scale: int) -> Any:
        """Return the schema of decimals."""
        return self.jvm.org.apache.kafka.connect.data.Decimal.schema(scale)

    def struct(self, schema: Any, values: Mapping[str, Any]) -> Any:
        """Return a struct with those values."""
        made = self.jvm.org.apache.kafka.connect.data.Struct(schema)
        for field, value in values.items():
            made.put(field, value)
        return made

    def written(self, schema: Any, value: Any, config: Mapping[str, str]) -> Any:
        """Return what the converter to JSON writes, so configured: bytes, or nothing."""
        converter = self.jvm.org.apache.kafka.connect.json.JsonConverter()
        converter.configure({"converter.type": "value", **config})
        found = converter.fromConnectData("topic", schema, value)
        return None if found is None else bytes(found)

    def event(self, op: str, row: Any, source: Mapping[str, str]) -> tuple[Any, Any]:
        """Return schema and struct of an event of Debezium: of `read`, `create` and so on."""
        of_source = self.schema("Source", **dict.fromkeys(source, "STRING"))
        define = self.jvm.io.debezium.data.Envelope.defineSchema().withName("trades.Envelope")
        envelope = define.withRecord(row.schema()).withSource(of_source).build()
        rows = (row, row) if op == "update" else (row,)
        now = self.jvm.java.time.Instant.now()
        made = getattr(envelope, op)(*rows, self.struct(of_source, source), now)
        return envelope.schema(), made


@contextmanager
def connect_classes() -> Iterator[Connect]:
    """Run a JVM with Connect and Debezium."""
    jars = os.pathsep.join(map(str, (*jars_of("connect"), *jars_of("broker"))))
    port = launch_gateway(classpath=jars, die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield Connect(gateway.jvm)
    finally:
        gateway.shutdown()
