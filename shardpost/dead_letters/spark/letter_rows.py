"""Records of dead-letters and parking-lot as rows of the table `dead_letters`, in the JVM.

The rules are those of dead_letters/model/backoff.py and dead_letters/model/fingerprints.py; a test holds one against the
other. What cannot be read from a header is null.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardpost.dead_letters.model import letters, transitions
from shardpost.dead_letters.model.fingerprints import CLASS, LENGTH, NO_CLASS, VARIABLE
from shardpost.dead_letters.model.letter_names import BASE64, LONGEST_KEY, SHA256, UNSEEN
from shardpost.dead_letters.model.transitions import LetterState
from shardpost.retry_settings import RetryRules, RetrySettings

# Columns that are not the table's.
_HELPERS = (
    "is_good",
    "is_of_its_key",
    "is_by_hand",
    "own_id",
    "is_letter",
    "told",
    "line",
    "class",
)
_TEXTS = {
    transitions.STATE: "told",
    letters.ATTEMPT: "attempt",
    letters.ORIGIN_TOPIC: "origin_topic",
    letters.ORIGIN_PARTITION: "origin_partition",
    letters.ORIGIN_OFFSET: "origin_offset",
    letters.ERROR: "error",
    letters.FAILED_AT: "failed_at",
}


def steps(records: DataFrame, topic: str, *, is_store: bool, rules: RetryRules) -> DataFrame:
    """Return one row per record that is a step in a letter's life, with the table's columns.

    A letter that was parked left the store by a tombstone too: its step is that of the parking lot.
    Of headers with one name the last counts.
    """
    is_letter = F.col("value").isNotNull()
    told = F.coalesce(_text(transitions.STATE), F.lit(str(LetterState.DISCARDED)))
    skipped = (LetterState.DROPPED, LetterState.PARKED) if is_store else (LetterState.DROPPED,)
    there = LetterState.WAITING if is_store else LetterState.PARKED
    steps_ = records.transform(_last_first).where(is_letter | ~told.isin(*map(str, skipped)))
    said = steps_.select(
        name(F.col("key")).alias("id"),
        F.col("key").cast("string").alias("own_id"),
        is_letter.alias("is_letter"),
        F.col("timestamp").alias("at"),
        F.octet_length("value").cast("bigint").alias("size"),
        *(F.lit(topic).alias("topic"), "partition", "offset"),
        *(_text(name).alias(column) for name, column in _TEXTS.items()),
        _header(letters.ORIGIN_KEY).alias("origin_key"),
        ((_header(letters.ID) == F.col("key")) & _is_id("key")).alias("is_of_its_key"),
    )
    return _of_letters(_read(said, there), rules, is_store=is_store)


def _read(said: DataFrame, there: LetterState) -> DataFrame:
    """Read states, numbers and times; add `line` and `class` of the error.

    What two columns are made of is a column of its own before them: Spark would compute it twice.
    """
    is_told = F.coalesce(F.col("told").isin(*map(str, LetterState)), F.lit(False))
    read = said.withColumns(
        {
            "is_by_hand": ~F.col("is_letter") & ~is_told,
            "attempt": _number("attempt"),
            "origin_partition": _number("origin_partition").try_cast("int"),
            "origin_offset": _number("origin_offset"),
            "failed_at": F.col("failed_at").try_cast("timestamp"),
            "line": F.left(F.substring_index("error", "\n", 1), F.lit(LENGTH)),
        }
    )
    is_by_hand, attempt = F.col("is_by_hand"), F.col("attempt")
    is_attempt = ~is_by_hand & (attempt <= letters.MOST_ATTEMPTS)
    unless_letter = F.when(is_by_hand, str(LetterState.DISCARDED)).otherwise(F.col("told"))
    return read.withColumns(
        {
            "state": F.when(F.col("is_letter"), str(there)).otherwise(unless_letter),
            "attempt": F.when(is_attempt, attempt.cast("int")),
            "class": F.regexp_extract("line", CLASS, 1),
        }
    )


def _of_letters(steps_: DataFrame, rules: RetryRules, *, is_store: bool) -> DataFrame:
    """Keep what a letter says of itself only where it is well-formed; add fingerprint and due."""
    needed = ("attempt", "origin_topic", "origin_partition", "origin_offset", "is_of_its_key")
    is_good = reduce(
        lambda found, name: found & F.col(name).isNotNull(),
        needed,
        F.coalesce("is_of_its_key", F.lit(False)) & (F.col("failed_at") >= letters.EARLIEST),
    )
    failed_at = F.least("failed_at", "at")
    said = ("origin_partition", "origin_offset", "origin_key")
    good = steps_.withColumn("is_good", is_good).withColumns(
        {
            **{name: F.when(F.col("is_good"), F.col(name)) for name in said},
            "failed_at": F.when(F.col("is_good"), failed_at),
            "attempt": F.when(~F.col("is_by_hand"), F.coalesce("attempt", F.lit(0))),
            "fingerprint": _fingerprint(),
        }
    )
    is_waiting = F.col("is_good") & F.lit(is_store)
    return good.withColumn("due", F.when(is_waiting, due(rules))).drop(*_HELPERS)


def _is_id(key: str) -> Column:
    is_short = F.octet_length(key).between(1, LONGEST_KEY)
    return is_short & F.is_valid_utf8(F.col(key).cast("string"))


def name(key: Column) -> Column:
    """Return domain.letter_names.name_of of a column of keys."""
    raw = F.coalesce(key, F.lit(b""))
    text = raw.cast("string")
    is_text = F.is_valid_utf8(text) & ~text.rlike(UNSEEN)
    encoded = F.when(is_text, text).otherwise(
        F.concat(F.lit(BASE64), F.regexp_replace(F.base64(raw), r"\s", ""))
    )
    is_told = F.octet_length(raw).between(1, LONGEST_KEY)
    return F.when(is_told, encoded).otherwise(F.concat(F.lit(SHA256), F.sha2(raw, 256)))


def _fingerprint() -> Column:
    """Return domain.fingerprints.fingerprint of the columns line and class."""
    kind = F.when(F.col("class") == "", F.lit(NO_CLASS)).otherwise(F.col("class"))
    mark = F.crc32(F.regexp_replace("line", VARIABLE, "#").cast("binary"))
    small = F.translate(F.lpad(F.hex(mark), 8, "0"), "ABCDEF", "abcdef")  # `lower` loads all of ICU
    return F.concat(kind, F.lit("-"), small)


def due(rules: RetryRules) -> Column:
    """Return model/backoff.py's `due` of the columns own_id, attempt, failed_at and origin_topic."""
    delay = reduce(
        lambda found, own: F.when(F.col("origin_topic") == own[0], _delay(own[1])).otherwise(found),
        rules.of_origin.items(),
        _delay(rules.default),
    )
    at = F.unix_micros("failed_at") + F.ceil(delay * 1000) * 1000
    return F.timestamp_micros(at)


