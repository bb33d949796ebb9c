"""Records that came after a week was frozen, and are of before its end: whom they concern.

The audience is frozen once, so nobody is mailed for them. It is compared with what the newest
snapshot says as of the same instant, when somebody asks: by the tables, without a JVM. If nothing
came late, that costs one look at what was read since the freeze.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import snapshots
from shardpost.delta.object_store import Tables
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.kafka.kafka import Kafka
from shardpost.kafka.partitioning import by_partition
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger import LedgerId
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import LateClients
from shardpost.weekly_email.model.week_tables import POSITION

if TYPE_CHECKING:
    from shardpost.holders.spark.held_positions import LatePositions

POSITION_FIELDS = tuple(name for name, _ in POSITION)


def find_late(installation: Installation, frozen: FrozenWeek) -> LateClients | None:
    """Return whom late records concern, by the newest snapshot; None if that is not known.

    That is so once the audience was erased, or the history of the week's end was pruned.
    """
    newest = snapshots.newest(installation.tables)
    if newest is None or frozen.audience_erased_at is not None:
        return None
    if newest.number <= frozen.snapshot:
        return LateClients()
    from shardpost.holders.spark.held_positions import late_positions  # imports PySpark

    try:
        newest.require_history(frozen.as_of)
    except ShardpostError:
        return None
    late = late_positions(
        installation.tables, newest, frozen.snapshot, frozen.country, frozen.as_of
    )
    return LateClients() if late is None else _compared(installation, frozen, late)


def _compared(installation: Installation, frozen: FrozenWeek, late: "LatePositions") -> LateClients:
    rows = (late.rows.column(name).to_pylist() for name in ("client", *POSITION_FIELDS))
    now = _by_client(zip(*rows, strict=True))
    then = _by_client(_mailed(installation.tables, frozen, late.keys))
    differ = {client for client in now.keys() | then.keys() if now.get(client) != then.get(client)}
    missed, changed = set[str](), set[str]()
    for shard, names in by_partition(differ, frozen.shards).items():
        clients = {*names}
        members = clients.intersection(FrozenWeeks(installation.tables).clients(frozen, shard))
        changed |= members
        missed |= _not_erased(installation.kafka, frozen, shard, clients & now.keys() - members)
    return LateClients(tuple(sorted(missed)), tuple(sorted(changed)))


def _by_client(rows: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """Return {client: a hash of its positions, in any order}, of (client, position, …)."""
    found: dict[str, int] = defaultdict(int)
    for client, *position in rows:
        found[client] += hash(tuple(position))
    return found


def _mailed(
    tables: Tables, frozen: FrozenWeek, keys: pa.ChunkedArray | None
) -> Iterator[tuple[str, ...]]:
    """Yield (client, position, …) of the audience, of those positions; None: of all."""
    for batch in FrozenWeeks(tables).positions(frozen):
        flat = pc.list_flatten(batch.column("positions"))
        clients = batch.column("client").cast(pa.string())
        owners = clients.take(pc.list_parent_indices(batch.column("positions")))
        fields = [pc.struct_field(flat, name).cast(pa.string()) for name in POSITION_FIELDS]
        found = pa.table([owners, *fields], ["client", *POSITION_FIELDS])
        if keys is not None:
            found = found.filter(pc.is_in(fields[0], value_set=keys.cast(pa.string())))
        yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


def _not_erased(kafka: Kafka, frozen: FrozenWeek, shard: int, clients: set[str]) -> set[str]:
    """Return the clients without those that were members, and were erased."""
    if not clients:
        return clients
    entries = ShardLedger(kafka, IsoWeek.parse(frozen.week), shard).entries()
    erased = {entry.id for entry in entries if entry.state and entry.is_erased}
    return {client for client in clients if LedgerId.erased(client) not in erased}
