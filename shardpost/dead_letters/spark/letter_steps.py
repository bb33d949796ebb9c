"""Records of dead-letters and parking-lot as rows of the table `dead_letters`, in the JVM.

The rules are those of model/record_steps.py, backoff.py and fingerprints.py; a test holds one
against the other. What cannot be read from a header is null.

Appending to the table `dead_letters`: the steps of exact offsets, which are kept with them.

So it does not matter where a sweep was stopped: what was not appended, the next one appends.
"""

import logging
import uuid
from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.dead_letters import letters_table
from shardpost.dead_letters.letters_table_offsets import TableProgress, read_progress
from shardpost.dead_letters.model import letter_format
from shardpost.dead_letters.model.letter_format import (
    BASE64,
    DEAD_LETTERS,
    MAX_KEY_BYTES,
    SHA256,
    UNPRINTABLE,
    LetterState,
)
from shardpost.dead_letters.model.letters import named_pattern
from shardpost.dead_letters.model.retry_policy import CLASS, LENGTH, NO_CLASS, VARIABLE
from shardpost.dead_letters.model.transition_records import NAME, STATE
from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
from shardpost.delta import parquet_files, table_log
from shardpost.delta.table_log import VersionExistsError
from shardpost.instants import EARLIEST_MS
from shardpost.kafka.coordinates import OffsetRange
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.retry_settings import RetryRules, RetrySettings
from shardpost.settings import Settings
from shardpost.spark import driver
from shardpost.spark.delta_files import Written, write
from shardpost.spark.kafka_source import partition_column, read_ranges

# Columns that are not the table's.
_HELPERS = (
    "is_well_formed",
    "has_id_as_key",
    "is_by_hand",
    "own_id",
    "own_key",
    "tombstone_name",
    "is_letter",
    "tombstone_state",
    "line",
    "class",
    "is_append_time",
    "stored_at",
    "delayed_from",
)
_TEXT_HEADERS = {
    STATE: "tombstone_state",
    letter_format.ATTEMPT: "attempt",
    letter_format.ORIGIN_TOPIC: "origin_topic",
    letter_format.ORIGIN_PARTITION: "origin_partition",
    letter_format.ORIGIN_OFFSET: "origin_offset",
    letter_format.ERROR: "error",
    letter_format.FAILED_AT: "failed_at",
    letter_format.STORED_AT: "stored_at",
}
# What Spark's source for Kafka says in `timestampType` of a timestamp that is the broker's.
LOG_APPEND_TIME = 1


def rows_of(
    records: DataFrame, topic: str, *, store_partitions: int | None, rules: RetryRules
) -> DataFrame:
    """Return one row per record that is a step in a letter's life, with the table's columns.

    The records are those of the store, which has so many partitions; of the parking lot if that is
    None.

    A letter that was parked left the store by a tombstone too: its step is that of the parking lot.
    Of headers with one name the last counts.
    """
    is_store = store_partitions is not None
    is_letter = F.col("value").isNotNull()
    state = F.coalesce(_text(STATE), F.lit(str(LetterState.DISCARDED)))
    skipped = (LetterState.DROPPED, LetterState.PARKED) if is_store else (LetterState.DROPPED,)
    letter_state = LetterState.WAITING if is_store else LetterState.PARKED
    steps = records.transform(_last_header_first).where(is_letter | ~state.isin(*map(str, skipped)))
    raw = steps.select(
        F.col("key").alias("own_key"),
        F.col("key").cast("string").alias("own_id"),
        _header(NAME).alias("tombstone_name"),
        is_letter.alias("is_letter"),
        F.col("timestamp").alias("at"),
        (F.col("timestampType") == LOG_APPEND_TIME).alias("is_append_time"),
        F.octet_length("value").cast("bigint").alias("size"),
        *(F.lit(topic).alias("topic"), "partition", "offset"),
        *(_text(header).alias(column) for header, column in _TEXT_HEADERS.items()),
        _header(letter_format.ORIGIN_KEY).alias("origin_key"),
        ((_header(letter_format.ID) == F.col("key")) & _is_id("key")).alias("has_id_as_key"),
    )
    found = _of_letters(_parsed(raw, letter_state), rules, is_store=is_store)
    return found.transform(_named(store_partitions, topic)).drop(*_HELPERS)


