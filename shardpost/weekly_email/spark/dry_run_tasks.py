"""The dry run on Spark: each task lists who of its shard would get what."""

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from shardpost.delta.arrow_schema import arrow_schema_of
from shardpost.settings import Settings
from shardpost.weekly_email import ledger_topic
from shardpost.weekly_email.model.audience import Member, recipient_of
from shardpost.weekly_email.model.ledger import ResendPolicy
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.message import Recipient
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.spark import email_session
from shardpost.weekly_email.spark.audience import members
from shardpost.weekly_email.spark.shard_partitions import (
    by_shard,
    require_shard,
    shard_of_this_task,
)

LINE = "line STRING"


def would_send(settings: Settings, week: PreparedWeek, resend: ResendPolicy) -> Iterator[str]:
    """Yield who would get what now, one JSON object each, by shard and client; changes nothing."""
    spark = email_session.start(settings, len(week.shards))
    shards, iso_week = week.shards, week.iso_week

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = shard_of_this_task(shards)
        ledger_index = LedgerIndex.fold(ledger_topic.read(settings, iso_week, shard))
        for batch in require_shard(batches, shard):
            lines = [{"line": line} for line in _lines(batch, ledger_index, resend)]
            yield pa.RecordBatch.from_pylist(lines, arrow_schema_of(LINE))

    rows = by_shard(spark, members(spark, settings, week), shards)
    for row in rows.mapInArrow(task, LINE).toLocalIterator():
        yield row["line"]


def _lines(batch: pa.RecordBatch, ledger_index: LedgerIndex, resend: ResendPolicy) -> Iterator[str]:
    states = ledger_index.states(batch.column("client").to_pylist())
    for state, row in zip(states, batch.to_pylist(), strict=True):
        positions, shard = row.pop("positions"), row.pop("shard")
        member = Member(**row).as_mailed(state)
        is_selected = resend.selects(state, ledger_index.resends.get(member.client, 0))
        if not is_selected or not isinstance(recipient_of(member), Recipient):
            continue
        document = {
            "client": member.client,
            "email": member.email,
            "shard": shard,
            "positions": [held["position"] for held in positions],
        }
        yield json.dumps(document)  # in ASCII: it goes into logs
