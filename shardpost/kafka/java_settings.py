"""Kafka client settings under librdkafka's names, translated for the Java client that Spark uses.

Sources: librdkafka's CONFIGURATION.md; Kafka's consumer configuration; KIP-651 (PEM stores).
"""

from collections.abc import Mapping
from pathlib import Path

from shardpost.errors import UsageError
from shardpost.settings.forms import JAVA_ONLY, OAUTH_CALLBACK

_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
_KEPT = {
    *("security.protocol", "sasl.mechanism", "ssl.key.password", "ssl.keystore.password"),
    *("client.id", "client.rack", "request.timeout.ms", "socket.connection.setup.timeout.ms"),
    *("fetch.min.bytes", "fetch.max.bytes", "max.partition.fetch.bytes"),
}
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN = {"sasl.username", "sasl.password"}
# By files that executors need, too, at the same paths.
_STORES = {
    "ssl.ca.location": ("ssl.truststore", "PEM"),
    "ssl.keystore.location": ("ssl.keystore", "PKCS12"),
}
# By their text: a certificate and its key, two files for librdkafka, are one for the Java client.
_PEMS = {
    "ssl.ca.pem": ("ssl.truststore", "certificates"),
    "ssl.certificate.pem": ("ssl.keystore", "certificate.chain"),
    "ssl.key.pem": ("ssl.keystore", "key"),
}
_READ = {"ssl.certificate.location": "ssl.certificate.pem", "ssl.key.location": "ssl.key.pem"}
_OF_OTHERS = (*JAVA_ONLY, OAUTH_CALLBACK, "sasl.oauthbearer.")  # the last two librdkafka's
_NAME_CHECK = "ssl.endpoint.identification.algorithm"
_KNOWN = {*_RENAMED, *_STORES, *_PEMS, *_READ, *_KEPT, *_LOGIN, _NAME_CHECK}
_PKCS8 = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the same settings under the Java client's names; UsageError for one that has none.

    Also for a file of a certificate or a key that cannot be read, or a key that Java cannot read,
    and for a login by tokens whose Java part is missing. What is for Java alone takes precedence.
    """
    own = {
        name.removeprefix("java."): value
        for name, value in settings.items()
        if name.startswith(JAVA_ONLY)
    }
    java = _translated(
        {name: value for name, value in settings.items() if not name.startswith(_OF_OTHERS)}
    )
    if java.get("sasl.mechanism") == "OAUTHBEARER" and "sasl.jaas.config" not in own:
        raise UsageError(
            f"{_variable('java.sasl.jaas.config')} (java.sasl.jaas.config in Airflow's connection):"
            " expected the login module of Spark's Java client, which calls no function of Python"
        )
    return java | own


def _translated(settings: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    for name, value in settings.items():
        if name not in _KNOWN:
            raise UsageError(
                f"{_variable(name)}: Spark's Java client has no setting for librdkafka's {name};"
                f" known are {', '.join(sorted(_KNOWN))}"
            )
        if name in _RENAMED or name in _KEPT:
            java[_RENAMED.get(name, name)] = value
        elif name == _NAME_CHECK:
            java[name] = "" if value == "none" else value
        elif name in _STORES:
            store, kind = _STORES[name]
            java[f"{store}.location"], java[f"{store}.type"] = value, kind
        elif name not in _LOGIN:
            store, part = _PEMS[_READ.get(name, name)]
            java[f"{store}.{part}"], java[f"{store}.type"] = _pem(name, value), "PEM"
    if _LOGIN & settings.keys():
        mechanism = settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "PLAIN"))
        module = _SCRAM_LOGIN if mechanism.startswith("SCRAM") else _PLAIN_LOGIN
        user, password = (
            settings.get(name, "").replace("\\", "\\\\").replace('"', '\\"')
            for name in ("sasl.username", "sasl.password")
        )
        login = f'{module} required username="{user}" password="{password}";'
        java["sasl.jaas.config"] = login
    return java


def _variable(name: str) -> str:
    return f"SHARDPOST_KAFKA__{name.upper().replace('.', '_')}"


def _pem(name: str, value: str) -> str:
    """Return the text of a certificate or a key, which a setting is, or names a file of."""
    text = value
    if name in _READ:
        try:
            text = Path(value).read_text()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(f"{_variable(name)}={value}: cannot be read: {why}") from None
    if name.startswith("ssl.key.") and not any(kind in text for kind in _PKCS8):
        raise UsageError(
            f"{_variable(name)}: expected a key in PKCS #8 (`{_PKCS8[0]}`), the only form that "
            "Spark's Java client reads: `openssl pkcs8 -topk8 -nocrypt` converts other forms"
        )
    return text