def _parsed(raw: DataFrame, letter_state: LetterState) -> DataFrame:
    """Parse states, numbers and times; add `line` and `class` of the error.

    What two columns are made of is a column of its own before them: Spark would compute it twice.
    """
    state = F.col("tombstone_state")
    is_state = F.coalesce(state.isin(*map(str, LetterState)), F.lit(False))
    parsed = raw.withColumns(
        {
            "is_by_hand": ~F.col("is_letter") & ~is_state,
            "attempt": _number("attempt"),
            "origin_partition": _number("origin_partition").try_cast("int"),
            "origin_offset": _number("origin_offset"),
            "failed_at": F.col("failed_at").try_cast("timestamp"),
            "stored_at": _number("stored_at"),
            "line": F.left(F.substring_index("error", "\n", 1), F.lit(LENGTH)),
        }
    )
    is_by_hand, attempt = F.col("is_by_hand"), F.col("attempt")
    is_attempt = ~is_by_hand & (attempt <= letter_format.MAX_ATTEMPTS)
    unless_letter = F.when(is_by_hand, str(LetterState.DISCARDED)).otherwise(state)
    return parsed.withColumns(
        {
            "state": F.when(F.col("is_letter"), str(letter_state)).otherwise(unless_letter),
            "attempt": F.when(is_attempt, attempt.cast("int")),
            "class": F.regexp_extract("line", CLASS, 1),
        }
    )


def _of_letters(steps: DataFrame, rules: RetryRules, *, is_store: bool) -> DataFrame:
    """Keep what a letter says of itself only where it is well-formed; add fingerprint and due."""
    needed = ("attempt", "origin_topic", "origin_partition", "origin_offset", "has_id_as_key")
    is_well_formed = reduce(
        lambda found, name: found & F.col(name).isNotNull(),
        needed,
        F.coalesce("has_id_as_key", F.lit(False)) & (F.col("failed_at") >= letter_format.EARLIEST),
    )
    failed_at = F.least("failed_at", "at")
    origin = ("origin_partition", "origin_offset", "origin_key")
    checked = steps.withColumn("is_well_formed", is_well_formed).withColumns(
        {
            **{name: F.when(F.col("is_well_formed"), F.col(name)) for name in origin},
            "failed_at": F.when(F.col("is_well_formed"), failed_at),
            "attempt": F.when(~F.col("is_by_hand"), F.coalesce("attempt", F.lit(0))),
            "fingerprint": _fingerprint(),
            "delayed_from": _delayed_from(failed_at),
        }
    )
    is_waiting = F.col("is_well_formed") & F.lit(is_store)
    return checked.withColumn("due", F.when(is_waiting, due(rules)))


def _named(store_partitions: int | None, topic: str) -> Callable[[DataFrame], DataFrame]:
    """Add `id`, the name of each step's letter, and `key` where that is another."""

    def named(steps: DataFrame) -> DataFrame:
        key = letter_name(F.col("own_key"))
        is_named = ~F.col("is_letter") & ~F.col("is_by_hand")
        given = F.when(is_named & (F.octet_length("tombstone_name") > 0), F.col("tombstone_name"))
        name = F.when(given.isNotNull(), letter_name(given)).otherwise(key)
        if store_partitions is not None:
            stored = _stored_name(steps.sparkSession, store_partitions, topic)
            name = F.when(F.col("is_letter"), F.coalesce(stored, key)).otherwise(name)
        both = steps.withColumns({"id": name, "key": key})
        return both.withColumn("key", F.when(F.col("key") != F.col("id"), F.col("key")))

    return named


def _stored_name(spark: SparkSession, partitions: int, topic: str) -> Column:
    """Return model/stored_names.py's `parking_key`; null where that is the record's key."""
    partition, milliseconds = F.col("partition"), F.unix_millis("at")
    place = F.concat_ws("-", F.lit(topic), partition, F.col("offset"))
    at = F.when(milliseconds > EARLIEST_MS, F.concat(F.lit("@"), milliseconds)).otherwise(F.lit(""))
    home = partition_column(spark, F.coalesce("origin_key", "own_key"), partitions)
    looks_named = F.col("own_id").rlike(rf"\A{named_pattern(topic)}\z")
    is_other = (home != partition) | looks_named
    with_partition = F.concat("own_id", F.lit("~"), partition).cast("binary")
    is_well_formed = F.coalesce("is_well_formed", F.lit(False))
    return F.when(~is_well_formed, F.concat(place, at)).when(is_other, letter_name(with_partition))


def _delayed_from(failed_at: Column) -> Column:
    """Return model/letter_format.py's `delayed_from`, in microseconds."""
    stored_at = F.least("stored_at", F.unix_millis("at")) * 1000
    return F.when(F.col("is_append_time"), stored_at).otherwise(F.unix_micros(failed_at))


def _is_id(key: str) -> Column:
    is_short = F.octet_length(key).between(1, MAX_KEY_BYTES)
    return is_short & F.is_valid_utf8(F.col(key).cast("string"))


def letter_name(key: Column) -> Column:
    """Return model/letter_names.py's `name_of` of a column of keys."""
    raw = F.coalesce(key, F.lit(b""))
    text = raw.cast("string")
    is_text = F.is_valid_utf8(text) & ~text.rlike(UNPRINTABLE)
    encoded = F.when(is_text, text).otherwise(
        F.concat(F.lit(BASE64), F.regexp_replace(F.base64(raw), r"\s", ""))
    )
    is_short = F.octet_length(raw).between(1, MAX_KEY_BYTES)
    return F.when(is_short, encoded).otherwise(F.concat(F.lit(SHA256), F.sha2(raw, 256)))


