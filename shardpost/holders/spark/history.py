"""New records of an input, decoded and appended to its history; so are retries of them.

Which decoder made the rows of a history is an id, another one after each change to the decoder.
Decoding is analyzed once, and run over other rows of the same columns: to resolve some hundreds of
expressions takes Spark's analyzer a tenth of a second, however few the rows are.

The order of the records of a key is that of model/record_order.py, as a Spark column.
"""

import json
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import StructField, StructType
from pyspark.storagelevel import StorageLevel

from shardpost.delta import query
from shardpost.delta.arrow_schema import rows_of
from shardpost.holders.model.record_order import Numbering, by_time, scattered_keys
from shardpost.holders.model.view_tables import RETRY_NAMES
from shardpost.holders.spark.compaction_run import CompactionRun, InputTopic, TableWriter
from shardpost.holders.spark.corrections import COORDINATES, Corrections
from shardpost.holders.spark.decoding import decoded
from shardpost.holders.spark.registered import registered
from shardpost.holders.spark.translation import mapped
from shardpost.kafka.records import OffsetRange
from shardpost.spark.delta_files import Written
from shardpost.spark.kafka_source import frame_of, positive_hash


def seq_of(
    spark: SparkSession, coordinates: tuple[Column, Column, Column], numbering: Numbering
) -> Column:
    """Return the model's `seq` (BIGINT) of (key, partition, offset); null for a null key."""
    key, partition, offset = coordinates
    hashed, level = positive_hash(spark, key), F.lit(0)
    if earlier := numbering.earlier:
        level = F.aggregate(
            F.sequence(F.lit(earlier[-1]), F.lit(earlier[0])),
            F.lit(0),
            lambda found, n: F.when(hashed % n == partition, n).otherwise(found),
        )
    now = numbering.partitions
    level = F.when(hashed % now == partition, now).when(hashed.isNotNull(), level)

    def of_partition(number: Callable[[int], int]) -> Column:
        # A number by itself would be in the generated code, which each run would compile anew.
        numbers = (F.lit(number(n)).cast("bigint") for n in range(now))
        return F.get(F.array(*numbers), partition)

    before = of_partition(lambda n: numbering.base - numbering.read.get(n, 0))
    return level * of_partition(lambda _: numbering.size) + before + offset


@dataclass(frozen=True)
class Appended:
    """Rows that were just appended to a history.

    `in_current_partition`: all with a key are where Kafka now puts it. `scattered` has the keys
    with records in several partitions, which nothing explains (model/record_order.py); else None.
    """

    tables: TableWriter
    written: Written
    in_current_partition: bool = False
    scattered: DataFrame | None = None

    @property
    def rows(self) -> DataFrame:
        """The rows, read when they are asked for."""
        return self.tables.rows_of(self.written)

    @property
    def rejected(self) -> int:
        """How many of them are rejected."""
        return self.written.non_null("reason")


# Records that are read again come with the order that they have: a column each, null where they
# were not read before.
KNOWN_SEQ, KNOWN_SNAPSHOT = "known_seq", "known_snapshot"


def append_originals(
    run: CompactionRun, source: InputTopic, ranges: Sequence[OffsetRange]
) -> Appended:
    """Append the records of ranges of an input."""
    coordinates = F.col("key"), F.col("partition"), F.col("offset")
    numbering = run.numbering(source)
    raw, seq = run.records_of(ranges), seq_of(run.spark, coordinates, numbering)
    has_known = KNOWN_SEQ in raw.columns
    if has_known:
        seq = F.coalesce(KNOWN_SEQ, seq)
    numbered = raw.withColumn("seq", seq)
    passed = ("seq", *_known_snapshot(raw))
    events = decode(source, numbered, passed)
    written = _append(run, source, events)
    if has_known:
        return Appended(run.tables, written)
    return _in_order(run, source, numbering, written)


def _in_order(
    run: CompactionRun, source: InputTopic, numbering: Numbering, written: Written
) -> Appended:
    """Return rows that were just appended; those of scattered keys are numbered by time."""
    lowest = written.minimum("seq")
    if lowest is None or (lowest >= numbering.of_homes and not numbering.shares_ids):
        is_current = lowest is None or lowest >= numbering.of_current
        return Appended(run.tables, written, in_current_partition=is_current)
    table = source.tables.history
    if run.few:  # asked without Spark whether there are scattered keys
        history = run.tables.located(table)
        sql = scattered_keys(numbering, f"h.snapshot = {run.number}").format(records=history.name)
        at = {history: run.tables.versions[history.name]}
        if not query.rows(run.tables.where, f"{sql} LIMIT 1", at):
            return Appended(run.tables, written)
    rows = run.tables.rows_of(written)
    scattered = run.spark.sql(scattered_keys(numbering, "true"), records=rows)
    scattered = scattered.persist(StorageLevel.MEMORY_AND_DISK)
    if not scattered.count():
        is_current = lowest >= numbering.of_current
        return Appended(run.tables, written, in_current_partition=is_current)
    numbers = run.spark.sql(by_time(numbering, "true"), records=rows)
    numbers = numbers.select(*COORDINATES, F.col("seq").alias("by_time"))
    numbers = F.broadcast(numbers) if run.few else numbers
    both = rows.join(numbers, [*COORDINATES], "left")
    ordered = both.withColumn("seq", F.coalesce("by_time", "seq")).drop("by_time")
    rewritten = run.tables.rewrite(table, written, ordered, coalesce=run.few)
    return Appended(run.tables, rewritten, scattered=scattered)


