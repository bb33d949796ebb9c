"""Settings: what is read, what is refused, and that .env.example is complete."""

import os
from pathlib import Path

import pytest
from dotenv import dotenv_values

from shardpost.checkout import CHECKOUT
from shardpost.errors import UsageError
from shardpost.settings import Settings, load, loading
from shardpost.settings.loading import DotEnv, read_dot_env

CHECKOUT_DEFAULTS = {"SHARDPOST_HOME": str(CHECKOUT / ".shardpost")}


def defaults() -> dict[str, str | None]:
    """Return each variable with the text of its default; None where there is none."""
    return {
        f"SHARDPOST_{name.upper()}": None if field.default is None else str(field.default)
        for name, field in Settings.model_fields.items()
        if name not in {"kafka", "store", "topics"}
    }


def test_env_example_has_every_setting_with_its_default() -> None:
    given = dotenv_values(CHECKOUT / ".env.example", interpolate=False)
    written = {name: value or CHECKOUT_DEFAULTS.get(name) for name, value in given.items()}
    assert written == defaults()


def test_env_example_explains_every_setting() -> None:
    is_explained = False
    for line in (CHECKOUT / ".env.example").read_text().splitlines():
        if line.startswith("#") or not line:
            is_explained = bool(line)
        else:
            assert is_explained, line


def test_env_example_says_of_the_url_to_unsubscribe_what_is_of_the_url() -> None:
    text = (CHECKOUT / ".env.example").read_text()
    above = text[: text.index("\nSHARDPOST_UNSUBSCRIBE_URL=")].splitlines()[-2:]
    assert above[0].startswith("# https only (RFC 8058). {client}")


def test_env_example_is_accepted_as_it_is() -> None:
    given = dotenv_values(CHECKOUT / ".env.example", interpolate=False)
    read = load({name: value or "" for name, value in given.items()})
    assert read == Settings.model_validate({})


