"""Settings that make sense only together with another one; each check raises ValueError."""

from collections.abc import Mapping
from typing import get_args

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from shardpost.settings.variables import PREFIX, topic_variable
from shardpost.values.topic_names import TopicName, metrics_name

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


def all_topics(given: dict[str, str]) -> dict[str, str]:
    """Return the given names of topics, and of all others that in the contract."""
    return {name: name for name in get_args(TopicName)} | given


def require_different_topics(topics: dict[TopicName, str]) -> dict[TopicName, str]:
    """Return the names of topics; refuse a second one of the same name, by its variable."""
    before: dict[str, str] = {}
    for name, topic in topics.items():
        try:
            require_other_topic(topic, before)
        except ValueError as error:
            raise PydanticCustomError("topic", f"{error}", {"name": name}) from None
        before[topic_variable(name)] = topic
    return topics


def our_topics(field: ValidationInfo, *, but: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return {variable: topic} of our own topics."""
    topics = field.data.get("topics", {})
    return {topic_variable(name): topic for name, topic in topics.items() if name not in but}


def require_other_topic(topic: str, topics: Mapping[str, str | None]) -> None:
    """Raise ValueError if another setting names the same topic."""
    for variable, name in topics.items():
        if metrics_name(topic) == metrics_name(name):
            raise ValueError(f"expected another topic, found that of {variable}: {name}")
