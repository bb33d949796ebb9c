"""What is on record in the topic `decisions`."""

from datetime import UTC, datetime

from shardpost.decisions import Decision, decisions_topic
from shardpost.settings import Settings
from tests.support.installed import installed

BEFORE_ALL = datetime(2000, 1, 1, tzinfo=UTC)


def list_all(settings: Settings) -> list[tuple[Decision, dict[str, bytes]]]:
    """Return all decisions that are kept, with their headers."""
    return [*decisions_topic.list_since(installed(settings).kafka, BEFORE_ALL)]
