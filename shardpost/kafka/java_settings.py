"""Kafka client settings under librdkafka's names, translated for the Java client that Spark uses.

Sources: librdkafka's CONFIGURATION.md; Kafka's consumer configuration; KIP-651 (PEM stores).
"""

from collections.abc import Mapping

from shardpost.errors import UsageError

_RENAMED = {
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.key.password": "ssl.key.password",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
    "security.protocol": "security.protocol",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "request.timeout.ms": "request.timeout.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
}
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN = {"sasl.username", "sasl.password"}
_STORES = {
    "ssl.ca.location": ("ssl.truststore", "PEM"),
    "ssl.keystore.location": ("ssl.keystore", "PKCS12"),
}
_KEPT = {"ssl.keystore.password"}


def java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the same settings under the Java client's names; UsageError for one that has none."""
    java: dict[str, str] = {}
    for name, value in settings.items():
        if name in _RENAMED or name in _KEPT:
            java[_RENAMED.get(name, name)] = value
        elif name in _STORES:
            store, kind = _STORES[name]
            java[f"{store}.location"], java[f"{store}.type"] = value, kind
        elif name not in _LOGIN:
            known = ", ".join(sorted({*_RENAMED, *_STORES, *_KEPT, *_LOGIN}))
            raise UsageError(
                f"SHARDPOST_KAFKA__{name.upper().replace('.', '_')}: Spark's Java client has no"
                f" setting for librdkafka's {name}; known are {known}"
            )
    if _LOGIN & settings.keys():
        java["sasl.jaas.config"] = _jaas(settings)
    return java


def _jaas(settings: Mapping[str, str]) -> str:
    mechanism = settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "PLAIN"))
    module = _SCRAM_LOGIN if mechanism.startswith("SCRAM") else _PLAIN_LOGIN
    user, password = (
        _quoted(settings.get(name, "")) for name in ("sasl.username", "sasl.password")
    )
    return f"{module} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
