"""Every setting of Shardpost, once: its name, unit and default for one machine.

Read from environment variables `SHARDPOST_*` and from a file `.env` in the checkout (the
environment wins). Nothing else in the code reads the environment. A wrong or unknown setting is
refused by name.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from shardpost.checkout import CHECKOUT
from shardpost.errors import UsageError
from shardpost.retry_settings import (
    RetryRules,
    RetrySettings,
    find_cycle,
    parse_origins,
    split_names,
)
from shardpost.topic_names import TopicName

PREFIX = "SHARDPOST_"
CLIENT_PREFIX = "SHARDPOST_KAFKA__"

Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Located = Annotated[str, AfterValidator(lambda at: at if "://" in at else str(_absolute(Path(at))))]
Absolute = Annotated[Path, AfterValidator(lambda path: _absolute(path))]


def _absolute(path: Path) -> Path:
    found = path.expanduser().absolute()
    if "%" in str(found):  # deltalake takes it for an escape, as in a URL
        raise ValueError(f"expected a path without '%', found {found}")
    return found


class Settings(BaseModel):
    """The settings object; `load()` makes one."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    home: Absolute = Field(CHECKOUT / ".shardpost", description="everything that Shardpost writes")
    tables: Located | None = Field(None, description="where the Delta tables are (home/tables)")

    bootstrap_servers: str | None = Field(None, description="Kafka; the embedded broker if unset")
    kafka: dict[str, str] = Field({}, description="client settings under librdkafka's names")
    kafka_port: Port = Field(9092, description="port of the embedded broker")
    kafka_timeout: Seconds = Field(60, description="longest wait for one answer of Kafka, seconds")
    partitions: Count = Field(8, description="partitions of a topic that Shardpost creates")
    replication_factor: Count = Field(1, description="replicas of a topic that Shardpost creates")

    topic_positions: str = "positions"
    topic_clients: str = "clients"
    topic_exchanges: str = "exchanges"
    topic_share_holders: str = "share-holders"
    topic_weekly_emails: str = "weekly-emails"
    topic_dead_letters: str = "dead-letters"
    topic_retries: str = "retries"
    topic_parking_lot: str = "parking-lot"
    topic_run_requests: str = "run-requests"
    topic_run_commands: str = "run-commands"
    topic_decisions: str = "decisions"

    country: str = Field("US", description="whose stock counts")
    lock_wait: Seconds = Field(
        600, description="how long a second run waits for the first, seconds"
    )
    snapshot_days: Count = Field(90, description="days that a snapshot stays readable")

    spark_master: str = Field("local[*]", description="Spark master of the commands")
    driver_memory: str = Field("2g", pattern=r"^\d+[kmgt]$", description="heap of a Spark driver")

    airflow_port: Port = Field(8080, description="port of the embedded Airflow")
    airflow_url: str | None = Field(None, description="Airflow's API; the embedded one if unset")
    airflow_user: str | None = Field(None, description="who starts runs there")
    airflow_password: str | None = Field(None, repr=False)

    askable_dags: str = Field(
        "compact_positions,weekly_email,sweep_dead_letters",
        description="the DAGs that a run request may ask for, with commas between",
    )
    request_bytes: Annotated[int, Field(ge=1, le=200_000)] = Field(
        65_536, description="a run request larger than this is refused"
    )
    request_days: Count = Field(
        6, description="a run request older than this is refused; less than Kafka keeps offsets"
    )
    request_wait: Seconds = Field(420, description="longest wait of `runs request --wait`, seconds")

    smtp_host: str | None = Field(None, description="mail server; the embedded sink if unset")
    smtp_port: Port = Field(2525, description="port of the mail server, embedded or not")
    smtp_user: str | None = None
    smtp_password: str | None = Field(None, repr=False)
    smtp_tls: Literal["none", "starttls", "tls"] = "none"
    smtp_timeout: Seconds = Field(60, description="longest wait for one answer of the mail server")
    mail_from: str = "Shardpost <weekly@shardpost.example>"
    unsubscribe_url: str = Field(
        "https://shardpost.example/unsubscribe?client={client}",
        description="{client} and {week} are filled in, percent-encoded",
    )
    mail_connections: Count = Field(4, description="open SMTP connections per shard")
    mail_rate: float | None = Field(None, gt=0, description="mails per second over all shards")
    mail_attempts: Count = Field(5, description="attempts at a mail that is answered 4xx")
    mail_first_delay: Seconds = Field(1, description="wait before the second attempt, seconds")
    mail_delay_factor: float = Field(4, ge=1, description="each further wait is so much longer")
    mail_breaker: Count = Field(3, description="hangs after DATA in a row that stop a shard")
    on_unknown: Literal["hold", "resend"] = Field("hold", description="what to do about `unknown`")
    weekly_lateness_days: Count = Field(
        3, description="a scheduled weekly run later than this skips its week"
    )
    weekly_first: str | None = Field(
        None,
        pattern=r"^\d{4}-W\d{2}$",
        description="first week of a scheduled run (embedded: the week of the first `up`)",
    )
    retry_first_delay: float = Field(
        60, ge=0, le=10**9, description="wait before the first retry, seconds"
    )
    retry_factor: float = Field(2, ge=1, description="each further wait is so much longer")
    retry_cap: float = Field(
        86_400, ge=0, le=10**9, description="longest wait before a retry, seconds"
    )
    retry_jitter: float = Field(0.1, ge=0, le=1, description="a wait gets up to so much longer")
    retry_attempts: int = Field(8, ge=0, le=1000, description="retries before a letter is parked")
    retry_origins: str | None = Field(
        None, description="other values for some origins: `positions: attempts=3 topic=again; …`"
    )
    retry_fatal: str | None = Field(
        "Undecodable",
        description="classes of errors that are parked at once, by commas; all of them",
    )
    retry_batch: Count = Field(1000, description="letters in one transaction of a sweep")
    retry_flood: Count | None = Field(
        None, description="of one error, more due letters than this are held (unset: no limit)"
    )
    foreign_dead_letters: str | None = Field(
        None, description="topics of Kafka Connect's or Spring Kafka's dead letters, by commas"
    )
    shards_at_once: Count = Field(
        8, description="shards that one machine mails side by side (Spark master local[*])"
    )
    shards_per_task: Count = Field(4, description="shards in one mapped task of weekly_email")

    @property
    def bootstrap(self) -> str:
        """The address that Kafka clients are given."""
        return self.bootstrap_servers or f"127.0.0.1:{self.kafka_port}"

    @property
    def tables_root(self) -> str:
        """Path or URL under which each Delta table has a folder of its own name."""
        return (self.tables or str(self.home / "tables")).rstrip("/")

    @property
    def mail_server(self) -> str:
        """Host name of the mail server."""
        return self.smtp_host or "127.0.0.1"

    @field_validator("*")
    @classmethod
    def _is_a_topic_of_its_own(cls, value: object, field: ValidationInfo) -> object:
        if field.field_name in _TOPIC_FIELDS:
            _refuse(value, _topics_so_far(field))
        return value

    @field_validator("retry_origins")
    @classmethod
    def _can_be_read(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = _topics_so_far(field, but=_RETRIED_INTO)
        found = parse_origins(text or "", RetrySettings())
        for backoff in found.values():
            _refuse(backoff.topic, ours)
        if circle := find_cycle(found):
            raise ValueError(f"expected retries that end, found a circle: {' to '.join(circle)}")
        return text

    @field_validator("foreign_dead_letters")
    @classmethod
    def _are_foreign(cls, text: str | None, field: ValidationInfo) -> str | None:
        ours = _topics_so_far(field)
        of_origins = parse_origins(field.data.get("retry_origins") or "", RetrySettings()).values()
        for topic in split_names(text or ""):
            _refuse(topic, ours)
            for backoff in of_origins:
                _refuse(topic, {"retry_origins": backoff.topic})
        return text

    @property
    def retry_rules(self) -> RetryRules:
        """When a letter of which origin is tried again, and which never are."""
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

    def topic(self, name: TopicName) -> str:
        """Return a topic's name in this installation for its name in the contract."""
        return str(getattr(self, "topic_" + name.replace("-", "_")))

    def environ(self) -> dict[str, str]:
        """Return the variables that make another process load these very settings."""
        client = {
            CLIENT_PREFIX + name.replace(".", "_"): value for name, value in self.kafka.items()
        }
        values = self.model_dump(exclude={"kafka"})
        own = {PREFIX + name: "" if value is None else str(value) for name, value in values.items()}
        return {name.upper(): value for name, value in (client | own).items()}


_TOPIC_FIELDS = frozenset(name for name in Settings.model_fields if name.startswith("topic_"))
# A retry may go back to where its record came from.
_RETRIED_INTO = frozenset({"topic_positions", "topic_clients", "topic_exchanges", "topic_retries"})


def _topics_so_far(
    field: ValidationInfo, *, but: frozenset[str] = frozenset()
) -> dict[str, object]:
    """Return {setting: name} of our own topics that were read before that field."""
    return {name: field.data[name] for name in _TOPIC_FIELDS - but if name in field.data}


def _refuse(topic: object, ours: Mapping[str, object]) -> None:
    for field, name in ours.items():
        if topic == name:
            raise ValueError(
                f"expected another topic, found that of {PREFIX}{field.upper()}: {name}"
            )


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of this process, once; UsageError names what is wrong with which."""
    if environ is None:
        return _of_this_process()
    return _read({**_dot_env(CHECKOUT / ".env"), **environ})


@lru_cache(maxsize=1)
def _of_this_process() -> Settings:
    return _read({**_dot_env(CHECKOUT / ".env"), **os.environ})


def _dot_env(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    return {name: value or "" for name, value in dotenv_values(path).items()}


def _read(environ: Mapping[str, str]) -> Settings:
    given = {name: value for name, value in environ.items() if name.upper().startswith(PREFIX)}
    values: dict[str, object] = {}
    client: dict[str, str] = {}
    for name, value in given.items():
        if name.startswith(CLIENT_PREFIX):
            client[name.removeprefix(CLIENT_PREFIX).lower().replace("_", ".")] = value
        elif (field := name.removeprefix(PREFIX).lower()) in Settings.model_fields:
            if value:
                values[field] = value
        else:
            raise UsageError(f"unknown setting {name}: see .env.example for those that there are")
    try:
        return Settings.model_validate({**values, "kafka": client})
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + str(first["loc"][0]).upper()
        found = "" if "PASSWORD" in name else f"={first['input']!r}"
        raise UsageError(
            f"setting {name}{found}: {first['msg'].removeprefix('Value error, ')}"
        ) from None