def _fingerprint() -> Column:
    """Return model/fingerprints.py's `fingerprint` of the columns line and class."""
    kind = F.when(F.col("class") == "", F.lit(NO_CLASS)).otherwise(F.col("class"))
    checksum = F.crc32(F.regexp_replace("line", VARIABLE, "#").cast("binary"))
    lower = F.translate(
        F.lpad(F.hex(checksum), 8, "0"), "ABCDEF", "abcdef"
    )  # `lower` loads all of ICU
    return F.concat(kind, F.lit("-"), lower)


def due(rules: RetryRules) -> Column:
    """Return model/backoff.py's `due` of own_id, attempt, delayed_from and origin_topic."""
    delay = reduce(
        lambda found, own: F.when(F.col("origin_topic") == own[0], _delay(own[1])).otherwise(found),
        rules.of_origin.items(),
        _delay(rules.default),
    )
    at = F.col("delayed_from") + F.ceil(delay * 1000) * 1000
    return F.timestamp_micros(at)


def _delay(backoff: RetrySettings) -> Column:
    """Return seconds; the exponent is bounded, since beyond it every delay is the cap."""
    exponent = F.least("attempt", F.lit(500))
    growth = F.pow(F.lit(float(backoff.factor)), exponent)
    delay_without_jitter = F.least(
        F.lit(float(backoff.cap)), F.lit(float(backoff.first_delay)) * growth
    )
    identity = F.concat_ws("/", "own_id", F.col("attempt").cast("string"))
    fraction = F.crc32(identity.cast("binary")) / F.lit(float(2**32))
    return delay_without_jitter * (F.lit(1.0) + F.lit(float(backoff.jitter)) * fraction)


def _last_header_first(records: DataFrame) -> DataFrame:
    """Replace the headers by arrays of names and values: a map would cost more than all else."""
    rest = ("key", "value", "partition", "offset", "timestamp", "timestampType")
    names, values = F.reverse("headers.key"), F.reverse("headers.value")
    return records.select(*rest, names.alias("names"), values.alias("values"))


def _header(name: str) -> Column:
    return F.get("values", F.array_position("names", name) - 1)


def _text(name: str) -> Column:
    return F.try_validate_utf8(_header(name).cast("string"))


def _number(column: str) -> Column:
    # What is no number is extracted as "", which is cast to null; `$` would let a newline pass.
    return F.regexp_extract(column, r"^[0-9]{1,19}\z", 0).try_cast("bigint")


# Up to so many offsets, Spark would take longer to plan than Python to read them.
FEW = 20_000
# The maintenance writes one version a week.
MOST_CONFLICTS = 2

log = logging.getLogger(__name__)


def catch_up(settings: Settings) -> int:
    """Append the steps of all records that are not in the table; return how many offsets.

    Again where the maintenance of the tables has written meanwhile.
    """
    for _ in range(MOST_CONFLICTS):
        try:
            return _catch_up(settings)
        except VersionExistsError as error:
            log.info("%s; trying again", error)
    return _catch_up(settings)


def _catch_up(settings: Settings) -> int:
    table = letters_table.open_table(settings)
    progress = read_progress(settings, table)
    count = sum(range_.size for range_ in progress.unread)
    if count > FEW:
        _append_many(settings, table.version(), progress)
    elif progress.transactions:
        letters_table.append(settings, table, progress)
    return count


def _append_many(settings: Settings, version: int, progress: TableProgress) -> None:
    spark = driver.start_session(SWEEP_DEAD_LETTERS.name)
    # All of a row in one method would be too much for the JVM's compiler, and take half as long
    # again.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    folder = f"{version + 1:08d}-{uuid.uuid4()}"  # what an interrupted run left has another name
    files, old = parquet_files.merge_small(settings, DEAD_LETTERS, version, f"{folder}-merged")
    for topic, generation in sorted(progress.generations.items()):
        ranges = [range_ for range_ in progress.unread if range_.topic == topic]
        if ranges:
            rows = _rows(spark, settings, ranges).withColumn("generation", F.lit(generation))
            files += _written(settings, rows, f"{folder}-{topic}").files
    read = progress.transactions
    table_log.commit(settings, DEAD_LETTERS, version, files, old, read)


def _rows(spark: SparkSession, settings: Settings, ranges: list[OffsetRange]) -> DataFrame:
    topic = ranges[0].topic
    records = read_ranges(spark, settings, ranges, "timestampType")
    store = settings.topic("dead-letters")
    count = partition_counts(settings, [store])[store] if topic == store else None
    return rows_of(records, topic, store_partitions=count, rules=settings.retry_rules)


def _written(settings: Settings, rows: DataFrame, folder: str) -> Written:
    cores = rows.sparkSession.sparkContext.defaultParallelism
    return write(settings, DEAD_LETTERS, rows.coalesce(cores), folder)
