"""The table `dead_letters` without a JVM: how far it has read its topics, and what it says."""

from deltalake import DeltaTable

from shardpost.adapters import kafka
from shardpost.adapters.delta import exists, path_of
from shardpost.domain.offsets import Range
from shardpost.domain.tables import DEAD_LETTERS
from shardpost.settings import Settings


def position_name(place: Range) -> str:
    """Return under which name the position of a partition is kept."""
    return f"{place.topic}/{place.partition}"


def unread(settings: Settings) -> list[Range]:
    """Return the committed offsets of dead-letters and parking-lot that the table has not."""
    topics = [settings.topic_dead_letters, settings.topic_parking_lot]
    marks = kafka.watermarks(settings, kafka.partition_counts(settings, topics), committed=True)
    table = None
    if exists(settings, DEAD_LETTERS):
        table = DeltaTable(path_of(settings, DEAD_LETTERS))
    found = [
        _unread(table, topic, partition, mark)
        for topic, partitions in marks.items()
        for partition, mark in partitions.items()
    ]
    return [one for one in found if one.first < one.until]


def _unread(table: DeltaTable | None, topic: str, partition: int, mark: tuple[int, int]) -> Range:
    low, end = mark
    whole = Range(topic, partition, low, end)
    read = table.transaction_version(position_name(whole)) if table else None
    return whole if read is None else Range(topic, partition, max(low, read), end)
