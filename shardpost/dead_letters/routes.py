"""The topics of letters, as they are in this installation."""

from shardpost.dead_letters.model.transition_records import Routes
from shardpost.kafka import offsets
from shardpost.settings import Settings


def routes_of(settings: Settings) -> Routes:
    """Return the topics of letters; ShardpostError for one that does not exist."""
    store, parking_lot = settings.topic("dead-letters"), settings.topic("parking-lot")
    topics = sorted({store, parking_lot, *settings.retry_rules.retry_topics})
    return Routes(store, parking_lot, offsets.partition_counts(settings, topics))
