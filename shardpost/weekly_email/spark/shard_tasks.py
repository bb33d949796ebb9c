"""One Spark task per shard of the weekly e-mail: what is sent, or what would be, by each."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost import logs
from shardpost.errors import ShardpostError
from shardpost.weekly_email import ledger_topic
from shardpost.weekly_email.model.audience import Member, recipient_of
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.message import Recipient
from shardpost.weekly_email.progress import ShardReport
from shardpost.weekly_email.send_shard import SendingJob, send_shard

REPORT = (
    "shard INT, sent BIGINT, failed BIGINT, unknown BIGINT, suppressed BIGINT, open BIGINT,"
    " unknown_clients ARRAY<STRING>, error STRING"
)
_REPORT_ARROW = pa.schema(
    [
        ("shard", pa.int32()),
        *((name, pa.int64()) for name in ("sent", "failed", "unknown", "suppressed", "open")),
        ("unknown_clients", pa.list_(pa.string())),
        ("error", pa.string()),
    ]
)
_LINE_ARROW = pa.schema([("line", pa.string())])


def send(
    spark: SparkSession, members: DataFrame, job: SendingJob, shards: list[int]
) -> list[ShardReport]:
    """Send what is open of those shards; return how each stands."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = _shard_of_this_task(shards)
        report = send_shard(job, shard, _only(batches, shard))
        yield pa.RecordBatch.from_pylist([asdict(report)], _REPORT_ARROW)

    rows = _placed(spark, members, shards).mapInArrow(task, REPORT).collect()
    return [
        ShardReport(**{field.name: row[field.name] for field in fields(ShardReport)})
        for row in rows
    ]


def would_send(
    spark: SparkSession, members: DataFrame, job: SendingJob, shards: list[int]
) -> Iterator[str]:
    """Yield who would get what now, one JSON object each, by shard and client; touches nothing."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = _shard_of_this_task(shards)
        book = LedgerIndex.fold(ledger_topic.read(job.settings, job.head.week, shard))
        for batch in _only(batches, shard):
            lines = [{"line": line} for line in _lines(job, book, shard, batch)]
            yield pa.RecordBatch.from_pylist(lines, _LINE_ARROW)

    for row in _placed(spark, members, shards).mapInArrow(task, "line STRING").toLocalIterator():
        yield row["line"]


def _lines(job: SendingJob, book: LedgerIndex, shard: int, batch: pa.RecordBatch) -> Iterator[str]:
    states = book.states(batch.column("client").to_pylist())
    rows = batch.drop_columns(["shard"]).to_pylist()
    for state, row in zip(states, rows, strict=True):
        positions = row.pop("positions")
        if not job.policy.is_open(state) or not isinstance(recipient_of(Member(**row)), Recipient):
            continue
        form = {
            "client": row["client"],
            "email": row["email"],
            "shard": shard,
            "positions": [held["position"] for held in positions],
        }
        yield json.dumps(form, ensure_ascii=False)


def _shard_of_this_task(shards: list[int]) -> int:
    logs.configure()
    context = TaskContext.get()
    if context is None:
        raise ShardpostError("a shard is sent by a Spark task, and this is none")
    return shards[context.partitionId()]


def _only(batches: Iterable[pa.RecordBatch], shard: int) -> Iterator[pa.RecordBatch]:
    """Pass on a shard's clients; whoever does not belong here must not be mailed from here."""
    for batch in batches:
        strays = set(batch.column("shard").to_pylist()) - {shard}
        if strays:
            raise ShardpostError(f"shard {shard}: found clients of {sorted(strays)}")
        yield batch


def _placed(spark: SparkSession, members: DataFrame, shards: list[int]) -> DataFrame:
    """Put each shard into the partition of its place in `shards`, its clients in order."""
    count = len(shards)
    pairs = zip(shards, _salts(spark, count), strict=True)
    places = [part for shard, salt in pairs for part in (F.lit(shard), F.lit(salt).cast("bigint"))]
    salt = F.element_at(F.create_map(*places), F.col("shard"))
    return (
        members.where(F.col("shard").isin(shards))
        .repartition(count, salt)
        .sortWithinPartitions("client")
    )


def _salts(spark: SparkSession, count: int) -> list[int]:
    """Return for each partition a BIGINT that Spark's own hash puts there."""
    found: dict[int, int] = {}
    tried = 0
    while len(found) < count:
        numbers = spark.range(tried, tried + 64 * count)
        for row in numbers.select("id", F.pmod(F.hash("id"), F.lit(count)).alias("at")).collect():
            found.setdefault(row["at"], row["id"])
        tried += 64 * count
    return [found[place] for place in range(count)]
