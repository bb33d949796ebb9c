"""Settings: what is read, what is refused, and that .env.example is complete."""

from pathlib import Path

import pytest
from dotenv import dotenv_values

from shardpost.checkout import CHECKOUT
from shardpost.errors import UsageError
from shardpost.settings import Settings, load

CHECKOUT_DEFAULTS = {"SHARDPOST_HOME": str(CHECKOUT / ".shardpost")}


def defaults() -> dict[str, str | None]:
    """Return each variable with the text of its default; None where there is none."""
    fields = {name: field for name, field in Settings.model_fields.items() if name != "kafka"}
    return {
        f"SHARDPOST_{name.upper()}": None if field.default is None else str(field.default)
        for name, field in fields.items()
    }


def test_env_example_has_every_setting_with_its_default() -> None:
    given = dotenv_values(CHECKOUT / ".env.example", interpolate=False)
    written = {name: value or CHECKOUT_DEFAULTS.get(name) for name, value in given.items()}
    assert written == defaults()


def test_env_example_is_accepted_as_it_is() -> None:
    given = dotenv_values(CHECKOUT / ".env.example", interpolate=False)
    read = load({name: value or "" for name, value in given.items()})
    assert read == Settings.model_validate({})


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="unknown setting SHARDPOST_KAFKA_PROT"):
        load({"SHARDPOST_KAFKA_PROT": "9092"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHARDPOST_KAFKA_PORT", "99999"),
        ("SHARDPOST_PARTITIONS", "0"),
        ("SHARDPOST_ON_UNKNOWN", "guess"),
        ("SHARDPOST_HOME", "/data/50%"),
        ("SHARDPOST_TABLES", "/data/a%20b"),
        ("SHARDPOST_DRIVER_MEMORY", "much"),
        ("SHARDPOST_KAFKA_TIMEOUT", "-1"),
        ("SHARDPOST_TOPIC_RETRIES", "dead-letters"),
        ("SHARDPOST_FOREIGN_DEAD_LETTERS", "connect-dlq, dead-letters"),
        ("SHARDPOST_RETRY_ORIGINS", "orders: topic=parking-lot"),
        ("SHARDPOST_MAIL_LIST_ID", "two words"),
        ("SHARDPOST_MAIL_LIST_ID", "dot.at.end."),
        ("SHARDPOST_SMTP_PLAIN_LOGIN", "maybe"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_and_value(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name}='{value}'"):
        load({name: value})


def test_a_foreign_topic_is_no_topic_of_retries() -> None:
    origins = {"SHARDPOST_RETRY_ORIGINS": "orders: topic=orders-retries"}
    with pytest.raises(UsageError, match="found that of SHARDPOST_RETRY_ORIGINS: orders-retries"):
        load({**origins, "SHARDPOST_FOREIGN_DEAD_LETTERS": "orders-retries"})
    assert load({**origins, "SHARDPOST_FOREIGN_DEAD_LETTERS": "orders-dlt"}).retry_origins


def test_retries_that_never_end_are_refused() -> None:
    cycle = "a: topic=b; b: topic=c; c: topic=b"
    with pytest.raises(UsageError, match="found a cycle: b to c to b"):
        load({"SHARDPOST_RETRY_ORIGINS": cycle})
    for fine in ("a: topic=a", "a: topic=b; b: topic=b", "a: topic=b; b: topic=c; c: attempts=1"):
        assert load({"SHARDPOST_RETRY_ORIGINS": fine}).retry_origins == fine


def test_a_wrong_password_is_not_shown() -> None:
    assert "secret" not in repr(load({"SHARDPOST_SMTP_PASSWORD": "secret"}))


def test_client_settings_come_under_librdkafkas_names() -> None:
    read = load({"SHARDPOST_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"})
    assert read.kafka == {"security.protocol": "SASL_SSL"}


def test_a_relative_home_is_made_absolute() -> None:
    assert load({"SHARDPOST_HOME": "here"}).home == Path.cwd() / "here"