WRONG = {
    "HOME": ["/data/50%", __file__, f"{__file__}/home"],
    "TABLES": ["/data/a%20b", __file__, "foo://bar"],
    "KAFKA_PORT": ["99999"],
    "PARTITIONS": ["0", "5000"],
    "BOOTSTRAP_SERVERS": ["localhost", "kafka1:9092,kafka2:99092", "kafka1:9092,"],
    "KAFKA_TIMEOUT": ["-1", "inf", "2000"],
    "TOPIC_POSITIONS": ["my positions", "..", "p" * 250, "__consumer_offsets"],
    "TOPIC_RETRIES": ["dead-letters"],
    "FOREIGN_DEAD_LETTERS": ["connect-dlq, dead-letters", "connect dlq"],
    "RETRY_ORIGINS": ["orders: topic=parking-lot", "orders: topic=re/tries"],
    "RETRY_CAP": ["30"],
    "SNAPSHOT_DAYS": ["9999999999"],
    "DRIVER_MEMORY": ["much", "100m"],
    "SPARK_MASTER": ["local[0]", "spark:host", "mesos://host:5050"],
    "WEEKLY_FIRST": ["2026-W60", "\uff12026-W47"],
    "COUNTRY": ["US "],
    "ON_UNKNOWN": ["guess"],
    "MAIL_LIST_ID": ["two words", "dot.at.end."],
    "MAIL_RATE": ["nan"],
    "MAIL_FROM": [
        *("Weekly", "jörg@bank.com", "a@bank.com <c@bank.com>", "a@bank.com, c@bank.com"),
        *("Bank <a@bank.com> <c@bank.com>", "A\r\nBcc: x <c@bank.com>", "Doe, John <a@bank.com>"),
        *("Bank <a@bank.com>, c@bank.com", "Bank: a@bank.com;", "Bank <a@bank.com", "a@bank.com,"),
    ],
    "SMTP_HOST": ["smtp://mail.bank.com", "mail.bank.com:25"],
    "SMTP_TLS": ["starttls"],
    "SMTP_USER": ["anna"],
    "SMTP_PLAIN_LOGIN": ["maybe"],
    "AIRFLOW_URL": ["airflow:8080", "http://airflow:99999"],
    "AIRFLOW_USER": ["anna"],
    "CONNECTIONS": ["trading_kafka", "kafka=a kafka=b", "s3=a", "spark="],
    "ASKABLE_DAGS": ["weekly_email;other"],
    "UNSUBSCRIBE_URL": [
        *("http://bank.com/{client}", "https://bank.com/ {client}", "https://bank.com/{client"),
        *("https://bank.com/{client}/{wek}", "https://bank.com/all"),
        *("https://{client}.bank.com/", "https://bank.com:x/{client}"),
    ],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_setting_is_refused_by_name_and_value(name: str, value: str) -> None:
    with pytest.raises(UsageError) as found:
        load({f"SHARDPOST_{name}": value})
    assert f"setting SHARDPOST_{name}={value!r}: " in str(found.value)
    assert "Input should" not in str(found.value)  # in Pydantic's words


@pytest.mark.parametrize(
    "given",
    [
        {"BOOTSTRAP_SERVERS": "kafka-1.bank.com:9092, [::1]:9093,SASL_SSL://kafka_3:9094"},
        {"BOOTSTRAP_SERVERS": "kafka:9092", "KAFKA_PORT": "8080"},
        {"SMTP_HOST": "mail.bank.com", "SMTP_PORT": "8080", "SMTP_TLS": "tls"},
        {"UNSUBSCRIBE_URL": "https://bank.com:8443/u?c={client}&w={week}"},
        {"MAIL_FROM": '"Bank, weekly" <news@bank.com>'},
        {"MAIL_FROM": "Bank (UK) & O'Brien Co. <news@bank.com>"},
        {"TABLES": "/data/tables", "COUNTRY": "GB"},
        {"SPARK_MASTER": "local[2]"},
        {"SPARK_MASTER": "spark://one:7077,two:7077"},
        {"SPARK_MASTER": "k8s://https://cluster:443"},
        {"WEEKLY_FIRST": "2026-W53"},
        {"DRIVER_MEMORY": "512m"},
        {"RETRY_FIRST_DELAY": "30.0", "RETRY_CAP": "30.0"},
        {"AIRFLOW_URL": "https://airflow.bank.com/x", "AIRFLOW_USER": "a", "AIRFLOW_PASSWORD": "b"},
        {"RETRY_ORIGINS": "orders: topic=again", "FOREIGN_DEAD_LETTERS": "orders-dlt"},
        {"RETRY_ORIGINS": "a: topic=a"},
        {"RETRY_ORIGINS": "a: topic=b; b: topic=b"},
        {"RETRY_ORIGINS": "a: topic=b; b: topic=c; c: attempts=1"},
    ],
)
def test_a_right_setting_is_accepted(given: dict[str, str]) -> None:
    read = load({f"SHARDPOST_{name}": value for name, value in given.items()})
    assert {name: str(getattr(read, name.lower())) for name in given} == given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AIRFLOW_URL", "https://me:hush@airflow"),
        ("AIRFLOW_URL", "http://me:hu/hush@airflow:99999"),
        ("UNSUBSCRIBE_URL", "https://me:hush@bank.com/u?c={client}"),
        ("BOOTSTRAP_SERVERS", "SASL_SSL://me:hush@kafka:9092"),
        ("TABLES", "s3://me:hush@bucket/tables"),
        ("SMTP_HOST", "smtp://me:hush@mail.bank.com"),
        ("SPARK_MASTER", "k9s://me:hush@host"),
        ("KAFKA__SASL_PASWORD", "hush"),
        ("KAFKA__SSL_KEY_PASPHRASE", "hush"),
        ("METRICS_TOKN", "hush"),
    ],
)
def test_a_secret_in_a_wrong_setting_is_not_shown(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"SHARDPOST_{name}") as raised:
        load({f"SHARDPOST_{name}": value})
    assert "hush" not in str(raised.value)


def test_settings_are_shown_without_secrets() -> None:
    secrets = {"KAFKA__SASL_PASSWORD": "hush", "METRICS_TOKEN": "hush", "ALERTS": "json://hush"}
    secrets |= {"SMTP_HOST": "a.b", "SMTP_USER": "me", "SMTP_PASSWORD": "hush"}
    secrets |= {"AIRFLOW_URL": "https://a.b", "AIRFLOW_USER": "me", "AIRFLOW_PASSWORD": "hush"}
    secrets |= {"IMPORT_JDBC_USER": "me", "IMPORT_JDBC_PASSWORD": "hush"}
    secrets |= {"INPUTS": "inputs.yml", "REGISTRY_PASSWORD": "hush"}
    found = load({f"SHARDPOST_{name}": value for name, value in secrets.items()})
    assert "hush" not in repr(found)


