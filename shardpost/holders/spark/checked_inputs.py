"""What comes out of the newest records of the inputs, before a compaction reads any."""

from typing import Any

from pyspark.sql import SparkSession

from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.holders.compaction_job import CHECK_INPUTS
from shardpost.holders.inputs import mappings_of
from shardpost.holders.model.compaction_request import CheckRequest
from shardpost.holders.spark.compaction_run import InputTopic, inputs_of
from shardpost.holders.spark.history import decode
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.record_pages import newest_records
from shardpost.spark import driver
from shardpost.spark.job import JobResult
from shardpost.spark.kafka_source import frame_of


def check_inputs(asked: CheckRequest, installation: Installation) -> JobResult:
    """Return by input what each of its newest records becomes; nothing is written."""
    spark = driver.start_session(CHECK_INPUTS.name)
    driver.plan_for(spark, asked.sample)
    inputs = inputs_of(installation, mappings_of(installation))
    sources = [one for one in inputs if one.name in asked.topics]
    found: dict[str, Any] = {
        one.name: _checked(spark, installation.kafka, one, asked.sample) for one in sources
    }
    has_rejected = any(one["reason"] for records in found.values() for one in records)
    return NEEDS_ATTENTION if has_rejected else DONE, found


def _checked(
    spark: SparkSession, kafka: Kafka, source: InputTopic, sample: int
) -> list[dict[str, Any]]:
    raw = frame_of(spark, newest_records(kafka, source.topic, sample))
    rows = decode(source, raw).orderBy("partition", "offset").collect()
    names = ("partition", "offset", "kind", "key", "reason")
    fields = [(one.name, one.column) for one in source.tables.fields]
    return [
        {name: row[name] for name in names} | {"fields": {own: row[at] for own, at in fields}}
        for row in rows
    ]
