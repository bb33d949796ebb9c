"""Every setting of Shardpost: its name, bounds and default for one machine.

Each is read from the environment variable `SHARDPOST_<NAME>`; no other module reads settings from
the environment. What each means, and its unit, is in `.env.example`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from shardpost.checkout import HOME, home_folder
from shardpost.settings import forms
from shardpost.settings.variables import PREFIX, client_variable, topic_variable
from shardpost.values import schedules
from shardpost.values.holding_rule import Rule
from shardpost.values.retry_settings import (
    RetryRules,
    RetrySettings,
    find_cycle,
    parse_origins,
    split_names,
)
from shardpost.values.topic_names import RETRY_TARGETS, TopicName, check_topic, metrics_name
from shardpost.wording import share

# {port: what is set if that service is not the embedded one}; Airflow's is always used.
PORTS = {"kafka_port": "bootstrap_servers", "smtp_port": "smtp_host", "airflow_port": None}
# {a setting: what it requires}; in the order of the fields, each after what it requires.
_NEEDED = {
    "registry_password": "inputs",
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
            raise ValueError(f"expected a port other than {_variable(name)}")
    return port


def require_what_it_needs(value: object, field: ValidationInfo) -> object:
    """Return the value of a setting; refuse it without the setting that it requires."""
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
    """Return the unsubscribe URL; refuse {token} without a secret."""
    if "{token}" in url and field.data.get("unsubscribe_secret", "") is None:
        raise ValueError(
            f"requires {_variable('unsubscribe_secret')}, with which {{token}} is made:"
            " `openssl rand -hex 32` makes one"
        )
    return url


def require_longer_cap(cap: float, field: ValidationInfo) -> float:
    """Return the longest delay; refuse it if it is shorter than the first delay."""
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
    """Return the names of topics; refuse a duplicate, naming its variable."""
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
            raise ValueError(f"expected a different topic, found the topic of {variable}: {name}")


# Whether a week that ended less than so many days ago was closed need not be looked for.
LEAST_LEDGER_DAYS = 180


class Settings(BaseModel):
    """The settings object; `load()` makes one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    home: forms.Absolute = HOME
    tables: forms.Located | None = None
    # Variables of AWS by their names, where the tables are on its object store, or one like it.
    store: dict[str, str] = Field({}, repr=False)

    bootstrap_servers: forms.Servers | None = None
    # Settings of its clients, by librdkafka's names.
    kafka: dict[str, str] = Field({}, repr=False)
    kafka_port: forms.Port = 9092
    # Half of it is the timeout of transactions, of which brokers allow 15 minutes.
    kafka_timeout: Annotated[float, Field(gt=0, le=1800)] = 60
    partitions: Annotated[int, Field(ge=1, le=4095)] = 8
    replication_factor: Annotated[int, Field(ge=1, le=32_767)] = 1

    topics_file: forms.File | None = None
    loss_warning: forms.Seconds = 43_200

    # {name in the contract: name in this installation}, each read from SHARDPOST_TOPIC_<NAME>.
    topics: Annotated[
        dict[TopicName, forms.Topic],
        BeforeValidator(all_topics),
        AfterValidator(require_different_topics),
    ] = {}

    inputs: forms.File | None = None
    registry_password: str | None = Field(None, repr=False)
    country: forms.Trimmed = "US"
    holds: forms.Condition | None = None
    max_drop: Annotated[float, BeforeValidator(share)] = 0.5
    lock_wait: forms.Seconds = 600
    fold_age: forms.Seconds = 3600
    snapshot_days: forms.Days = 90
    history_days: forms.Days | None = None
    ledger_days: Annotated[int, Field(ge=LEAST_LEDGER_DAYS, le=36_500)] = 730
    audience_days: Annotated[int, Field(ge=7, le=36_500)] = 730
    letter_days: Annotated[int, Field(ge=7, le=36_500)] = 365

    import_max_closed: Annotated[float, BeforeValidator(share)] = 0.05
    import_jdbc_user: str | None = None
    import_jdbc_password: str | None = Field(None, repr=False)

    spark_master: forms.SparkMaster = "local[*]"
    spark_conf: forms.File | None = None
    driver_memory: Annotated[str, AfterValidator(forms.heap)] = "2g"

    airflow_port: forms.Port = 8080
    airflow_url: forms.Url | None = None
    airflow_user: str | None = None
    airflow_password: str | None = Field(None, repr=False)

    connections: forms.Connections = (
        "kafka=kafka_default smtp=smtp_default aws=aws_default spark=spark_default"
    )
    # In the settings of one of several installations, its name.
    installations: str | None = None

    compact_schedule: forms.Cron = schedules.COMPACT
    follow: Literal["off", "on"] = "off"
    sweep_schedule: forms.Cron = schedules.SWEEP
    watch_schedule: forms.Cron = schedules.WATCH
    maintain_schedule: forms.Cron = schedules.MAINTAIN

    task_options: str | None = None
    heartbeat_url: forms.Url | None = Field(None, repr=False)

    askable_dags: forms.DagIds = "compact_positions,weekly_email,sweep_dead_letters"
    request_days: forms.Days = 6

    smtp_host: forms.Host | None = None
    smtp_port: forms.Port = 2525
    smtp_user: str | None = None
    smtp_password: str | None = Field(None, repr=False)
    smtp_tls: Literal["none", "starttls", "tls"] = "none"
    smtp_plain_login: Literal["refuse", "allow"] = "refuse"
    smtp_timeout: forms.Seconds = 300
    mail_from: Annotated[str, AfterValidator(forms.sender)] = forms.DEFAULT_SENDER
    unsubscribe_secret: Annotated[str, AfterValidator(forms.unsubscribe_secrets)] | None = Field(
        None, repr=False
    )
    unsubscribe_url: Annotated[str, AfterValidator(forms.unsubscribe_url)] = (
        "https://shardpost.example/unsubscribe?client={client}"
    )
    mail_templates: forms.File | None = None
    mail_language: forms.Language | None = None
    mail_list_id: forms.ListId = "weekly-holdings"
    mail_snapshot_age: forms.Seconds = 3600
    mail_connections: forms.Count = 4
    mail_rate: float | None = Field(None, gt=0, le=10**9)
    mail_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    mail_refusal_share: float = Field(0.1, gt=0, le=1)
    mail_failed_share: float = Field(0.05, ge=0, le=1)
    mail_suppressed_share: float = Field(0.5, ge=0, le=1)
    on_unknown: Literal["hold", "resend"] = "hold"
    weekly_send: Annotated[str, AfterValidator(schedules.weekly_time)] = schedules.WEEKLY_SEND
    weekly_lateness_days: forms.Days = 3
    weekly_first: forms.Week | None = None
    retry_first_delay: float = Field(60, ge=0, le=10**9)
    retry_factor: float = Field(2, ge=1, le=1000)
    retry_cap: float = Field(86_400, ge=0, le=10**9)
    retry_jitter: float = Field(0.1, ge=0, le=1)
    retry_attempts: int = Field(8, ge=0, le=1000)
    retry_origins: str | None = None
    retry_fatal: str | None = "Undecodable"
    retry_batch: forms.Count = 1000
    foreign_dead_letters: str | None = None
    alerts: Annotated[str, AfterValidator(forms.alert_urls)] | None = Field(None, repr=False)
    metrics_token: str | None = Field(None, repr=False)
    runbook: str = "docs/runbook.md#"
    shards_per_task: forms.Count = 4

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of all Kafka clients."""
        return self.bootstrap_servers or f"127.0.0.1:{self.kafka_port}"

    @property
    def rule(self) -> Rule:
        """Who holds."""
        return Rule(self.country, self.holds)

    @property
    def tables_root(self) -> str:
        """Path or URL that holds a folder for each Delta table."""
        return (self.tables or str(self.home / "tables")).rstrip("/")

    @property
    def is_on_store(self) -> bool:
        """Tell whether the tables are on an object store, and not in a folder."""
        return self.tables_root.startswith(forms.STORE)

    def folder(self, *names: str) -> Path:
        """Make a folder of the home, if it is not there, and return its path."""
        return home_folder(self.home, *names)

    _check_needs = field_validator("*")(require_what_it_needs)
    _check_ports = field_validator(*PORTS)(require_other_port)
    _check_token = field_validator("unsubscribe_url")(require_secret_of_token)
    _check_retry_cap = field_validator("retry_cap")(require_longer_cap)

    @field_validator("retry_origins")
    @classmethod
    def _check_retry_origins(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = our_topics(field, but=RETRY_TARGETS)
        origins = parse_origins(text or "", RetrySettings())
        for retries in origins.values():
            if retries.topic is not None:
                require_other_topic(check_topic(retries.topic), ours)
        if cycle := find_cycle(origins):
            raise ValueError(f"expected retries that end, found a cycle: {' to '.join(cycle)}")
        return text

    @field_validator("foreign_dead_letters")
    @classmethod
    def _check_foreign_dead_letters(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = our_topics(field)
        of_origins = parse_origins(field.data.get("retry_origins") or "", RetrySettings()).values()
        for topic in split_names(text or ""):
            require_other_topic(check_topic(topic), ours)
            for retries in of_origins:
                require_other_topic(topic, {PREFIX + "RETRY_ORIGINS": retries.topic})
        return text

    @property
    def retry_rules(self) -> RetryRules:
        """When letters are retried, per origin topic, and which errors never are."""
        of_all = ("first_delay", "factor", "cap", "jitter", "attempts")
        default = RetrySettings(**{name: getattr(self, f"retry_{name}") for name in of_all})
        of_origin = parse_origins(self.retry_origins or "", default)
        fatal = split_names(self.retry_fatal or "")
        return RetryRules(default, of_origin, fatal, self.topic("retries"))

    @property
    def connection_ids(self) -> dict[str, str]:
        """The id of Airflow's connection of each kind: kafka, smtp, aws, spark."""
        return forms.connection_ids(self.connections)

    @property
    def requestable_dags(self) -> frozenset[str]:
        """The DAGs that may be requested."""
        return split_names(self.askable_dags)

    def dag_id(self, dag: str) -> str:
        """Return what one of our DAGs is called in this installation's Airflow."""
        return f"{self.installations}_{dag}" if self.installations else dag

    def topic(self, name: TopicName) -> str:
        """Return a topic's name in this installation for its name in the contract."""
        return self.topics[name]

    def environ(self) -> dict[str, str]:
        """Return the variables from which another process loads the same settings."""
        client = {client_variable(name): value for name, value in self.kafka.items()}
        topics = {topic_variable(name): topic for name, topic in self.topics.items()}
        values = self.model_dump(exclude={"kafka", "store", "topics"})
        own = {PREFIX + name: "" if value is None else str(value) for name, value in values.items()}
        return {name.upper(): value for name, value in (client | topics | own | self.store).items()}
