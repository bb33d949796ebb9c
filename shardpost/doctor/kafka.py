"""Kafka: whether it answers, which release it is, and then its topics and stores."""

from collections.abc import Iterator
from datetime import datetime

from shardpost.doctor import inputs, stores, topics
from shardpost.doctor.finding import Finding, error, ok, unknown, warning
from shardpost.kafka.broker_version import broker_version
from shardpost.kafka.releases import WHICH_RELEASE, WITHOUT_LOSS, known_loss
from shardpost.kafka.topic_metadata import is_reachable
from shardpost.settings import Settings
from shardpost.topics.observation import metadata

UNREACHABLE = "not checked: Kafka does not answer"
DEPENDENT = ("kafka version", "topics", "stores", "inputs")


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check the broker; if it answers, all that is in it."""
    if not is_reachable(settings, settings.kafka_timeout):
        yield _unreachable(settings)
        yield from (unknown(name, UNREACHABLE) for name in DEPENDENT)
        return
    yield ok("kafka", f"{settings.bootstrap} answers")
    yield check_version(settings)
    yield from topics.check(settings, now)
    yield from stores.check(settings, metadata(settings).topics, now)
    yield inputs.check(settings, now)


def _unreachable(settings: Settings) -> Finding:
    cure = "shardpost up"
    if settings.bootstrap_servers:
        cure = "set SHARDPOST_BOOTSTRAP_SERVERS (and SHARDPOST_KAFKA__…) to a Kafka that answers"
    found = f"no answer from {settings.bootstrap} within {settings.kafka_timeout:g} s"
    return error("kafka", found, "an answer", cure)


def check_version(settings: Settings) -> Finding:
    """Check that this release is not known to lose the ends of transactions."""
    name = "kafka version"
    try:
        found = broker_version(settings, settings.kafka_timeout)
    except (OSError, ValueError) as problem:
        return unknown(name, f"it cannot be asked: {problem}")
    return judge_version(found)


def judge_version(release: str | None) -> Finding:
    """Return what is known about a release."""
    name = "kafka version"
    if release is None:
        return unknown(name, "the broker does not say; it is older than 4.0, or no Apache Kafka")
    if loss := known_loss(release):
        return warning(name, f"Kafka {release}, which {loss}", WITHOUT_LOSS, WHICH_RELEASE)
    return ok(name, f"Kafka {release}")