def test_tables_are_at_a_path_or_a_file_url() -> None:
    assert load({"SHARDPOST_TABLES": "file:///my%20data/tables"}).tables_root == "/my data/tables"
    with pytest.raises(UsageError, match="expected a file:// URL without a host"):
        load({"SHARDPOST_TABLES": "file://host/data/tables"})


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "hdfs", "nfs"])
def test_a_store_that_no_test_has_run_on_is_refused(scheme: str) -> None:
    for name in ("TABLES", "HOME", "TOPICS_FILE"):
        if (scheme, name) == ("s3", "TABLES"):
            continue
        with pytest.raises(UsageError, match=f"SHARDPOST_{name}=.*expected a path of this machine"):
            load({f"SHARDPOST_{name}": f"{scheme}://bucket/shardpost"})


STORE = {
    "SHARDPOST_TABLES": "s3://bucket/tables/",
    "AWS_ACCESS_KEY_ID": "me",
    "AWS_SECRET_ACCESS_KEY": "hush",
    "AWS_ENDPOINT_URL": "https://store:9000",
}


def test_an_object_store_is_known_by_the_variables_of_aws() -> None:
    read = load(STORE | {"AWS_SESSION_TOKEN": "hush", "AWS_PROFILE": "other"})
    assert (read.is_on_store, read.tables_root) == (True, "s3://bucket/tables")
    assert load(read.environ()) == read  # as a process that it starts reads it
    assert read.store.keys() == {*STORE, "AWS_SESSION_TOKEN", "AWS_REGION"} - {"SHARDPOST_TABLES"}
    assert "hush" not in repr(read)
    assert load({**STORE, "SHARDPOST_TABLES": ""}).store == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": ""}, "set AWS_ACCESS_KEY_ID, too"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY, too"),
        ({"AWS_ENDPOINT_URL": ""}, "set AWS_REGION, too"),
        ({"AWS_ENDPOINT_URL": "store:9000"}, "expected a URL such as https://host:port"),
        ({"AWS_ENDPOINT_URL": "https://me:hush@store"}, "expected a URL such as https://host:port"),
        ({"AWS_ENDPOINT_URL": "http://store:9000"}, "set AWS_ALLOW_HTTP=true"),
        ({"SHARDPOST_TABLES": "s3://b"}, "expected s3://BUCKET/FOLDER"),
        ({"SHARDPOST_TABLES": "s3://bucket/a//b"}, "expected s3://BUCKET/FOLDER"),
        ({"SHARDPOST_TABLES": "s3://bucket/a/../b"}, "expected s3://BUCKET/FOLDER"),
    ],
)
def test_what_is_missing_of_an_object_store_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        load(STORE | given)
    assert "hush" not in str(raised.value)


