"""Which of two records of a key is the later one: `seq`, retries; and what new records change.

What a run reads was not there yet when the run before it had read all partitions to their ends: so
what a run reads is newer, by its `seq`, than what every run before it has read, whatever partition
a record is in. In one run the offset orders the records of a partition. Of a key that has new
records in several:

- if added partitions explain that, the record in the later partition of the key is newer: with n
  partitions Kafka puts a key into `murmur2(key) mod n`, and partitions are only ever added;
- else its producers do not agree on a partitioner, and the timestamps decide (`by_time`).

A retry is ordered with its origin (`seq`). Of one origin, the decodable original is newer than all
its retries: whoever else failed on it, it is good. Of its retries, the one that a later run read is
newer; of those that one run read, the one with the higher offset (all retries of a key lie in one
partition), and among equal offsets in two retry topics, the one whose topic's name is later. Newer
than all of them is the record by which a reconciliation closed the key there: the origin was
superseded by one that nobody can read any more.

Changes are one row for each key whose latest record is new, with `old_…` for what the table of
latest records has of the key; null where it has no row. They are SQL for Spark and DataFusion.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardpost.delta.table import Table, text_literal
from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import RecordKind
from shardpost.kafka.records import Offsets, murmur2

# Compared as tuples; orders the decodable records of one key.
Order = tuple[int, int, int, int]

_RETRY, _ORIGINAL, _RECONCILED = range(3)
# Columns of a history by which the retries of one origin are ordered that one run read.
RETRIES_READ_TOGETHER = ("retry_offset", "retry_topic", "retry_partition")
# By these columns the decodable records of one key are ordered, the latest with the highest values;
# a record is reconciled or original by its kind and by having no `retry_offset`.
ORDERED_BY = ("seq", "is_reconciled", "is_original", "snapshot", *RETRIES_READ_TOGETHER)

# Maximum number of partitions of a topic: 2¹² - 1.
MAX_PARTITIONS = (1 << 12) - 1
# Maximum number of offsets of all its partitions together.
MAX_OFFSETS = 1 << 43
# Release 0.2.0 had other numbers (rank of the partition above the offset): those of the first
# generation of a topic below _FIRST, of later ones from there on, in so many bits each.
_FIRST = 5 << 60
_GENERATION_BITS = 12 + 43
MAX_GENERATION = ((1 << 63) - _FIRST >> _GENERATION_BITS) - 1


def lowest_of(generation: int) -> int:
    """Return a number that none of the records of a generation of a topic is below.

    All of a generation (0, and one more each time that the topic is recreated) are newer than those
    of the generations before it.
    """
    return _FIRST + (generation - 1 << _GENERATION_BITS) if generation else 0


@dataclass(frozen=True)
class Numbering:
    """How one run numbers the records of an input that it reads.

    From `base` on, for each number of partitions that may be a reason why a key lies in a partition
    (`level`), `size` numbers: one for each offset that it reads at most. `read` is {partition: up
    to where it was read before}, `partitions` how many there are now. `before` is how many there
    were then; 0 if that is not known, since nothing was read before. `shares_ids`: several keys of
    the topic may have one id, each at home in a partition of its own: nothing explains that either.
    """

    base: int
    read: Mapping[int, int]
    size: int
    partitions: int
    before: int
    shares_ids: bool = False

    @classmethod
    def of(cls, generation: int, read: Mapping[int, int], ends: Mapping[int, int]) -> "Numbering":
        """Return the numbering of a run that reads from one to the other {partition: offset}."""
        before, size = sum(read.values()), sum(ends.values()) - sum(read.values())
        base = _FIRST + (generation << _GENERATION_BITS) + before * (MAX_PARTITIONS + 1)
        return cls(base, read, max(size, 1), len(ends), len(read))

    @property
    def earlier(self) -> tuple[int, ...]:
        """The numbers of partitions that the topic may have had since it was read, the last first.

        If partitions were added more than once since, the numbers in between are not known.
        """
        if not self.before:
            return tuple(range(self.partitions - 1, 0, -1))
        return (self.before,) if self.before < self.partitions else ()

    @property
    def of_homes(self) -> int:
        """The lowest number of a record that lies where Kafka puts its key, now or earlier."""
        return self.base + self.size

    @property
    def of_current(self) -> int:
        """The lowest number of a record that lies where Kafka puts its key now."""
        return self.base + self.partitions * self.size

    @property
    def unexplained_below(self) -> int:
        """Keys in several partitions, with a number below that one, are ordered by time.

        In a first run any number of partitions may have been there, which explains nearly half of
        all places: so it is used only where it explains those of all records.
        """
        return self.of_homes if self.before else self.base + (MAX_PARTITIONS + 1) * self.size

    def level(self, key: str, partition: int) -> int:
        """Return the largest number of partitions for which Kafka puts a key there; 0 if none."""
        hashed = murmur2(key.encode()) & 0x7FFFFFFF
        counts = (self.partitions, *self.earlier)
        return next((n for n in counts if hashed % n == partition), 0)

    def seq(self, key: str, partition: int, offset: int) -> int:
        """Return the number of a record, if no order by time changes it."""
        within = offset - self.read.get(partition, 0)
        return self.base + self.level(key, partition) * self.size + within


_SCATTERED = """
SELECT h.key FROM {{records}} h WHERE {condition} AND h.key IS NOT NULL
GROUP BY h.key HAVING MIN(h.partition) <> MAX(h.partition) AND (MIN(h.seq) < {below}{shared})
"""
_SHARED = """ OR COUNT(DISTINCT CASE WHEN h.kind <> {rejected} THEN h.raw_key END)
  + MAX(CASE WHEN h.kind <> {rejected} AND h.raw_key IS NULL THEN 1 ELSE 0 END) > 1"""
_BY_TIME = """
SELECT r.partition, r.offset, {base} - 1 + CAST(ROW_NUMBER() OVER (
  PARTITION BY r.key ORDER BY r.reached, r.seq, r.partition
) AS BIGINT) AS seq FROM (
  SELECT h.key, h.partition, h.offset, h.seq, MAX(h.timestamp) OVER (
    PARTITION BY h.key, h.partition ORDER BY h.offset
  ) AS reached
  FROM {{records}} h JOIN ({scattered}) k ON h.key = k.key WHERE {condition}
) r
"""


def scattered_keys(numbering: Numbering, condition: str) -> str:
    """Return a SELECT of the keys that have records in several partitions, which nothing explains.

    {records} in it is a history, of which the rows that meet the condition (of h) were numbered so.
    """
    shared = _SHARED.format(rejected=text_literal(RecordKind.REJECTED))
    return _SCATTERED.format(
        condition=condition,
        below=numbering.unexplained_below,
        shared=shared if numbering.shares_ids else "",
    ).strip()


def by_time(numbering: Numbering, condition: str) -> str:
    """Return a SELECT of (partition, offset, seq): the numbers of the records of such keys.

    A record is as late as the latest timestamp of its key up to it in its partition, so that no
    timestamp changes the order within one. Where these are equal, the one in the current partition
    is newer.
    """
    scattered = scattered_keys(numbering, condition)
    text = _BY_TIME.format(base=numbering.base, condition=condition, scattered=scattered)
    return text.strip()


def require_orderable(topic: str, generation: int, ends: Offsets) -> None:
    """Raise ShardpostError if the topic's records cannot be numbered in that generation."""
    own = ends.get(topic, {})
    limits = (
        (generation, MAX_GENERATION, "times recreated"),
        (len(own), MAX_PARTITIONS, "partitions"),
        (sum(own.values()), MAX_OFFSETS, "offsets in all partitions"),
    )
    for found, most, what in limits:
        if found > most:
            raise ShardpostError(
                f"topic {topic}: expected at most {most} {what}, found {found}: its records cannot"
                " be put in order (docs/decisions/0033-order-records-by-when-they-were-read.md)"
            )


