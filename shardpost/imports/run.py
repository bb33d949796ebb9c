"""An import: compare a list with what is open in its input, and write the difference.

It runs under a lock. One that is applied fences older writers first and only then reads what is
there, so that it compares with all that an earlier run wrote. Records go in bounded transactions
under one transactional id. The last one holds the decision, too: an import is applied once that is
in the topic `decisions`. What a killed run wrote is known by the header of the records, so no
progress is stored.

Before each commit it is checked that nobody else has written to the topic since the comparison. A
record that comes after that check is behind ours, and so it is the newer one.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardpost.decisions import Decision, Kind, decisions_topic
from shardpost.delta.query import has_rows
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.holders.model.view_tables import INPUTS
from shardpost.imports.import_job import IMPORT_POSITIONS
from shardpost.imports.model import source
from shardpost.imports.model.plan import WRITTEN
from shardpost.imports.spark.comparison import Base, Comparison, compare, find_base
from shardpost.installation import Installation
from shardpost.kafka import offsets, topic_metadata
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.reading import headers_of, read_to_end
from shardpost.kafka.records import Outgoing, TopicPartition, in_batches
from shardpost.kafka.transactions import Transactions
from shardpost.logs import step
from shardpost.spark.job import JobResult
from shardpost.topics import guards
from shardpost.wording import counted


def applied_import(kafka: Kafka, import_id: str) -> source.AppliedImport | None:
    """Return when and by whom an import was applied; None if it was not, or not to its end."""
    topic, about = kafka.topic("decisions"), import_id.encode()
    found, place = None, topic_metadata.partition_with(kafka, topic, about)
    for decision, headers in decisions_topic.of_partition(kafka, place.partition, None):
        if decision.kind is Kind.IMPORTED and decision.about == about:
            content = headers.get(source.CONTENT_HEADER, b"").decode(errors="replace")
            found = source.AppliedImport(import_id, content, decision.who, decision.when)
    return found


log = logging.getLogger(__name__)

ROWS_AT_ONCE = 50_000  # records in the driver's memory


class ImportWriter(Transactions):
    """The writer of all imports into one topic: `open` fences any older one."""

    def __init__(
        self, installation: Installation, topic: str, config: topic_metadata.TopicConfig
    ) -> None:
        super().__init__(
            installation.kafka,
            f"{topic}/import",
            may_write=partial(guards.require_owner, installation),
            fenced=f"fenced: another import into {topic} has taken over; this import stops. Run it"
            " again to see what is left",
            failed=f"{topic}: cannot write to it ({{reason}}): run the import again to write the"
            " rest",
            **topic_metadata.producer_config(config),
        )
        self._topic, self._count = topic, 0

    def write_all(
        self, records: Iterable[Outgoing], decided: Outgoing, ends: Mapping[int, int]
    ) -> int:
        """Write all records, then the decision; return the number of records.

        `ends` are those of the topic when the difference was made. ShardpostError if another
        program has written to it since: what was committed before that stays.
        """
        known = dict(ends)
        for batch in in_batches(records):
            more = [decided] if batch.is_last else []
            own = Counter(record.partition for record in batch.records)
            check = partial(self._require_no_others, decided.key, known, own)
            self.write([*batch.records, *more], check=check)
            self._count += len(batch.records)
            for partition in own:
                known[partition] += 1  # the marker of the transaction
            log.info("%s: %d records written", self._topic, self._count)
            step("import batch written")
        return self._count

    def _require_no_others(
        self, import_id: bytes | None, known: dict[int, int], own: Mapping[int, int]
    ) -> None:
        """Refuse records behind the known ends that are not of this transaction; update `known`.

        Only aborted ones of this import may be there.
        """
        marks = offsets.watermarks(self._kafka, {self._topic: len(known)}, committed=False)
        for number, (_, end) in marks[self._topic].items():
            partition, start = TopicPartition(self._topic, number), known[number]
            known[number] = end
            if end == start + own.get(number, 0):
                continue
            for message in read_to_end(self._kafka, partition, start=start, uncommitted=True):
                if (source.HEADER, import_id) not in headers_of(message):
                    done = counted(self._count, "record is", "records are")
                    raise ShardpostError(
                        f"{partition.at(message.offset() or 0)}: another program has written to"
                        f" it since the list was compared; {done} written, but not the rest: run"
                        " `shardpost compact`, then the import again"
                    )
        step("import batch in its transaction")


def import_list(installation: Installation, request: source.ImportRequest) -> JobResult:
    """Plan an import, or carry it out; LockedError beside another one.

    NEEDS_ATTENTION, and nothing is written, if the plan is refused.
    """
    with guards.run(installation, IMPORT_POSITIONS.name), ExitStack() as at_end:
        topic = installation.kafka.topic(request.into)
        config = topic_metadata.topic_config(installation.kafka, topic)
        writer = None
        if request.is_applied:
            writer = at_end.enter_context(closing(ImportWriter(installation, topic, config)))
            writer.open()
        step("ends")
        base = find_base(installation, request.into)
        step("source")
        compared = compare(installation, base, request, topic_metadata.largest_batch(config))
        found = at_end.enter_context(compared)
        import_id, before = source.choose_id(
            request.import_id,
            found.content,
            found.unread_id,
            differs=bool(found.plan.records),
            lookup=partial(applied_import, installation.kafka),
        )
        planned = _Import(installation, request, base, found, import_id, before)
        if request.up_to is not None and before is None:
            planned.require_as_shown(request.up_to)
        written = None
        if writer is not None and before is None and planned.refusal is None:
            step("write")
            written = writer.write_all(planned.records(), planned.decided(), base.ends)
        return (NEEDS_ATTENTION if planned.refusal else DONE), planned.as_json(written)


@dataclass(frozen=True)
class _Import:
    """A planned import; `before` is that it was applied already."""

    installation: Installation
    request: source.ImportRequest
    base: Base
    found: Comparison
    import_id: str
    before: source.AppliedImport | None

    @property
    def refusal(self) -> str | None:
        """Why it may not be applied; None of one that may, or was."""
        given = self.request.max_closed
        max_closed = self.installation.settings.import_max_closed if given is None else given
        return None if self.before else self.found.plan.refusal(max_closed)

    def require_as_shown(self, up_to: str) -> None:
        """Refuse what a plan has not shown: other rows, or positions that changed since."""
        at, newest, into = int(up_to.partition(":")[0]), self.base.snapshot, self.request.into
        tables, table = self.installation.tables, INPUTS[into].latest
        if not up_to.endswith(f":{self.found.content}"):
            why = f"expected the rows of that plan, found others (content {self.found.content})"
        elif not (newest.rebuilt_in or 0) <= at <= newest.number or has_rows(
            tables, newest, table, f"snapshot > {at}"
        ):
            why = f"expected {into} as of snapshot {at}, found changes up to {newest.number}"
        else:
            return
        raise ShardpostError(f"--up-to {up_to}: {why}: nothing was written; plan the import again")

    def records(self) -> Iterator[Outgoing]:
        """Yield the records of the difference."""
        headers: list[tuple[str, str | bytes | None]] = [(source.HEADER, self.import_id.encode())]
        at_once = max(1, -(-self.found.plan.records // ROWS_AT_ONCE))
        rows = self.found.records.repartition(at_once)
        for key, value, partition in rows.toLocalIterator(prefetchPartitions=True):
            made = None if value is None else bytes(value)
            yield Outgoing(self.base.topic, key.encode(), made, headers, partition)

    def decided(self) -> Outgoing:
        """Return the record that says that it was applied."""
        request, plan, about = self.request, self.found.plan, self.import_id.encode()
        counts = ", ".join(f"{plan.count(change)} {change}" for change in WRITTEN)
        why = request.why or f"{request.source}: {counts}"
        decision = Decision(about, Kind.IMPORTED, request.who, request.now, why)
        headers = {source.CONTENT_HEADER: self.found.content.encode()}
        if plan.watermark:
            headers[source.STREAM_HEADER] = request.stream.encode()
            headers[source.WATERMARK_HEADER] = plan.watermark.encode()
        return decisions_topic.written(self.installation.kafka, decision, headers)

    def as_json(self, written: int | None) -> dict[str, Any]:
        """Return the result; `written` records by this run, None if it did not apply it."""
        before = self.before
        return {
            "import_id": self.import_id,
            "source": str(self.request.source),
            "snapshot": self.base.snapshot.number,
            "up_to": f"{self.base.snapshot.number}:{self.found.content}",
            **self.found.plan.as_json(),
            "applied": written is not None or before is not None,
            "applied_before": before and {"at": before.when.isoformat(), "by": before.who},
            "written": written or 0,
            "refused": self.refusal,
        }
