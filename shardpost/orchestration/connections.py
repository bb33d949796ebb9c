"""The settings of a task, completed from Airflow's connections.

Those of Kafka, the mail server and the object store (SHARDPOST_CONNECTIONS has their ids), out of
whichever secrets backend Airflow asks. A setting that is given counts, and its connection is not
asked for: so the embedded Airflow, which gives its processes all settings, goes by them alone. A
connection becomes the variables that mean the same; by these, too, a Spark job gets it, and never
by arguments. (Decision 0039.)
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow.sdk import BaseHook, Connection, Variable, get_current_context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import Installation
from shardpost.settings import Declared, Settings, declared, installations
from shardpost.settings.forms import JAVA_ONLY, OAUTH_CALLBACK, connection_ids
from shardpost.settings.variables import PREFIX, client_variable, is_secret

log = logging.getLogger(__name__)

BOOTSTRAP, SMTP_HOST, ACCESS_KEY = (
    "SHARDPOST_BOOTSTRAP_SERVERS",
    "SHARDPOST_SMTP_HOST",
    "AWS_ACCESS_KEY_ID",
)
# How a cluster is reached. What else its connection has is of consumers and producers of others.
_OF_KAFKA = (
    *("security.protocol", "sasl.", "ssl.", "enable.ssl.", "client.rack"),
    *(OAUTH_CALLBACK, *JAVA_ONLY),
)
# That of `airflow connections create-default-connections`, which nobody meant.
_EXAMPLE = {"bootstrap.servers": "broker:29092", "group.id": "my-group"}
_OF_AWS = {
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region_name": "AWS_REGION",
    "endpoint_url": "AWS_ENDPOINT_URL",
}
SMTPS, SMTP = 465, 25  # as smtplib has them


def of_dag(dag_id: str | None = None) -> Declared:
    """Return the installation of a DAG, by default of the task that runs."""
    if len(every := installations()) == 1:
        return every[0]
    return declared((dag_id or get_current_context()["ti"].dag_id).partition("_")[0])


def task_installation(own: Declared | None = None, *, mails: bool = False) -> Installation:
    """Return the installation of this task, or the given one for a trigger or a request to a page.

    UsageError for a connection that cannot be used. `mails`: ShardpostError where neither a setting
    nor a connection names a mail server. Airflow does not tell a connection that is not there from
    one whose backend did not answer, and mails to a sink of this machine would count as sent.
    """
    own = own or of_dag()
    used = found(own)
    for one in used:
        if one.variables:
            log.info("%s: from the connection %s", one.kind.subject, one.connection)
    [server] = [one for one in used if one.kind.name == "smtp"]
    if mails and not (server.is_given or server.variables):
        raise ShardpostError(
            "no mail server: expected SHARDPOST_SMTP_HOST in the environment, or the connection"
            f" {server.connection} (it may exist while the secrets backend does not answer); an"
            " empty SHARDPOST_SMTP_HOST in the environment selects the mail sink of `shardpost up`"
        )
    return Installation(settings_of(own, used))


def settings_of(own: Declared, used: list["Used"]) -> Settings:
    """Return the settings with what the connections say; UsageError names those, too."""
    variables = {name: text for one in used for name, text in one.variables.items()}
    names = ", ".join(one.connection for one in used if one.variables)
    known = own.given()
    more = secrets_of(own) | {name: text for name, text in variables.items() if name not in known}
    try:
        return own.load(more or None)
    except UsageError as error:
        if not names:
            raise
        raise UsageError(f"connections {names}, as settings: {error}") from None


# Settings that are secrets; each may be a Variable of Airflow, such as shardpost_alerts. The URL of
# the heartbeat may not: whether a DAG has that task is known when it is parsed.
_NO_VARIABLES = ("kafka", "store", "heartbeat_url")
SECRETS = [n for n, one in Settings.model_fields.items() if not (one.repr or n in _NO_VARIABLES)]


def secrets_of(own: Declared, fields: Sequence[str] = SECRETS) -> dict[str, str]:
    """Return {variable: text} of the secrets that no setting gives, but a Variable of Airflow does.

    From whichever secrets backend Airflow asks.
    """
    known, secrets = own.given(), dict[str, str]()
    for field in fields:
        name, key = f"{PREFIX}{field.upper()}", own.id(f"shardpost_{field}")
        if name not in known and (text := Variable.get(key, default=None)):
            mask_secret(text)
            log.info("%s: from the Variable %s", name, key)
            secrets[name] = text
    return secrets


class Kind(NamedTuple):
    """What a connection is for, what counts instead, and its translation."""

    name: str  # in SHARDPOST_CONNECTIONS
    subject: str
    variable: str
    translate: Callable[[Any], dict[str, str]]


@dataclass(frozen=True)
class Used:
    """What counts for a kind: the given variable, or those that the connection means, if any."""

    kind: Kind
    connection: str  # its id
    is_given: bool
    variables: Mapping[str, str]


def found(own: Declared) -> list[Used]:
    """Return what counts of each kind; connections are asked for only where they could."""
    known, ids = own.given(), connection_ids(own.one("connections"))
    is_on_store = (known.get("SHARDPOST_TABLES") or "").startswith("s3://")
    kinds = [kind for kind in _KINDS if kind.variable != ACCESS_KEY or is_on_store]
    return [
        Used(kind, ids[kind.name], is_given, {} if is_given else _variables(kind, ids[kind.name]))
        for kind in kinds
        for is_given in (kind.variable in known,)
    ]


def _variables(kind: Kind, conn_id: str) -> dict[str, str]:
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return {}
    variables = {name: text for name, text in kind.translate(connection).items() if text}
    for name, text in variables.items():
        if is_secret(name):
            mask_secret(text)
    return variables


def _of_kafka(connection: Any) -> dict[str, str]:
    extra = connection.extra_dejson
    if extra == _EXAMPLE:
        return {}
    if not extra.get("bootstrap.servers"):
        raise UsageError(
            f"connection {connection.conn_id}: expected bootstrap.servers in its extra"
        )
    try:
        resolved = _as_the_hook_has_it(connection)
    except (ValueError, ImportError, AirflowException) as error:
        raise UsageError(f"connection {connection.conn_id}: {error}") from None
    if OAUTH_CALLBACK in resolved and OAUTH_CALLBACK not in extra:
        extra[OAUTH_CALLBACK] = f"{__name__}.{cloud_token.__name__}"
        extra["sasl.oauthbearer.config"] = extra["bootstrap.servers"]  # which it is called with
    client = {
        client_variable(name): _text(value)
        for name, value in extra.items()
        if name.startswith(_OF_KAFKA)
    }
    return {BOOTSTRAP: _text(extra["bootstrap.servers"]), **client}


def _as_the_hook_has_it(connection: Any) -> dict[str, Any]:
    """Return the configuration of a client that the provider's hook makes of a connection.

    Callbacks are functions, if Airflow's `callback_allowlist` has them; for addresses of Amazon MSK
    and Google there is one that returns tokens.
    """
    from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

    class Configuration(KafkaBaseHook):
        @classmethod
        def get_connection(cls, conn_id: str) -> Any:
            return connection

        def _get_client(self, config: dict[str, Any]) -> dict[str, Any]:
            return config

    made: Any = Configuration(connection.conn_id)  # type: ignore[no-untyped-call]
    resolved: dict[str, Any] = made.get_conn
    return resolved


def cloud_token(servers: str) -> tuple[Any, ...]:
    """Return a token of the cloud that has these servers: `oauth_cb` of clients in any process."""
    extra = {"bootstrap.servers": servers, "sasl.mechanism": "OAUTHBEARER"}
    connection = Connection(conn_id="kafka", conn_type="kafka", extra=json.dumps(extra))
    token: tuple[Any, ...] = _as_the_hook_has_it(connection)[OAUTH_CALLBACK](servers)
    return token


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _of_smtp(connection: Any) -> dict[str, str]:
    """Read `disable_ssl` and `disable_tls` as the hook of Airflow does."""
    extra = connection.extra_dejson
    if not connection.host:
        raise UsageError(f"connection {connection.conn_id}: expected a host")
    if extra.get("auth_type", "basic") != "basic" or extra.get("ssl_context") == "none":
        raise UsageError(
            f"connection {connection.conn_id}: expected a login with user and password (auth_type"
            " basic), and no ssl_context `none`: certificates are always verified"
        )
    tls = "tls" if not extra.get("disable_ssl") else "starttls"
    if tls == "starttls" and extra.get("disable_tls"):
        tls = "none"
    return {
        SMTP_HOST: connection.host,
        "SHARDPOST_SMTP_PORT": str(connection.port or (SMTPS if tls == "tls" else SMTP)),
        "SHARDPOST_SMTP_TLS": tls,
        "SHARDPOST_SMTP_USER": connection.login or "",
        "SHARDPOST_SMTP_PASSWORD": connection.password or "",
    }


def _of_aws(connection: Any) -> dict[str, str]:
    extra = connection.extra_dejson
    if extra.get("role_arn"):
        raise UsageError(
            f"connection {connection.conn_id}: role_arn is not used: expected a key (login and"
            " password), or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the"
            " environment"
        )
    return {
        ACCESS_KEY: connection.login or "",
        "AWS_SECRET_ACCESS_KEY": connection.password or "",
        **{name: str(extra.get(key) or "") for key, name in _OF_AWS.items()},
    }


_KINDS = (
    Kind("kafka", "Kafka", BOOTSTRAP, _of_kafka),
    Kind("smtp", "the mail server", SMTP_HOST, _of_smtp),
    Kind("aws", "the object store", ACCESS_KEY, _of_aws),
)