def test_all_wrong_settings_are_named_at_once() -> None:
    wrong = {
        "SHARDPOST_KAFKA_PROT": "9092",
        "SHARDPOST_PARTITIONS": "0",
        "SHARDPOST_UNSUBSCRIBE_URL": "https://bank.com/{clinet}",
        "SHARDPOST_KAFKA__FOO": "1",
        "SHARDPOST_KAFKA__SECURITY_PROTOCOL": "SLS",
    }
    with pytest.raises(UsageError) as found:
        load(wrong)
    assert [name for name in wrong if name not in str(found.value)] == []
    assert "did you mean SHARDPOST_KAFKA_PORT?" in str(found.value)
    assert "found {clinet}" in str(found.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"KAFKA_PROT": "9092"}, "unknown setting SHARDPOST_KAFKA_PROT"),
        (
            {"WEEKLY_SCHEDULE": "x"},
            r"did you mean SHARDPOST_WEEKLY_FIRST or .* or .*_WEEKLY_SEND\?",
        ),
        ({"LOCK_WAIT": "0"}, r"LOCK_WAIT='0': expected a number above 0$"),
        ({"FOLLOW": "maybe"}, "FOLLOW='maybe': expected 'off' or 'on'"),
        ({"KAFKA_PORT": "8080"}, r"AIRFLOW_PORT=8080: expected a port other than SHARDPOST_KAFKA"),
        ({"SMTP_PORT": "8080"}, r"SMTP_PORT='8080': expected a port other than SHARDPOST_AIRFLOW"),
        ({"SMTP_HOST": "a.b", "SMTP_USER": "anna"}, "SMTP_PASSWORD: expected a password for the"),
        ({"SMTP_HOST": "a.b", "SMTP_PASSWORD": "x"}, "SMTP_PASSWORD: requires SHARDPOST_SMTP_USER"),
        (
            {"TOPIC_WEEKLY_EMAILS": "a_b", "TOPIC_DEAD_LETTERS": "a.b"},
            "TOPIC_DEAD_LETTERS='a.b': .* found the topic of SHARDPOST_TOPIC_WEEKLY_EMAILS: a_b",
        ),
        ({"TOPIC_POSITION": "a"}, "unknown setting .*: did you mean SHARDPOST_TOPIC_POSITIONS?"),
        (
            {"RETRY_ORIGINS": "orders: topic=again", "FOREIGN_DEAD_LETTERS": "again"},
            "found the topic of SHARDPOST_RETRY_ORIGINS: again",
        ),
        ({"RETRY_ORIGINS": "a: topic=b; b: topic=c; c: topic=b"}, "found a cycle: b to c to b"),
        ({"KAFKA__FOO": "1"}, r"KAFKA__FOO: Kafka's client \(librdkafka\) has no setting foo"),
        ({"KAFKA__SOCKET_TIMEOUT_MS": "1"}, "SHARDPOST_KAFKA__SOCKET_TIMEOUT_MS='1': "),
        ({"KAFKA__FETCH_MIN_BYTES": "0"}, "SHARDPOST_KAFKA__FETCH_MIN_BYTES='0': "),
        ({"KAFKA__ACKS": "1"}, "SHARDPOST_KAFKA__ACKS"),
        ({"KAFKA__GROUP_ID": "mine"}, "GROUP_ID: expected none: Shardpost sets group.id"),
        ({"KAFKA__BOOTSTRAP_SERVERS": "x:1"}, "set SHARDPOST_BOOTSTRAP_SERVERS instead"),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "KAFKA__SASL_MECHANISMS": "PLAIN"},
            "sasl.username and",
        ),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CA_LOCATION": "/nope"},
            "KAFKA__SSL_CA_LOCATION='/nope",
        ),
    ],
)
def test_what_does_not_go_together_or_kafkas_client_does_not_accept_is_refused_by_name(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load({f"SHARDPOST_{name}": value for name, value in given.items()})


def test_a_secret_of_kafkas_client_is_not_shown() -> None:
    with pytest.raises(UsageError, match="SHARDPOST_KAFKA__SSL_KEY_PEM") as found:
        load({"SHARDPOST_KAFKA__SSL_KEY_PEM": "hush", "SHARDPOST_KAFKA__SECURITY_PROTOCOL": "SSL"})
    assert "hush" not in str(found.value)


@pytest.fixture
def dot_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the path of the file `.env`, which is not there yet."""
    monkeypatch.setattr(loading, "DOT_ENV", tmp_path / ".env")
    return tmp_path / ".env"


def test_lines_of_the_file_that_are_wrong_are_named_with_their_numbers(dot_env: Path) -> None:
    text = "# mine\nSHARDPOST_KAFKA_PROT=1\n\nSHARDPOST_PARTITIONS=0\nHTTP_PROXY=x\nno line\nX\n"
    dot_env.write_text(text)
    with pytest.raises(UsageError) as found:
        load({})
    said = str(found.value)
    assert f"did you mean SHARDPOST_KAFKA_PORT? (line 2 of {dot_env})" in said
    assert f"setting SHARDPOST_PARTITIONS='0' (line 4 of {dot_env}): " in said
    assert f"line 5 of {dot_env}: expected a setting, which begins with SHARDPOST_, found H" in said
    assert f"line 6 of {dot_env}: expected NAME=value" in said
    assert f"line 7 of {dot_env}: expected NAME=value" in said


def test_a_wrong_setting_of_the_environment_is_said_to_be_of_it(
    dot_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dot_env.write_text("SHARDPOST_PARTITIONS=3\n")
    monkeypatch.setenv("SHARDPOST_PARTITIONS", "0")
    said = r"PARTITIONS='0' \(environment\): expected a number from 1 on"
    with pytest.raises(UsageError, match=said):
        loading.one("partitions")
    with pytest.raises(UsageError, match=said):
        load(os.environ)


def test_lines_of_the_file_that_are_wrong_are_not_logged_by_a_library_too(
    dot_env: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dot_env.write_text("no line\nSHARDPOST_PARTITIONS=3\n")
    with pytest.raises(UsageError, match="expected NAME=value"):
        load({})
    assert caplog.records == []


def test_a_file_that_is_no_text_in_utf_8_or_a_folder_is_refused(dot_env: Path) -> None:
    dot_env.write_text("SHARDPOST_PARTITIONS=3\n", encoding="utf-16")
    with pytest.raises(UsageError, match=f"{dot_env}: expected text in UTF-8"):
        load({})
    dot_env.write_text("SHARDPOST_PARTITIONS=3\n", encoding="utf-8-sig")
    assert load({}).partitions == 3
    dot_env.unlink()
    dot_env.mkdir()
    with pytest.raises(UsageError, match=r"\.env: cannot be read: expected a file, found a folder"):
        load({})


def test_values_of_the_file_may_name_variables(
    dot_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dot_env.write_text("SHARDPOST_HOME=${OF_TEST}/a\n# note\nSHARDPOST_PARTITIONS=3")
    monkeypatch.setenv("OF_TEST", str(dot_env.parent))
    read = load({})
    assert (read.home, read.partitions) == (dot_env.parent / "a", 3)


def test_the_environment_wins_over_the_file(dot_env: Path) -> None:
    dot_env.write_text("COMPOSE_PROJECT_NAME=x\nSHARDPOST_PARTITIONS=3\nSHARDPOST_COUNTRY=DE\n")
    read = load({"SHARDPOST_PARTITIONS": "5"})
    assert (read.partitions, read.country) == (5, "DE")
    with pytest.raises(UsageError, match="setting SHARDPOST_PARTITIONS='0': "):
        load({"SHARDPOST_PARTITIONS": "0"})


def test_a_password_is_not_shown() -> None:
    login = {"SHARDPOST_SMTP_HOST": "localhost", "SHARDPOST_SMTP_USER": "anna"}
    assert "secret" not in repr(load(login | {"SHARDPOST_SMTP_PASSWORD": "secret"}))
    with pytest.raises(UsageError, match="requires SHARDPOST_SMTP_USER") as found:
        load({"SHARDPOST_SMTP_PASSWORD": "secret"})
    assert "secret" not in str(found.value)


SECRET = "a-secret-of-16-characters"  # noqa: S105 - of no installation
TOKEN_URL = {"SHARDPOST_UNSUBSCRIBE_URL": "https://bank.com/{client}/{token}"}


def test_a_link_with_a_token_requires_a_secret() -> None:
    assert load(TOKEN_URL | {"SHARDPOST_UNSUBSCRIBE_SECRET": SECRET}).unsubscribe_secret == SECRET
    with pytest.raises(
        UsageError, match=r"requires SHARDPOST_UNSUBSCRIBE_SECRET, with which \{tok"
    ):
        load(TOKEN_URL)


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ("short", "number 1: expected a secret of at least 16 characters"),
        (f"1:{SECRET} 2:short", "number 2: expected a secret of at least"),
        (f":{SECRET}", "number 1: expected ID:SECRET"),
        (f"a b:{SECRET}", "number 1: expected a secret"),
        (f"1:{SECRET} {SECRET}", "expected ID:SECRET, each with a different id"),
        (" ", "expected ID:SECRET, found none"),
    ],
)
def test_wrong_secrets_of_links_are_refused_and_not_shown(secrets: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"SHARDPOST_UNSUBSCRIBE_SECRET: {said}") as found:
        load(TOKEN_URL | {"SHARDPOST_UNSUBSCRIBE_SECRET": secrets})
    assert [word for word in ("short", SECRET) if word in str(found.value)] == []
    assert SECRET not in repr(load(TOKEN_URL | {"SHARDPOST_UNSUBSCRIBE_SECRET": SECRET}))


def test_client_settings_come_under_librdkafkas_names() -> None:
    read = load({"SHARDPOST_KAFKA__SECURITY_PROTOCOL": "SSL", "SHARDPOST_KAFKA__SSL_CIPHERS": ""})
    assert read.kafka == {"security.protocol": "SSL"}


def test_a_callback_and_settings_for_java_come_back_under_their_names() -> None:
    given = {
        "SHARDPOST_KAFKA__OAUTH_CB": "tokens.of_ours",
        "SHARDPOST_KAFKA__JAVA_SASL_JAAS_CONFIG": "a.LoginModule required;",
    }
    read = load(given)
    assert read.kafka == {
        "oauth_cb": "tokens.of_ours",
        "java.sasl.jaas.config": "a.LoginModule required;",
    }
    assert given.items() <= read.environ().items()
    with pytest.raises(UsageError, match=r"\(librdkafka\) has no setting java\.isolation\.level"):
        load({"SHARDPOST_KAFKA__JAVA_ISOLATION_LEVEL": "read_uncommitted"})


def test_a_relative_home_is_made_absolute() -> None:
    assert load({"SHARDPOST_HOME": "here"}).home == Path.cwd() / "here"


def test_in_an_archive_there_is_no_dot_env(tmp_path: Path) -> None:
    archive = tmp_path / "shardpost.zip"
    archive.touch()
    assert read_dot_env(archive / ".env") == DotEnv(archive / ".env")
