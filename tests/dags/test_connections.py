"""Airflow's connections as settings of its tasks: which counts, and that secrets stay secret."""

import json
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.connection import Connection
from airflow.sdk._shared.secrets_masker import redact
from airflow.utils.session import create_session

from shardpost.checkout import CHECKOUT
from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import Installation
from shardpost.orchestration.connections import Used, found, task_installation
from shardpost.run_requests import dispatch as module
from shardpost.run_requests.model.commands import DispatchCounts
from shardpost.settings import Declared, load, loading
from tests.dags.conftest import StandIn
from tests.support import secured_kafka
from tests.support.command_line import CommandLineHere
from tests.support.compacting import held, starter
from tests.support.reference import position, produce, published

KAFKA = {
    "bootstrap.servers": "b1.example:9093,b2.example:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "shardpost",
    "sasl.password": "kafka-secret-1",
    "group.id": "of-others",
    "acks": 0,
    "max.poll.interval.ms": 60000,
}
SMTP = {
    "conn_type": "smtp",
    "host": "mail.example",
    "login": "mailer",
    "password": "smtp-secret-1",
    "extra": {"disable_ssl": True},
}
AWS = {
    "conn_type": "aws",
    "login": "key-id",
    "password": "aws-secret-1",
    "extra": {"endpoint_url": "https://store.example", "region_name": "eu-west-1"},
}


