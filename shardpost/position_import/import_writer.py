"""Writing the records of an import: in bounded transactions, under one transactional id.

The last transaction holds the record of the decision too: an import is applied when that is there.
What a run wrote before it was killed is known by the header of the records, so no progress is kept.

Before each commit it is seen that nobody else has written to the topic since the difference was
made. A record that comes after that check is behind ours, and so it is the newer one.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from shardpost.errors import ShardpostError
from shardpost.kafka import offsets
from shardpost.kafka.batches import in_batches, queue_config
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.messages import headers_of
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import Outgoing
from shardpost.kafka.topic_configs import TopicConfig
from shardpost.kafka.topic_limits import largest_batch, producer_config
from shardpost.kafka.transactions import Transactions
from shardpost.position_import.model.import_ids import HEADER
from shardpost.settings import Settings
from shardpost.steps import step

log = logging.getLogger(__name__)


class ImportWriter:
    """The writer of all imports into one topic: `open` fences any older one."""

    def __init__(self, settings: Settings, config: TopicConfig) -> None:
        self._settings, self._topic = settings, settings.topic("positions")
        self._writer = Transactions(
            settings,
            f"{self._topic}/import",
            fenced=f"fenced: another import into {self._topic} has taken over; this one stops."
            " Run it again to see what is left",
            failed=f"{self._topic}: cannot be written ({{reason}}): run the import again, which"
            " writes what is left",
            **producer_config(config) | queue_config(largest_batch(config)),
        )
        self._count = 0

    def open(self) -> None:
        """Fence older writers, and abort what they left open."""
        self._writer.open()

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._writer.close()

    def write(self, records: Iterable[Outgoing], decided: Outgoing, ends: Mapping[int, int]) -> int:
        """Write all, and at the end that it is decided; return how many records there were.

        `ends` are those of the topic when the difference was made. ShardpostError if another
        program has written to it since: what was committed before that stays.
        """
        known = dict(ends)
        for batch in in_batches(records):
            more = [decided] if batch.is_last else []
            own = Counter(record.partition for record in batch.records)
            check = partial(self._require_no_others, decided.key, known, own)
            self._writer.write([*batch.records, *more], check=check)
            self._count += len(batch.records)
            for partition in own:
                known[partition] += 1  # the marker of the transaction
            log.info("%s: %d records written", self._topic, self._count)
            step("import batch written")
        return self._count

    def _require_no_others(
        self, import_id: bytes | None, known: dict[int, int], own: Mapping[int, int]
    ) -> None:
        """Refuse if the topic has records behind the known ends that are not of this transaction.

        `known` is brought up to date.
        """
        marks = offsets.watermarks(self._settings, {self._topic: len(known)}, committed=False)[
            self._topic
        ]
        for number, (_, end) in marks.items():
            if end != known[number] + own.get(number, 0):
                partition = TopicPartition(self._topic, number)
                self._require_only_own(import_id, partition, known[number])
            known[number] = end
        step("import batch in its transaction")

    def _require_only_own(
        self, import_id: bytes | None, partition: TopicPartition, start: int
    ) -> None:
        """Refuse a record that is not of this import: only its own aborted ones may be there."""
        for message in read_to_end(self._settings, partition, start=start, uncommitted=True):
            if (HEADER, import_id) not in headers_of(message):
                raise ShardpostError(
                    f"{partition.at(message.offset() or 0)}: another program has written to it"
                    f" since the list was compared; {self._count} records are written, the rest is"
                    " not: run `shardpost compact`, and then the import again"
                )