def order_of(seq: int, snapshot: int, retry_offset: int | None, kind: str) -> Order:
    """Return the order of a decodable record; `retry_offset` is None for an original."""
    standing = _ORIGINAL if retry_offset is None else _RETRY
    if kind == RecordKind.RECONCILED:
        standing = _RECONCILED
    return seq, standing, snapshot, retry_offset or 0


def is_retry(order: Order) -> bool:
    """Tell whether the record of an order is a retry."""
    return order[1] == _RETRY


def is_reconciled(order: Order) -> bool:
    """Tell whether the record of an order is one by which a reconciliation closed its key."""
    return order[1] == _RECONCILED


def newest_first(alias: str) -> str:
    """Return that order for a SQL ORDER BY over columns of a history, the latest record first."""
    computed = {
        "is_reconciled": f"kind = '{RecordKind.RECONCILED}'",
        "is_original": "retry_offset IS NULL",
    }
    return ", ".join(f"{alias}.{computed.get(name, name)} DESC" for name in ORDERED_BY)


# By these it is judged what a new record changes; `offset` says which record it is.
_OF_HOLDERS = ("is_open", "client", "ticker", "amount", "exchange")
JUDGED_BY = ("key", "partition", "seq", "retry_offset", *_OF_HOLDERS)
# How many more keys are open, how many of the records are retries, and how many keys left the
# partition that Kafka puts them into, or came from one other to another.
COUNTS = ("opened", "retries", "moved")