@pytest.fixture(autouse=True)
def _an_airflow_of_somebody_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take away what the embedded Airflow gives its processes: all settings."""
    for name in load().environ():
        if name not in {"SHARDPOST_HOME", "SHARDPOST_DRIVER_MEMORY"}:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(loading, "DOT_ENV", tmp_path / ".env")
    loading._of_this_process.cache_clear()


def given(monkeypatch: pytest.MonkeyPatch, conn_id: str, **connection: object) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))


def kafka(monkeypatch: pytest.MonkeyPatch, **extra: object) -> None:
    given(monkeypatch, "kafka_default", conn_type="kafka", extra=extra)


def used_by(one: Used) -> str:
    """Return what counts: a variable, a connection, or the default."""
    if one.is_given:
        return one.kind.variable
    return one.connection if one.variables else "default"


def test_without_connections_and_settings_the_defaults_count() -> None:
    settings = task_installation().settings
    assert (settings.bootstrap, settings.smtp_host) == ("127.0.0.1:9092", None)
    assert [used_by(one) for one in found(Declared())] == ["default", "default"]


def test_kafka_default_says_how_the_cluster_is_reached_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka(monkeypatch, **KAFKA)
    settings = task_installation().settings
    assert settings.bootstrap == "b1.example:9093,b2.example:9093"
    assert settings.kafka == {name: KAFKA[name] for name in settings.kafka}
    assert sorted(settings.kafka) == [
        *("sasl.mechanism", "sasl.password", "sasl.username"),
        "security.protocol",
    ]
    assert "kafka-secret-1" not in str(redact("login with kafka-secret-1"))


def test_a_callback_that_airflow_allows_is_the_one_of_all_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = f"{secured_kafka.__name__}.unsigned_token"
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", path)
    kafka(monkeypatch, **KAFKA, **{"oauth_cb": path, "java.sasl.mechanism": "OAUTHBEARER"})
    installation = task_installation()
    assert installation.kafka.config()["oauth_cb"] is secured_kafka.unsigned_token
    assert installation.settings.kafka["java.sasl.mechanism"] == "OAUTHBEARER"
    assert installation.settings.environ()["SHARDPOST_KAFKA__OAUTH_CB"] == path


def test_clients_of_amazon_msk_get_the_tokens_that_the_provider_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def generate(region: str) -> tuple[str, int]:
        return f"token for {region}", 1_800_000_000_000

    signer: Any = ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = SimpleNamespace(generate_auth_token=generate)
    servers = "b-1.demo.abcde1.c2.kafka.eu-west-1.amazonaws.com:9098"
    extra = {"bootstrap.servers": servers, "sasl.mechanism": "OAUTHBEARER"}
    kafka(monkeypatch, **extra)
    with pytest.raises(UsageError, match=r"kafka_default: Failed to import aws_msk_iam_sasl_sig"):
        task_installation()
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    config = task_installation().kafka.config()
    given = config["oauth_cb"](config["sasl.oauthbearer.config"])
    assert given == ("token for eu-west-1", 1_800_000_000)


def test_a_task_and_its_spark_job_log_in_by_the_tokens_of_a_connection(
    bag: DagBag, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with secured_kafka.secured_broker(tmp_path / "broker") as secured:
        login = secured.settings(secured.kafka.token())
        CommandLineHere(login)("topics", "apply")
        settings = load(login)
        produce(settings, [*starter(), position("1", "client1", "NYSE")])
        extra = {"bootstrap.servers": settings.bootstrap, **settings.kafka}
        kafka(monkeypatch, **extra)
        monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", extra["oauth_cb"])
        monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))  # of the driver, for the callback
        monkeypatch.setenv("SHARDPOST_HOME", str(tmp_path / "home"))
        loading._of_this_process.cache_clear()
        assert bag.dags["compact_positions"].test().state == "success"
        assert published(settings) == held(task_installation().settings) == {"client1": ["1"]}


def test_a_setting_counts_and_its_connection_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kafka(monkeypatch, **{"bootstrap.servers": "wrong.example:1", "oauth_cb": "refused"})
    given(monkeypatch, "smtp_default", **SMTP)
    monkeypatch.setenv("SHARDPOST_BOOTSTRAP_SERVERS", "b3.example:9092")
    (tmp_path / ".env").write_text("SHARDPOST_SMTP_HOST=\nSHARDPOST_SMTP_PORT=2587\n")
    settings = task_installation().settings
    assert settings.bootstrap == "b3.example:9092"
    # An empty line of the file is none; in the environment it is the default: the embedded stack's.
    assert (settings.smtp_host, settings.smtp_port) == ("mail.example", 2587)
    monkeypatch.setenv("SHARDPOST_SMTP_HOST", "")
    loading._of_this_process.cache_clear()
    assert task_installation().settings.smtp_host is None
    assert [used_by(one) for one in found(Declared())] == [
        "SHARDPOST_BOOTSTRAP_SERVERS",
        "SHARDPOST_SMTP_HOST",
    ]


def test_the_example_of_airflow_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka(monkeypatch, **{"bootstrap.servers": "broker:29092", "group.id": "my-group"})
    assert task_installation().settings.bootstrap == "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("extra", "more", "expected"),
    [
        ({}, {}, ("tls", 465)),
        ({"disable_tls": True}, {"port": 4650}, ("tls", 4650)),
        ({"disable_ssl": True}, {"port": 587}, ("starttls", 587)),
        ({"disable_ssl": True, "disable_tls": True}, {}, ("none", 25)),
    ],
)
def test_smtp_default_is_read_as_airflows_own_hook_reads_it(
    extra: dict[str, object],
    more: dict[str, object],
    expected: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, "smtp_default", **SMTP | {"extra": extra} | more)
    settings = task_installation(mails=True).settings
    assert (settings.smtp_tls, settings.smtp_port) == expected
    assert (settings.smtp_user, settings.smtp_password) == ("mailer", "smtp-secret-1")


def test_aws_default_is_asked_for_tables_on_an_object_store_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given(monkeypatch, "aws_default", **AWS)
    assert [one.connection for one in found(Declared())] == ["kafka_default", "smtp_default"]
    monkeypatch.setenv("SHARDPOST_TABLES", "s3://bucket/tables")
    [*_, store] = found(Declared())
    assert store.variables == {
        "AWS_ACCESS_KEY_ID": "key-id",
        "AWS_SECRET_ACCESS_KEY": "aws-secret-1",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://store.example",
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    [*_, store] = found(Declared())
    assert (used_by(store), store.variables) == ("AWS_ACCESS_KEY_ID", {})


def test_secrets_come_from_variables_of_airflow_where_no_setting_gives_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_SHARDPOST_ALERTS", "slack://variable-secret-1")
    monkeypatch.setenv("AIRFLOW_VAR_SHARDPOST_UNSUBSCRIBE_SECRET", "1:variable-secret-1234")
    monkeypatch.setenv("AIRFLOW_VAR_SHARDPOST_IMPORT_JDBC_PASSWORD", "variable-secret-2")
    monkeypatch.setenv("SHARDPOST_IMPORT_JDBC_USER", "ann")
    monkeypatch.setenv("SHARDPOST_IMPORT_JDBC_PASSWORD", "given")
    loading._of_this_process.cache_clear()
    settings = task_installation().settings
    assert settings.alerts == "slack://variable-secret-1"
    assert settings.unsubscribe_secret == "1:variable-secret-1234"  # noqa: S105
    assert settings.import_jdbc_password == "given"  # noqa: S105
    assert settings.environ()["SHARDPOST_ALERTS"] == "slack://variable-secret-1"
    assert "variable-secret-1" not in str(redact("alerts go to slack://variable-secret-1"))
    monkeypatch.setenv("AIRFLOW_VAR_SHARDPOST_UNSUBSCRIBE_SECRET", "1:secret-3")
    with pytest.raises(UsageError, match="setting SHARDPOST_UNSUBSCRIBE_SECRET: number 1") as error:
        task_installation()
    assert "secret-3" not in str(error.value)


def test_ids_of_connections_are_a_setting_and_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDPOST_CONNECTIONS", "kafka=trading_kafka spark=team.spark")
    kafka(monkeypatch, **{"bootstrap.servers": "wrong.example:1"})
    given(monkeypatch, "trading_kafka", conn_type="kafka", extra=KAFKA)
    assert task_installation().settings.bootstrap == KAFKA["bootstrap.servers"]
    assert [used_by(one) for one in found(Declared())] == ["trading_kafka", "default"]
    assert task_installation().settings.connection_ids["spark"] == "team.spark"
    given(monkeypatch, "trading_kafka", conn_type="kafka", extra={})
    with pytest.raises(UsageError, match="connection trading_kafka: expected"):
        task_installation()


@pytest.mark.parametrize(
    ("conn_id", "connection", "said"),
    [
        ("kafka_default", {"extra": {"group.id": "x"}}, "kafka_default: expected bootstrap.serve"),
        (
            "kafka_default",
            {"extra": {**KAFKA, "oauth_cb": "a.b"}},
            "kafka_default: Refusing to resolve Kafka callback oauth_cb='a.b'",
        ),
        (
            "kafka_default",
            {"extra": {"bootstrap.servers": "no port"}},
            "connections kafka_default, as settings: setting SHARDPOST_BOOTSTRAP_SERVERS='no port'",
        ),
        ("smtp_default", {"login": "x"}, "smtp_default: expected a host"),
        (
            "smtp_default",
            SMTP | {"extra": {"auth_type": "oauth2"}},
            "smtp_default: expected a logi",
        ),
        (
            "smtp_default",
            SMTP | {"password": None},
            "connections smtp_default, as settings: setting SHARDPOST_SMTP_PASSWORD: expected a pa",
        ),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_by_name(
    conn_id: str, connection: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, conn_id, **connection)
    with pytest.raises(UsageError, match=said) as error:
        task_installation()
    assert "secret-1" not in str(error.value)


def test_a_task_takes_a_connection_of_airflows_database_and_says_so(
    bag: DagBag, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    def dispatch(installation: Installation, *_: object) -> DispatchCounts:
        seen.append(installation.kafka.bootstrap)
        return DispatchCounts()

    monkeypatch.setattr(module, "dispatch", dispatch)
    extra = {"bootstrap.servers": "b4.example:9092"}
    kept = Connection(conn_id="kafka_default", conn_type="kafka", extra=json.dumps(extra))
    with create_session() as session:
        session.add(kept)
    try:
        with caplog.at_level(logging.INFO):
            assert bag.dags["dispatch_run_requests"].test().state == "success"
    finally:
        with create_session() as session:
            session.query(Connection).filter_by(conn_id="kafka_default").delete()
    assert seen == ["b4.example:9092"]
    assert "Kafka: from the connection kafka_default" in caplog.messages


def test_a_job_has_the_connections_in_its_environment_and_not_in_its_arguments(
    submitted_stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, noted = tmp_path / "bin" / "spark-submit", tmp_path / "noted"
    submit.parent.mkdir()
    submit.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump([sys.argv, dict(os.environ)], open({str(noted)!r}, 'w'))\n"
        "sys.exit(2)\n"
    )
    submit.chmod(0o755)
    monkeypatch.setattr("shardpost.spark.submit.BIN", submit.parent)
    submitted_stand_in({"done": [0, {}]})
    kafka(monkeypatch, **KAFKA)
    given(monkeypatch, "smtp_default", **SMTP)
    dag = DagBag(dag_folder=Path(__file__).parent / "samples" / "exit_codes.py").dags["exit_codes"]
    dag.partial_subset("done", include_upstream=False).test()
    arguments, environ = json.loads(noted.read_text())
    assert "secret-1" not in json.dumps(arguments)
    monkeypatch.undo()
    settings = load({name: text for name, text in environ.items() if name.startswith("SHARDPOST_")})
    assert settings.kafka["sasl.password"] == "kafka-secret-1"
    assert (settings.smtp_host, settings.smtp_password) == ("mail.example", "smtp-secret-1")


def test_a_send_without_a_known_mail_server_is_not_begun(
    bag: DagBag, monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Any = bag.dags["weekly_email"].task_dict["send"]
    assert send.partial_kwargs["mails"]
    with pytest.raises(ShardpostError, match="no mail server: expected SHARDPOST_SMTP_HOST in the"):
        task_installation(mails=True)
    monkeypatch.setenv("SHARDPOST_SMTP_HOST", "")
    assert task_installation(mails=True).settings.smtp_host is None
