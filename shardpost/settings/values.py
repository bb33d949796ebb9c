"""Every setting of Shardpost: its name, bounds and default for one machine.

Each is read from the environment variable `SHARDPOST_<NAME>`; no other module reads settings from
the environment. What each means, and its unit, is in `.env.example`.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from shardpost.checkout import HOME, home_folder
from shardpost.settings import combinations, forms
from shardpost.settings.forms import (
    DEFAULT_SENDER,
    Absolute,
    Count,
    Cron,
    DagIds,
    Days,
    File,
    Host,
    Language,
    ListId,
    Located,
    Port,
    Seconds,
    Servers,
    SparkMaster,
    Topic,
    Trimmed,
    Url,
    Week,
)
from shardpost.settings.variables import PREFIX, client_variable, topic_variable
from shardpost.values import schedules
from shardpost.values.retry_settings import (
    RetryRules,
    RetrySettings,
    find_cycle,
    parse_origins,
    split_names,
)
from shardpost.values.topic_names import RETRY_TARGETS, TopicName, check_topic
from shardpost.wording import share

# Whether a week that ended less than so many days ago was closed need not be looked for.
LEAST_LEDGER_DAYS = 180


class Settings(BaseModel):
    """The settings object; `load()` makes one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    home: Absolute = HOME
    tables: Located | None = None
    # Variables of AWS by their names, where the tables are on its object store, or one like it.
    store: dict[str, str] = Field({}, repr=False)

    bootstrap_servers: Servers | None = None
    # Settings of its clients, by librdkafka's names.
    kafka: dict[str, str] = Field({}, repr=False)
    kafka_port: Port = 9092
    # Half of it is the timeout of transactions, of which brokers allow 15 minutes.
    kafka_timeout: Annotated[float, Field(gt=0, le=1800)] = 60
    partitions: Annotated[int, Field(ge=1, le=4095)] = 8
    replication_factor: Annotated[int, Field(ge=1, le=32_767)] = 1

    topics_file: File | None = None
    loss_warning: Seconds = 43_200

    # {name in the contract: name in this installation}, each read from SHARDPOST_TOPIC_<NAME>.
    topics: Annotated[
        dict[TopicName, Topic],
        BeforeValidator(combinations.all_topics),
        AfterValidator(combinations.require_different_topics),
    ] = {}

    country: Trimmed = "US"
    max_drop: Annotated[float, BeforeValidator(share)] = 0.5
    lock_wait: Seconds = 600
    snapshot_days: Days = 90
    history_days: Days | None = None
    ledger_days: Annotated[int, Field(ge=LEAST_LEDGER_DAYS, le=36_500)] = 730
    audience_days: Annotated[int, Field(ge=7, le=36_500)] = 730
    letter_days: Annotated[int, Field(ge=7, le=36_500)] = 365

    import_max_closed: Annotated[float, BeforeValidator(share)] = 0.05
    import_jdbc_user: str | None = None
    import_jdbc_password: str | None = Field(None, repr=False)

    spark_master: SparkMaster = "local[*]"
    spark_conf: File | None = None
    driver_memory: Annotated[str, AfterValidator(forms.heap)] = "2g"

    airflow_port: Port = 8080
    airflow_url: Url | None = None
    airflow_user: str | None = None
    airflow_password: str | None = Field(None, repr=False)

    compact_schedule: Cron = schedules.COMPACT
    follow: Literal["off", "on"] = "off"
    sweep_schedule: Cron = schedules.SWEEP
    watch_schedule: Cron = schedules.WATCH
    maintain_schedule: Cron = schedules.MAINTAIN

    askable_dags: DagIds = "compact_positions,weekly_email,sweep_dead_letters"
    request_days: Days = 6

    smtp_host: Host | None = None
    smtp_port: Port = 2525
    smtp_user: str | None = None
    smtp_password: str | None = Field(None, repr=False)
    smtp_tls: Literal["none", "starttls", "tls"] = "none"
    smtp_plain_login: Literal["refuse", "allow"] = "refuse"
    smtp_timeout: Seconds = 300
    mail_from: Annotated[str, AfterValidator(forms.sender)] = DEFAULT_SENDER
    unsubscribe_secret: Annotated[str, AfterValidator(forms.unsubscribe_secrets)] | None = Field(
        None, repr=False
    )
    unsubscribe_url: Annotated[str, AfterValidator(forms.unsubscribe_url)] = (
        "https://shardpost.example/unsubscribe?client={client}"
    )
    mail_templates: File | None = None
    mail_language: Language | None = None
    mail_list_id: ListId = "weekly-holdings"
    mail_snapshot_age: Seconds = 3600
    mail_connections: Count = 4
    mail_rate: float | None = Field(None, gt=0, le=10**9)
    mail_attempts: Annotated[int, Field(ge=1, le=100)] = 5
    mail_refusal_share: float = Field(0.1, gt=0, le=1)
    mail_failed_share: float = Field(0.05, ge=0, le=1)
    mail_suppressed_share: float = Field(0.5, ge=0, le=1)
    on_unknown: Literal["hold", "resend"] = "hold"
    weekly_send: Annotated[str, AfterValidator(schedules.weekly_time)] = schedules.WEEKLY_SEND
    weekly_lateness_days: Days = 3
    weekly_first: Week | None = None
    retry_first_delay: float = Field(60, ge=0, le=10**9)
    retry_factor: float = Field(2, ge=1, le=1000)
    retry_cap: float = Field(86_400, ge=0, le=10**9)
    retry_jitter: float = Field(0.1, ge=0, le=1)
    retry_attempts: int = Field(8, ge=0, le=1000)
    retry_origins: str | None = None
    retry_fatal: str | None = "Undecodable"
    retry_batch: Count = 1000
    retry_flood: Count | None = None
    foreign_dead_letters: str | None = None
    alerts: Annotated[str, AfterValidator(forms.alert_urls)] | None = Field(None, repr=False)
    metrics_token: str | None = Field(None, repr=False)
    runbook: str = "docs/runbook.md#"
    shards_per_task: Count = 4

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of all Kafka clients."""
        return self.bootstrap_servers or f"127.0.0.1:{self.kafka_port}"

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

    @property
    def mail_server(self) -> str:
        """Host name of the mail server."""
        return self.smtp_host or "127.0.0.1"

    _check_needs = field_validator("*")(combinations.require_what_it_needs)
    _check_ports = field_validator(*combinations.PORTS)(combinations.require_other_port)
    _check_token = field_validator("unsubscribe_url")(combinations.require_secret_of_token)
    _check_retry_cap = field_validator("retry_cap")(combinations.require_longer_cap)

    @field_validator("retry_origins")
    @classmethod
    def _check_retry_origins(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = combinations.our_topics(field, but=RETRY_TARGETS)
        origins = parse_origins(text or "", RetrySettings())
        for retries in origins.values():
            if retries.topic is not None:
                combinations.require_other_topic(check_topic(retries.topic), ours)
        if cycle := find_cycle(origins):
            raise ValueError(f"expected retries that end, found a cycle: {' to '.join(cycle)}")
        return text

    @field_validator("foreign_dead_letters")
    @classmethod
    def _check_foreign_dead_letters(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = combinations.our_topics(field)
        of_origins = parse_origins(field.data.get("retry_origins") or "", RetrySettings()).values()
        for topic in split_names(text or ""):
            combinations.require_other_topic(check_topic(topic), ours)
            for retries in of_origins:
                combinations.require_other_topic(topic, {PREFIX + "RETRY_ORIGINS": retries.topic})
        return text

    @property
    def retry_rules(self) -> RetryRules:
        """When letters are retried, per origin topic, and which errors never are."""
        default = RetrySettings(
            self.retry_first_delay,
            self.retry_factor,
            self.retry_cap,
            self.retry_jitter,
            self.retry_attempts,
        )
        of_origin = parse_origins(self.retry_origins or "", default)
        fatal = split_names(self.retry_fatal or "")
        return RetryRules(default, of_origin, fatal, self.topic("retries"))

    @property
    def alert_urls(self) -> list[str]:
        """The URLs of the alert channels, which have secrets."""
        return (self.alerts or "").split()

    @property
    def requestable_dags(self) -> frozenset[str]:
        """The DAGs that may be requested."""
        return split_names(self.askable_dags)

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
