"""Settings that make sense only together with another one; each check raises ValueError."""

from collections.abc import Mapping
from typing import get_args

from pydantic import ValidationInfo

from shardpost.settings.variables import PREFIX
from shardpost.topic_names import TopicName

# {port: what is set if that service is not the embedded one}; Airflow's is always used.
PORTS = {"kafka_port": "bootstrap_servers", "smtp_port": "smtp_host", "airflow_port": None}
# {a setting: what it requires}; in the order of the fields, each after what it requires.
_NEEDED = {
    "import_jdbc_password": "import_jdbc_user",
    "airflow_user": "airflow_url",
    "airflow_password": "airflow_user",
    "smtp_user": "smtp_host",
    "smtp_password": "smtp_user",
    "smtp_tls": "smtp_host",
}
_PAIRS = {"airflow_password": "airflow_user", "smtp_password": "smtp_user"}
_WHY = {
    "smtp_user": "the embedded mail sink takes no login",
    "smtp_tls": "the embedded mail sink has no TLS",
}


def require_other_port(port: int, field: ValidationInfo) -> int:
    """Return a port; refuse one that another service of the embedded stack has."""
    for name in PORTS if _is_embedded(str(field.field_name), field) else ():
        if name in field.data and _is_embedded(name, field) and field.data[name] == port:
            raise ValueError(f"expected another port than that of {_variable(name)}")
    return port


def require_what_it_needs(value: object, field: ValidationInfo) -> object:
    """Return the value of a setting; refuse one without the setting that it requires."""
    name = str(field.field_name)
    needed = _NEEDED.get(name)
    if needed is None or needed not in field.data:
        return value
    is_given = value not in {None, "none"}
    if is_given and field.data[needed] is None:
        why = f": {_WHY[name]}" if name in _WHY else ""
        raise ValueError(f"requires {_variable(needed)}{why}")
    if not is_given and name in _PAIRS and field.data[_PAIRS[name]] is not None:
        raise ValueError(
            f"expected a password for the user of {_variable(_PAIRS[name])}, found none"
        )
    return value


def require_secret_of_token(url: str, field: ValidationInfo) -> str:
    """Return the URL to unsubscribe; refuse one with {token} where there is no secret."""
    if "{token}" in url and field.data.get("unsubscribe_secret", "") is None:
        raise ValueError(
            f"requires {_variable('unsubscribe_secret')}, by which {{token}} is made:"
            " `openssl rand -hex 32` makes one"
        )
    return url


def require_longer_cap(cap: float, field: ValidationInfo) -> float:
    """Return a longest delay; refuse one that is shorter than the first one."""
    first = field.data.get("retry_first_delay", 0)
    if cap < first:
        raise ValueError(f"expected at least {_variable('retry_first_delay')}, which is {first:g}")
    return cap


def _is_embedded(port: str, field: ValidationInfo) -> bool:
    other = PORTS[port]
    return other is None or field.data.get(other) is None


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def topic_field(name: TopicName) -> str:
    """Return the field of the settings that names a topic."""
    return "topic_" + name.replace("-", "_")


TOPIC_FIELDS = frozenset(topic_field(name) for name in get_args(TopicName))
# A retry may go back to the topic that its record came from.
RETRY_TARGETS = frozenset({"topic_positions", "topic_clients", "topic_exchanges", "topic_retries"})


def topics_before(field: ValidationInfo, *, but: frozenset[str] = frozenset()) -> dict[str, object]:
    """Return {field: topic} of our own topics that were validated before that field."""
    return {name: field.data[name] for name in TOPIC_FIELDS - but if name in field.data}


def require_own_topic(topic: str, field: ValidationInfo) -> str:
    """Return one of our topics; refuse one that another setting names."""
    require_other_topic(topic, topics_before(field))
    return topic


def require_other_topic(topic: object, topics: Mapping[str, object]) -> None:
    """Raise ValueError if another setting names the same topic."""
    for field, name in topics.items():
        if _as_metrics(topic) == _as_metrics(name):
            raise ValueError(
                f"expected another topic, found that of {PREFIX}{field.upper()}: {name}"
            )


def _as_metrics(topic: object) -> str:
    """Return the topic as Kafka's metrics name it: it takes no two topics that are one there."""
    return str(topic).replace(".", "_")
