"""A reader of one partition: how far it is, and what is known of it."""

from dataclasses import dataclass

from shardpost.kafka.coordinates import TopicPartition


@dataclass(frozen=True)
class Position:
    """The next offset that a group reads; None if it has committed none.

    `expires_ms` (since 1970) is when Kafka forgets that offset, as things are; None for never.
    `clear_until`: below that offset an earlier look found no record that was unread at this one.
    `was_recreated`: the topic is known to be another one than that which was read. `is_note`: the
    number is no offset, but what a writer of Shardpost keeps in Kafka in the place of one.
    """

    group: str
    partition: TopicPartition
    committed: int | None
    expires_ms: int | None = None
    clear_until: int = 0
    was_recreated: bool = False
    is_note: bool = False