_NEWEST = """
SELECT u.*, u.kind = {upsert} AS is_open FROM (
  SELECT r.*, ROW_NUMBER() OVER (PARTITION BY r.key ORDER BY {newest}) AS nth
  FROM {{records}} r WHERE {condition} AND r.kind <> {rejected}
) u WHERE u.nth = 1
"""
# In the order of a retry that the table has, only a later retry of that origin can come. That is a
# column: DataFusion would take a condition for one of the other side (view_tables.py says why).
_COMPARED = """
SELECT {own}, {old},
  COALESCE(o.seq IS NULL OR n.seq > o.seq
    OR (n.seq = o.seq AND o.retry_offset IS NOT NULL), false) AS is_newer,
  CAST(n.is_open AS INT) - COALESCE(CAST(o.is_open AS INT), 0) AS opened,
  CASE WHEN n.retry_offset IS NULL THEN 0 ELSE 1 END AS retries,
  CASE WHEN {moved} THEN 1 ELSE 0 END AS moved
FROM {{newest}} n LEFT JOIN {{known}} o ON n.key = o.key
"""
_MOVED = "o.partition <> n.partition AND n.seq >= {base} AND n.seq < {current}"


def newest_of_keys(condition: str = "true") -> str:
    """Return a SELECT of the latest decodable record of each key, with `is_open`.

    {records} in it is a history, of which the rows count that meet the condition, of r.
    """
    rejected, upsert = map(text_literal, (RecordKind.REJECTED, RecordKind.UPSERT))
    own = {"newest": newest_first("r"), "condition": condition}
    return _NEWEST.format(**own, rejected=rejected, upsert=upsert).strip()


def judged_by(table: Table) -> list[str]:
    """Return those of JUDGED_BY that a table of latest records has."""
    return [name for name in table.names if name in JUDGED_BY]


def compared(table: Table, numbering: Numbering | None = None) -> str:
    """Return a SELECT of latest records, {newest} in it, beside what is {known} of their keys.

    Columns: `offset` and those of JUDGED_BY that the table has, these as `old_…`, `is_newer` for
    those that change what is known, and COUNTS; nothing has moved without a numbering.
    """
    names, moved = judged_by(table), "false"
    if numbering is not None:
        moved = _MOVED.format(base=numbering.base, current=numbering.of_current)
    own = ", ".join(f"n.{name}" for name in ("offset", *names))
    old = ", ".join(f"o.{name} AS old_{name}" for name in names)
    return _COMPARED.format(own=own, old=old, moved=moved).strip()
