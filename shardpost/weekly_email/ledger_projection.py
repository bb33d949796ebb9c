"""The ledger's state of each client and week, as a projection for readers, not for senders.

Commands, pages and the watch count and list from it. A run that mails decides, so it reads the
ledger itself after fencing (`ledger_topic.Ledger.open`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from sqlite3 import Connection
from typing import TypeVar

from shardpost import __version__
from shardpost.installation import Installation
from shardpost.kafka.records import Record, TopicPartition
from shardpost.projection import Form, Projections, remove
from shardpost.weekly_email.ledger_topic import SHARDS_READ_AT_ONCE, entry_of
from shardpost.weekly_email.model.ledger import WEEK_BYTES, DeliveryState, erased_id, ledger_id
from shardpost.weekly_email.model.ledger_index import WHY_UNKNOWN

Answer = TypeVar("Answer")


def fold(database: Connection, records: Sequence[Record]) -> None:
    """Fold ledger records: a client's last record in a week counts.

    A tombstone makes the client open. `sending` is shown as `unknown`.
    """
    clients: dict[tuple[str, str, bool], tuple[str | None, str | None, int]] = {}
    weeks: dict[str, int] = {}
    for record in records:
        week = (record.key or b"")[:WEEK_BYTES].decode(errors="replace")
        if (entry := entry_of(record, week)) is None:
            continue
        state, reason = entry.state, entry.reason
        if state is DeliveryState.SENDING:
            state, reason = DeliveryState.UNKNOWN, WHY_UNKNOWN
        # JSON may contain lone surrogates, which SQLite rejects.
        text = reason and reason.encode(errors="replace").decode()
        clients[week, entry.client, entry.is_erased] = state, text, record.timestamp
        weeks[week] = record.offset
    rows = ((*about, *said) for about, said in clients.items())
    database.executemany("REPLACE INTO clients VALUES (?, ?, ?, ?, ?, ?)", rows)
    database.executemany("REPLACE INTO weeks VALUES (?, ?)", weeks.items())


LEDGER = Form(
    "ledger",
    (
        "clients (week TEXT, client TEXT, is_erased INTEGER, state TEXT, reason TEXT, at INTEGER,"
        " PRIMARY KEY (week, client, is_erased)) WITHOUT ROWID",
        "weeks (week TEXT PRIMARY KEY, last_offset INTEGER)",
    ),
    fold,
    made_by=__version__,
    # Records of closed weeks may disappear from Kafka: nobody reads them.
    valid_for=timedelta(days=30),
)


def ask_shards(
    installation: Installation,
    shards: Collection[int],
    ask: Callable[[int, Connection], Answer],
    *,
    wait: bool = False,
) -> list[Answer]:
    """Return the query's result for each shard after its projection has read to the end.

    With `wait` that is the high watermark, else the first open transaction.
    """
    topic = installation.kafka.topic("weekly-emails")
    partitions = {shard: TopicPartition(topic, shard) for shard in shards}
    of = (installation.kafka, installation.files, LEDGER, [*partitions.values()])
    projections = Projections(*of, committed=not wait)

    def answer(shard: int) -> Answer:
        with projections.open(partitions[shard]) as database:
            return ask(shard, database)

    with ThreadPoolExecutor(SHARDS_READ_AT_ONCE) as pool:
        return [*pool.map(answer, partitions)]


def forget(installation: Installation, shard: int) -> None:
    """Remove this machine's cache of a shard's ledger; the next request reads it again."""
    partition = TopicPartition(installation.kafka.topic("weekly-emails"), shard)
    remove(installation.files, LEDGER, partition)


def last_offsets(installation: Installation, partitions: int) -> list[dict[str, int]]:
    """Return {week: offset of its last record} of each shard."""
    sql, shards = "SELECT week, last_offset FROM weeks", range(partitions)
    return ask_shards(installation, shards, lambda _, shard: dict(shard.execute(sql).fetchall()))


def counts_of(database: Connection, week: object) -> Counter[DeliveryState]:
    """Return the number of clients of a week in each state, without the open ones."""
    sql = "SELECT state, count(*) FROM clients WHERE week = ? AND state IS NOT NULL GROUP BY state"
    found = database.execute(sql, (str(week),))
    return Counter({DeliveryState(state): count for state, count in found})


def listed(
    database: Connection, week: object, state: DeliveryState
) -> list[tuple[str, str | None]]:
    """Return the clients of a week in a state, with the reason, sorted by id."""
    sql = "SELECT client, reason FROM clients WHERE week = ? AND state = ? ORDER BY 1, 2"
    return database.execute(sql, (str(week), state)).fetchall()


def states_of(
    database: Connection, client: str, weeks: Collection[str]
) -> dict[str, tuple[str, str | None]]:
    """Return {week: (state, reason)} of one client in those weeks of which the ledger has it."""
    within = ", ".join("?" * len(weeks))
    sql = (  # by its primary key; of an erased client the plain record is a tombstone
        "SELECT week, coalesce(state, 'open'), reason FROM clients"  # noqa: S608 - only ?
        f" WHERE week IN ({within})"
        " AND (client = ? AND is_erased = 0 OR client = ? AND is_erased = 1)"
        " ORDER BY state IS NOT NULL"
    )
    found = database.execute(sql, (*weeks, ledger_id(client), erased_id(client)))
    return {week: (state, reason) for week, state, reason in found}


def sent_since(database: Connection, week: object, at: int) -> tuple[int, int | None, int | None]:
    """Return how many were mailed since a record time (ms), and the bounds of all records since."""
    sql = "SELECT count(*) FILTER (WHERE state = 'sent'), min(at), max(at) FROM clients"
    found = database.execute(f"{sql} WHERE week = ? AND at >= ?", (str(week), at)).fetchone()
    return found[0], found[1], found[2]


def open_among(
    database: Connection, week: object, clients: Iterable[str]
) -> list[tuple[str, str | None]]:
    """Return which of the clients are open, with the reason on record; erased ones never are."""
    sql = "SELECT client, state, reason FROM clients WHERE week = ? AND is_erased = ?"
    own = {client: said for client, *said in database.execute(sql, (str(week), False))}
    erased = {client for client, state, _ in database.execute(sql, (str(week), True)) if state}
    found = ((client, own.get(ledger_id(client), (None, None))) for client in clients)
    return [
        (client, reason)
        for client, (state, reason) in found
        if state is None and not (erased and erased_id(client) in erased)
    ]