def append_corrections(
    run: CompactionRun, source: InputTopic, corrections: Corrections
) -> Appended:
    """Append the retries of an input's records; those of this run are in its history already."""
    run.plan_for_rows_of(source.tables.history)  # any of its records may be an origin
    usable, rejected = corrections.matched(run.tables.read(source.tables.history))
    passed = ("seq", *_known_snapshot(usable), *RETRY_NAMES)
    events = decode(source, usable, passed)
    written = _append(run, source, events.unionByName(rejected, allowMissingColumns=True))
    return Appended(run.tables, written)


def decode(source: InputTopic, raw: DataFrame, passed: tuple[str, ...] = ()) -> DataFrame:
    """Return raw records of an input as rows of its history, as `decoded` does, or `mapped`.

    Whatever reads records of an input decodes them here.
    """
    if source.mapping is None:
        return analyzed_once(decoded, raw, source.tables.fields, passed)
    if source.registry is not None:
        raw = registered(raw, source.name, source.mapping, source.registry)
    return analyzed_once(mapped, raw, source.name, source.mapping, passed)


def require_decodable(spark: SparkSession, sources: Iterable[InputTopic]) -> None:
    """Have Spark analyze how mapped records are decoded, of which there may be none yet.

    UsageError for an expression that cannot be.
    """
    for source in sources:
        if source.mapping is not None:
            decode(source, frame_of(spark, ()))


def _known_snapshot(records: DataFrame) -> tuple[str, ...]:
    return (KNOWN_SNAPSHOT,) if KNOWN_SNAPSHOT in records.columns else ()


def _append(run: CompactionRun, source: InputTopic, events: DataFrame) -> Written:
    history = source.tables.history
    if run.in_memory:  # sooner than Spark would write files; a number would be compiled, as above
        found = events.toArrow()
        own = pa.array([run.number] * found.num_rows, pa.int64())
        return run.tables.append(history, rows_of(history, found.append_column("snapshot", own)))
    number = F.lit(run.number).cast("bigint")
    known = [F.col(name) for name in _known_snapshot(events)]
    rows = events.withColumn("snapshot", F.coalesce(*known, number)).drop(KNOWN_SNAPSHOT)
    return run.tables.append(history, rows, coalesce=run.few)


# What a record becomes is said by these modules, and by Spark.
MODULES = ("holders/model/fields.py", "holders/spark/decoding.py")
MODULES_OF_MAPPED = (
    "kafka/protobuf_messages.py",
    *(f"holders/model/{one}.py" for one in ("avro_schema", "input_mapping")),
    *(f"holders/spark/{one}.py" for one in ("expressions", "registered", "translation")),
)


def decoder_with(former: str | None, inputs: str | None) -> str | None:
    """Return the id of a history that `former` made, once rows are added; None if it is of two."""
    return former if former == decoder_id(inputs) else None


def decoder_id(inputs: str | None) -> str:
    """Return the id of the decoder of this process: of its modules' text, and Spark's version.

    And of the mapping of inputs, as a snapshot has it, if there is one.

    The text is that which they had when they were imported: a run that goes on while an update is
    installed decodes as before. A change that changes no row, such as of a comment, gives another
    id too.
    """
    return _ID if inputs is None else sha256(f"{_ID_OF_MAPPED} {inputs}".encode()).hexdigest()[:16]


def id_now(modules: Sequence[str] = MODULES) -> str:
    """Return the id of the decoder that is installed now."""
    found = sha256(version("pyspark").encode())
    for path in modules:
        text = pkgutil.get_data("shardpost", path)
        if text is None:
            raise FileNotFoundError(f"shardpost/{path}: expected the text of a module")
        found.update(sha256(text).digest())
    return found.hexdigest()[:16]


_ID, _ID_OF_MAPPED = id_now(), id_now((*MODULES, *MODULES_OF_MAPPED))


def analyzed_once(
    transform: Callable[..., DataFrame], rows: DataFrame, *arguments: Any
) -> DataFrame:
    """Return `transform(rows, *arguments)`, which may only project and filter the rows.

    The arguments are hashable, and equal ones give equal transforms.
    """
    spark = rows.sparkSession
    known = _over_no_rows(spark, rows.schema.json(), transform, arguments)
    # Its plan over these rows, in the place of its own.
    jvm: Any = spark.sparkContext._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    no_names = jvm.PythonUtils.toSeq([])
    steps, node = [], _analyzed(known)
    while node.children().size():
        [child] = [node.children().apply(n) for n in range(node.children().size())]
        steps.append(node)
        node = child
    there = _analyzed(rows)
    names, given = node.output(), there.output()
    same = [
        catalyst.expressions.Alias(
            given.apply(n),
            names.apply(n).name(),
            names.apply(n).exprId(),
            no_names,
            jvm.scala.Option.empty(),
            no_names,
        )
        for n in range(names.size())
    ]
    plan = catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(same), there)
    for step in reversed(steps):
        plan = step.withNewChildren(jvm.PythonUtils.toSeq([plan]))
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return ClassicDataFrame(made, spark)


@lru_cache(maxsize=16)
def _over_no_rows(
    spark: SparkSession,
    schema: str,
    transform: Callable[..., DataFrame],
    arguments: tuple[Any, ...],
) -> DataFrame:
    # All may be null: a plan leaves out to ask for nulls where there is none.
    fields = StructType.fromJson(json.loads(schema)).fields
    columns = StructType([StructField(field.name, field.dataType) for field in fields])
    return transform(spark.createDataFrame([], columns), *arguments)


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
