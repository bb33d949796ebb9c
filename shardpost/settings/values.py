"""Every setting of Shardpost, declared once: its name, unit and default for one machine.

Each is read from the environment variable `SHARDPOST_<NAME>`; no other module reads settings from
the environment.
"""

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

from shardpost.checkout import CHECKOUT
from shardpost.retry_settings import (
    RetryRules,
    RetrySettings,
    find_cycle,
    parse_origins,
    split_names,
)
from shardpost.settings import combinations, forms
from shardpost.settings.combinations import (
    RETRY_TARGETS,
    TOPIC_FIELDS,
    require_other_topic,
    topic_field,
    topics_before,
)
from shardpost.settings.forms import (
    DEFAULT_SENDER,
    Absolute,
    Count,
    Days,
    File,
    Host,
    Located,
    Port,
    Seconds,
    Servers,
    Topic,
    Url,
    Week,
    sender_or_default,
)
from shardpost.settings.variables import PREFIX, client_variable
from shardpost.shares import share
from shardpost.topic_names import TopicName

# Whether a week that ended less than so many days ago was closed need not be looked for.
LEAST_LEDGER_DAYS = 180


class Settings(BaseModel):
    """The settings object; `load()` makes one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    home: Absolute = Field(
        CHECKOUT / ".shardpost", description="folder of everything that Shardpost writes"
    )
    tables: Located | None = Field(
        None, description="path or URL of the Delta tables; home/tables if unset"
    )

    bootstrap_servers: Servers | None = Field(
        None, description="Kafka's address; the embedded broker if unset"
    )
    kafka: dict[str, str] = Field({}, description="client settings, by librdkafka's names")
    kafka_port: Port = Field(9092, description="port of the embedded broker")
    # Half of it is the timeout of transactions, of which brokers allow 15 minutes.
    kafka_timeout: Annotated[float, Field(gt=0, le=1800)] = Field(
        60, description="timeout of one Kafka request, seconds"
    )
    partitions: Annotated[int, Field(ge=1, le=4095)] = Field(
        8, description="partitions of each topic that is created"
    )
    replication_factor: Annotated[int, Field(ge=1, le=32_767)] = Field(
        1, description="replicas of each topic that is created"
    )

    topics_file: File | None = Field(
        None, description="file of what is declared of topics otherwise; the defaults if unset"
    )
    loss_warning: Seconds = Field(
        43_200,
        description="time to loss from which on `shardpost lag` ends with 3, seconds",
    )

    topic_positions: Topic = "positions"
    topic_clients: Topic = "clients"
    topic_exchanges: Topic = "exchanges"
    topic_share_holders: Topic = "share-holders"
    topic_weekly_emails: Topic = "weekly-emails"
    topic_dead_letters: Topic = "dead-letters"
    topic_retries: Topic = "retries"
    topic_parking_lot: Topic = "parking-lot"
    topic_run_requests: Topic = "run-requests"
    topic_run_commands: Topic = "run-commands"
    topic_decisions: Topic = "decisions"

    country: Annotated[str, AfterValidator(forms.trimmed)] = Field(
        "US", description="country whose stock is reported"
    )
    lock_wait: Seconds = Field(
        600, description="longest wait for a lock that another run holds, seconds"
    )
    snapshot_days: Days = Field(
        90, description="days for which the last snapshot of each day stays readable"
    )
    history_days: Days | None = Field(
        None,
        description="days after which records that later ones superseded leave the histories; kept"
        " for good if unset",
    )
    ledger_days: Annotated[int, Field(ge=LEAST_LEDGER_DAYS, le=36_500)] = Field(
        730, description="days after which the records of a week leave the ledger"
    )
    audience_days: Annotated[int, Field(ge=7, le=36_500)] = Field(
        730, description="days after which the audience of a week is erased"
    )
    letter_days: Annotated[int, Field(ge=7, le=36_500)] = Field(
        365, description="days for which the table of letters keeps those that were dealt with"
    )
    fold_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="new records of a table, as a share of its rows, from which its files are"
        " rewritten",
    )
    fold_records: Count = Field(
        50_000, description="new records of a table below which its files are not rewritten for it"
    )
    fold_runs: Count = Field(
        500, description="snapshots after which the files of a table with new records are rewritten"
    )

    import_max_closed: Annotated[float, BeforeValidator(share)] = Field(
        0.05,
        description="share of the open positions that an import may close: 5% or 0.05",
    )
    import_jdbc_user: str | None = Field(
        None, description="user of the database that an import reads"
    )
    import_jdbc_password: str | None = Field(None, repr=False)

    spark_master: Annotated[str, AfterValidator(forms.spark_master)] = Field(
        "local[*]", description="Spark master of jobs that a command starts"
    )
    driver_memory: Annotated[str, AfterValidator(forms.heap)] = Field(
        "2g", description="heap of a Spark driver"
    )

    airflow_port: Port = Field(8080, description="port of the embedded Airflow")
    airflow_url: Url | None = Field(
        None, description="URL of Airflow's API; the embedded one if unset"
    )
    airflow_user: str | None = Field(None, description="user of Airflow's API")
    airflow_password: str | None = Field(None, repr=False)

    askable_dags: Annotated[str, AfterValidator(forms.dag_ids)] = Field(
        "compact_positions,weekly_email,sweep_dead_letters",
        description="DAGs that may be requested, comma-separated; replaces the default",
    )
    request_bytes: Annotated[int, Field(ge=1, le=200_000)] = Field(
        65_536, description="largest key or value of a run request, bytes"
    )
    request_days: Days = Field(
        6,
        description="maximum age of a run request; keep it below Kafka's offsets.retention.minutes",
    )
    request_wait: Seconds = Field(420, description="timeout of `runs request --wait`, seconds")

    smtp_host: Host | None = Field(None, description="mail server; the embedded sink if unset")
    smtp_port: Port = Field(2525, description="port of the mail server, embedded or not")
    smtp_user: str | None = None
    smtp_password: str | None = Field(None, repr=False)
    smtp_tls: Literal["none", "starttls", "tls"] = "none"
    smtp_plain_login: Literal["refuse", "allow"] = Field(
        "refuse", description="a login without TLS at a mail server that is not on this machine"
    )
    # The defaults are those of RFC 5321, 4.5.3.2.
    smtp_connect_timeout: Seconds = Field(
        300, description="timeout of a connection and its greeting, seconds"
    )
    smtp_timeout: Seconds = Field(300, description="timeout of the answer to a command, seconds")
    smtp_data_timeout: Seconds = Field(120, description="timeout of the answer to DATA, seconds")
    smtp_block_timeout: Seconds = Field(
        180, description="timeout of writing 64 KiB of a message, seconds"
    )
    smtp_end_timeout: Seconds = Field(
        600, description="timeout of the answer to the end of a message, seconds"
    )
    mail_from: Annotated[str, AfterValidator(lambda text: sender_or_default(text))] = DEFAULT_SENDER
    unsubscribe_url: Annotated[str, AfterValidator(forms.unsubscribe_url)] = Field(
        "https://shardpost.example/unsubscribe?client={client}",
        description="{client} and {week} are replaced, percent-encoded",
    )
    mail_list_id: Annotated[str, AfterValidator(forms.list_id)] = Field(
        "weekly-holdings",
        description="the list within the sender's domain: of List-Id, and of each Message-ID",
    )
    mail_snapshot_age: Seconds = Field(
        3600, description="oldest `looked_at` of a snapshot that a send may begin with, seconds"
    )
    mail_subscription_interval: Seconds = Field(
        60, description="interval at which a send asks who has unsubscribed since, seconds"
    )
    mail_connections: Count = Field(4, description="open SMTP connections per shard")
    mail_rate: float | None = Field(
        None, gt=0, le=10**9, description="messages per second over all shards; unlimited if unset"
    )
    mail_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        5, description="attempts at a message that is answered 4xx"
    )
    mail_first_delay: Seconds = Field(1, description="delay before the second attempt, seconds")
    mail_delay_factor: float = Field(4, ge=1, le=100, description="growth of each further delay")
    mail_breaker: Count = Field(3, description="consecutive timeouts after DATA that stop a shard")
    mail_refusals: Count = Field(10, description="consecutive refusals that stop a shard")
    mail_refusal_share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="share of messages that are refused, or get no answer, above which a shard"
        " stops; 1: never",
    )
    mail_failed_allowed: int = Field(
        5, ge=0, description="`failed` clients of a week that need no attention, whatever the share"
    )
    mail_failed_share: float = Field(
        0.05, ge=0, le=1, description="share of `failed` clients of a week that needs no attention"
    )
    mail_suppressed_allowed: int = Field(
        5,
        ge=0,
        description="`suppressed` clients of a week that need no attention, whatever the share",
    )
    mail_suppressed_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of `suppressed` clients of a week that needs no attention",
    )
    on_unknown: Literal["hold", "resend"] = Field(
        "hold", description="what to do about `unknown` deliveries"
    )
    weekly_lateness_days: Days = Field(
        3, description="a scheduled weekly run that is later than this skips its week"
    )
    weekly_first: Week | None = Field(
        None,
        description="first week of a scheduled run; embedded: the week of the first `up`",
    )
    retry_first_delay: float = Field(
        60, ge=0, le=10**9, description="delay before the first retry, seconds"
    )
    retry_factor: float = Field(2, ge=1, le=1000, description="growth of each further delay")
    retry_cap: float = Field(
        86_400, ge=0, le=10**9, description="longest delay before a retry, seconds"
    )
    retry_jitter: float = Field(
        0.1, ge=0, le=1, description="largest random share that is added to a delay"
    )
    retry_attempts: int = Field(8, ge=0, le=1000, description="retries before a letter is parked")
    retry_origins: str | None = Field(
        None, description="overrides per origin topic: `positions: attempts=3 topic=again; …`"
    )
    retry_fatal: str | None = Field(
        "Undecodable",
        description="error classes that are parked at once, comma-separated; replaces the default",
    )
    retry_batch: Count = Field(1000, description="letters per transaction of a sweep")
    retry_flood: Count | None = Field(
        None,
        description="due letters with the same error above which they are held; no limit if unset",
    )
    foreign_dead_letters: str | None = Field(
        None, description="dead-letter topics of Kafka Connect or Spring Kafka, comma-separated"
    )
    alerts: Annotated[str, AfterValidator(forms.alert_urls)] | None = Field(
        None,
        repr=False,
        description="URLs of Apprise to which alerts go, separated by blanks; `shardpost alerts"
        " test` tries them",
    )
    watch_snapshot_age: Seconds = Field(
        3600, description="age of the newest snapshot's `looked_at` that needs a person, seconds"
    )
    watch_letter_age: Seconds = Field(
        3600, description="time for which a letter's retry may have been due, seconds"
    )
    watch_run_age: Seconds = Field(
        86_400, description="time for which a run command may be in force, seconds"
    )
    watch_days: Days = Field(90, description="days for which what was measured is kept")
    metrics_token: str | None = Field(None, repr=False)
    runbook: str = Field(
        "docs/runbook.md#",
        description="what alerts put before the name of a page of the runbook, such as its URL",
    )
    shards_at_once: Annotated[int, Field(ge=1, le=1000)] = Field(
        8,
        description="shards that are mailed in parallel on one machine (Spark master local[*])",
    )
    shards_per_task: Count = Field(4, description="shards per mapped task of weekly_email")

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of all Kafka clients."""
        return self.bootstrap_servers or f"127.0.0.1:{self.kafka_port}"

    @property
    def tables_root(self) -> str:
        """Path or URL that holds a folder for each Delta table."""
        return (self.tables or str(self.home / "tables")).rstrip("/")

    @property
    def mail_server(self) -> str:
        """Host name of the mail server."""
        return self.smtp_host or "127.0.0.1"

    @field_validator("*")
    @classmethod
    def _check_topic(cls, value: object, field: ValidationInfo) -> object:
        if field.field_name in TOPIC_FIELDS:
            require_other_topic(value, topics_before(field))
        combinations.require_what_it_needs(value, field)
        return value

    @field_validator("kafka_port", "airflow_port", "smtp_port")
    @classmethod
    def _check_port(cls, port: int, field: ValidationInfo) -> int:
        combinations.require_other_port(port, field)
        return port

    @field_validator("retry_cap")
    @classmethod
    def _check_retry_cap(cls, cap: float, field: ValidationInfo) -> float:
        combinations.require_longer_cap(cap, field)
        return cap

    @field_validator("retry_origins")
    @classmethod
    def _check_retry_origins(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = topics_before(field, but=RETRY_TARGETS)
        origins = parse_origins(text or "", RetrySettings())
        for retries in origins.values():
            if retries.topic is not None:
                require_other_topic(forms.topic(retries.topic), ours)
        if cycle := find_cycle(origins):
            raise ValueError(f"expected retries that end, found a cycle: {' to '.join(cycle)}")
        return text

    @field_validator("foreign_dead_letters")
    @classmethod
    def _check_foreign_dead_letters(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = topics_before(field)
        of_origins = parse_origins(field.data.get("retry_origins") or "", RetrySettings()).values()
        for topic in split_names(text or ""):
            require_other_topic(forms.topic(topic), ours)
            for retries in of_origins:
                require_other_topic(topic, {"retry_origins": retries.topic})
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
        return RetryRules(default, of_origin, fatal, self.topic_retries)

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
        return str(getattr(self, topic_field(name)))

    def environ(self) -> dict[str, str]:
        """Return the variables from which another process loads the same settings."""
        client = {client_variable(name): value for name, value in self.kafka.items()}
        values = self.model_dump(exclude={"kafka"})
        own = {PREFIX + name: "" if value is None else str(value) for name, value in values.items()}
        return {name.upper(): value for name, value in (client | own).items()}
