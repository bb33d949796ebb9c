"""The letters of the parking lot that a redrive request selects."""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from shardpost.dead_letters.model.letter_names import name_of
from shardpost.dead_letters.model.redrive_request import RedriveRequest, error_of, origin_of
from shardpost.dead_letters.temporary_database import disk_errors_explained, open_temporary
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import record_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Record
from shardpost.retry_settings import RetryRules
from shardpost.settings import Settings


class ParkedLetter(NamedTuple):
    """A parked letter that is selected; `refusal` is why it does not move, None if it does."""

    id: str
    origin: str
    error: str
    refusal: str | None
    offset: int


# Of a record that is not selected, all but id and offset is null.
_PARKED = "parked (id TEXT, origin TEXT, error TEXT, refusal TEXT, offset INTEGER PRIMARY KEY)"
# Where there is one max, SQLite takes the other columns from the row that has it.
_LAST = """
SELECT id, origin, error, refusal, max(offset) AS offset FROM parked
GROUP BY id HAVING origin NOT NULL ORDER BY offset"""

_Row = tuple[str, str | None, str | None, str | None, int]


def selected_letters(
    settings: Settings, partition: TopicPartition, request: RedriveRequest
) -> Iterator[ParkedLetter]:
    """Read a partition of the parking lot to its end; yield what is selected, by offset."""
    rules = settings.retry_rules
    messages = read_to_end(settings, partition)
    rows = (_row(record_of(message), rules, request) for message in messages)
    with disk_errors_explained(partition), closing(open_temporary(_PARKED)) as disk:
        disk.executemany("INSERT INTO parked VALUES (?, ?, ?, ?, ?)", rows)
        yield from map(ParkedLetter._make, disk.execute(_LAST))


def _row(record: Record, rules: RetryRules, request: RedriveRequest) -> _Row:
    name = name_of(record.key)
    if record.value is None or not request.selection.selects(record):
        return name, None, None, None, record.offset
    headers = dict(record.headers)
    refusal = request.refusal(record, rules)
    return name, origin_of(headers), error_of(headers), refusal, record.offset