def _delay(backoff: RetrySettings) -> Column:
    """Return seconds; the exponent is bounded, since beyond it every delay is the cap."""
    exponent = F.least("attempt", F.lit(500))
    growth = F.pow(F.lit(float(backoff.factor)), exponent)
    plain = F.least(F.lit(float(backoff.cap)), F.lit(float(backoff.first_delay)) * growth)
    which = F.concat_ws("/", "own_id", F.col("attempt").cast("string"))
    share = F.crc32(which.cast("binary")) / F.lit(float(2**32))
    return plain * (F.lit(1.0) + F.lit(float(backoff.jitter)) * share)


def _last_first(records: DataFrame) -> DataFrame:
    """Have the headers as names and values, each once: a map of them would cost more than all."""
    rest = ("key", "value", "partition", "offset", "timestamp")
    names, values = F.reverse("headers.key"), F.reverse("headers.value")
    return records.select(*rest, names.alias("names"), values.alias("values"))


def _header(name: str) -> Column:
    return F.get("values", F.array_position("names", name) - 1)


def _text(name: str) -> Column:
    return F.try_validate_utf8(_header(name).cast("string"))


def _number(column: str) -> Column:
    # What is no number is extracted as "", which is cast to null; `$` would let a newline pass.
    return F.regexp_extract(column, r"^[0-9]{1,19}\z", 0).try_cast("bigint")
