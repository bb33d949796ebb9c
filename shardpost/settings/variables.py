"""The variables of settings: their names, and suggestions for unknown ones.

Kafka client settings (`SHARDPOST_KAFKA__…`) have librdkafka's names; it is asked itself whether
it knows them. A client that is made without an address connects to nothing.
"""

import re
from collections.abc import Collection, Mapping
from itertools import chain

from shardpost.settings.forms import JAVA_ONLY, OAUTH_CALLBACK
from shardpost.wording import meant

PREFIX = "SHARDPOST_"
# Before a client setting of librdkafka: SHARDPOST_KAFKA__SECURITY_PROTOCOL.
CLIENT_PREFIX = "SHARDPOST_KAFKA__"


def topic_variable(name: str) -> str:
    """Return the variable that names a topic: SHARDPOST_TOPIC_DEAD_LETTERS."""
    return f"{PREFIX}TOPIC_{name.upper().replace('-', '_')}"


# What is known of an object store, by the names that AWS and its libraries give it.
STORE_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
)


def store_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return what the variables say of an object store; stores like AWS's need no region."""
    found = {name: value for name in STORE_VARIABLES if (value := given.get(name))}
    region = given.get("AWS_DEFAULT_REGION") or ("AWS_ENDPOINT_URL" in found and "us-east-1")
    return {"AWS_REGION": region, **found} if region else found


def store_problems(store: Mapping[str, str]) -> list[str]:
    """Return what is missing or wrong: without it, libraries ask a cloud's addresses and hang."""
    needed = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    missing = [name for name in needed if name not in store]
    problems = []
    if missing:
        names = " and ".join(missing)
        problems.append(f"setting {PREFIX}TABLES is on an object store: set {names}, too")
    endpoint = store.get("AWS_ENDPOINT_URL")
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        problems.append("setting AWS_ENDPOINT_URL: expected a URL such as https://host:port")
    elif endpoint and endpoint.startswith("http://") and store.get("AWS_ALLOW_HTTP") != "true":
        problems.append(
            f"setting AWS_ENDPOINT_URL={endpoint}: expected https, found http, which exposes "
            "names and addresses: set AWS_ALLOW_HTTP=true where nobody can"
        )
    return problems


_ENDPOINT = re.compile(r"https?://[^\s/@:]+(:\d{1,5})?/?")
SEE_ALL = "see .env.example for all settings"
_KAFKA_PREFIX = f"{PREFIX}KAFKA_"


def unknown_name(name: str, known: Collection[str]) -> str:
    """Return what is wrong with an unknown variable."""
    words, rest = {word for one in known for word in one.split("_")}, name.upper().split("_")
    alike = [one for one in sorted(known) if one.split("_")[:2] == rest[:2]]
    if alike and words >= {*rest}:  # not mistyped, but put together otherwise
        return f"unknown setting {name}: did you mean {' or '.join(alike)}?"
    if said := meant(name.upper(), known, cutoff=0.8):
        return f"unknown setting {name}{said}"
    if name.startswith(_KAFKA_PREFIX):
        client = CLIENT_PREFIX + name.removeprefix(_KAFKA_PREFIX)
        return f"unknown setting {name}: settings of Kafka's client are {client} ({SEE_ALL})"
    return f"unknown setting {name}: {SEE_ALL}"


# What Shardpost sets itself: another value would have no effect, or break what it guarantees.
_OWN = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "isolation.level",
        "partitioner",
        "transactional.id",
    }
)
_ADDRESS = frozenset({"bootstrap.servers", "metadata.broker.list"})
_SECRET = re.compile(r"password|passphrase|secret|pem|jaas|token|oauthbearer\.config")
_NAMED = re.compile(r'property:? "([\w.]+)"')
_UNKNOWN = "No such configuration property"


def client_name(variable: str) -> str:
    """Return librdkafka's name of a setting for its variable."""
    name = variable.removeprefix(CLIENT_PREFIX).lower()
    return name if name == OAUTH_CALLBACK else name.replace("_", ".")


def client_variable(name: str) -> str:
    """Return the variable of a setting for librdkafka's name."""
    return CLIENT_PREFIX + name.upper().replace(".", "_")


def is_secret(name: str) -> bool:
    """Tell whether a variable, or a setting of the client, is one that is never shown."""
    return _SECRET.search(name.lower().replace("_", ".")) is not None


def client_problems(given: Mapping[str, str]) -> list[str]:
    """Return what is wrong with {librdkafka's name: value}, each with its variable."""
    problems = [
        f"setting {client_variable(name)}: set {PREFIX}BOOTSTRAP_SERVERS instead"
        if name in _ADDRESS
        else f"setting {client_variable(name)}: expected none: Shardpost sets {name} itself"
        for name in given
        if name in _OWN | _ADDRESS
    ]
    others = _OWN | _ADDRESS | {OAUTH_CALLBACK}
    named = {name: value for name, value in given.items() if name not in others}
    left = {name: value for name, value in named.items() if not name.startswith(JAVA_ONLY)}
    while left and (error := _refused(left)):
        match = _NAMED.search(error)
        told = [match[1]] if match and match[1] in left else []
        begins = (one for one in left if error.startswith(f"{one} "))
        name = next(chain(told, begins), None)
        if name is None:
            names = ", ".join(map(client_variable, left))
            return problems or [f"settings {names}: Kafka's client refuses them: {error}"]
        value = left.pop(name)
        shown = "" if _SECRET.search(name) else f"={value!r}"
        if error.startswith(_UNKNOWN):  # it may be a secret's name, mistyped
            shown, error = "", f"Kafka's client (librdkafka) has no setting {name}"
        problems.append(f"setting {client_variable(name)}{shown}: {error}")
    return problems


def _refused(given: Mapping[str, str]) -> str | None:
    from confluent_kafka import Consumer, KafkaException, Producer

    base = {**given, "log_level": 0}
    try:
        Consumer({**base, "group.id": "none"}).close()
        Producer({**base, "enable.idempotence": True})
    except KafkaException as error:
        reason: str = error.args[0].str()
        return re.sub(r"^Failed to create (consumer|producer): ", "", reason.strip())
    return None
