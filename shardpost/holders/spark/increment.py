"""The lists of holders that a few changes change, without Spark.

In memory are the changes, and the lists of the clients that change; of too many, Spark does it.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shardpost.delta import query
from shardpost.delta.arrow_schema import arrow_schema
from shardpost.delta.snapshot import LONGEST_EXCHANGE
from shardpost.delta.table import LayeredVersion, text_literal
from shardpost.holders.model.as_of import changed_holders, position_sort_key
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.holders.spark.compaction_run import FewRows
from shardpost.holders.spark.table_writer import HoldersRun
from shardpost.kafka.partitioning import partition_of
from shardpost.spark import run_size


def opened_by_exchange(rows: pa.Table, known: set[str]) -> Counter[str]:
    """Return how many more are open than before on each exchange that is not known."""
    more = Counter[str]()
    for prefix, sign in (("", 1), ("old_", -1)):
        is_open = pc.fill_null(rows[f"{prefix}is_open"], False)
        for code in rows[f"{prefix}exchange"].filter(is_open).to_pylist():
            more[code[:LONGEST_EXCHANGE]] += 0 if code in known else sign
    return more


@dataclass
class ListChange:
    """The ids of positions that a client came to hold, and ceased to."""

    added: list[str] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)

    def applied_to(self, held: Sequence[str]) -> list[str]:
        """Return the list after the change; both are in the order of `position_sort_key`."""
        left = [id_ for id_ in held if id_ not in self.removed]
        ids, start = list[str](), 0
        for id_ in sorted(set(self.added).difference(left), key=position_sort_key):
            at = bisect_right(left, position_sort_key(id_), lo=start, key=position_sort_key)
            ids += [*left[start:at], id_]
            start = at
        return ids + left[start:]


def list_changes(
    positions: Iterable[tuple[str, str | None, str | None]],
) -> dict[str, ListChange]:
    """Return what changes by client, of each position (id, who held it, who holds it), once."""
    changes: dict[str, ListChange] = defaultdict(ListChange)
    for id_, held_by, holds in positions:
        if held_by is not None:
            changes[held_by].removed.add(id_)
        if holds is not None:
            changes[holds].added.append(id_)
    return dict(changes)


class ChangedLists(NamedTuple):
    """The rows of the holders whose list changes.

    `holders` is how many more clients hold, and `held` how many more positions they do.
    """

    rows: pa.Table
    holders: int
    held: int


def changed_lists(
    run: HoldersRun, changed: FewRows, before: set[str], now: set[str]
) -> ChangedLists | None:
    """Return what positions change that are as `latest.few_changes` returns them.

    `before` and `now` are the exchanges that counted, and that count. None if clients are too many,
    or have too much.
    """
    held = changed.query(changed_holders(before, now))
    changes = list_changes(zip(*(column.to_pylist() for column in held.columns), strict=True))
    known = (
        _known_lists(run, [*changes])
        if len(changes) <= run_size.THRESHOLDS.clients_at_once
        else None
    )
    if known is None:
        return None
    lists = {client: _applied(change, known.get(client)) for client, change in changes.items()}
    counts = {client: len(ids) for client, ids in known.items()}
    holders = sum(bool(ids) - bool(counts.get(client)) for client, ids in lists.items())
    held = sum(len(ids) - counts.get(client, 0) for client, ids in lists.items())
    return ChangedLists(_holder_rows(run, lists), holders, held)


def _applied(change: ListChange, known: pa.Array | None) -> list[str]:
    return change.applied_to([] if known is None else known.to_pylist())


def _known_lists(run: HoldersRun, clients: list[str]) -> dict[str, pa.Array] | None:
    """Return what the last snapshot has of clients; None if that is too much."""
    assert run.last is not None  # noqa: S101 - else nothing is known, and Spark writes it
    if not clients:
        return {}
    values = ", ".join(f"({text_literal(client)})" for client in clients)
    keys = f"SELECT v.column1 AS client FROM (VALUES {values}) v"  # noqa: S608 - literals
    at: LayeredVersion = replace(run.last.layered(SHARE_HOLDERS), keys=keys)
    sql, size = "SELECT client, positions FROM share_holders", 0
    known: dict[str, pa.Array] = {}
    for batch in query.stream(
        run.installation.tables, sql, {run.tables.located(SHARE_HOLDERS): at}
    ):
        # As it comes, a batch holds on to, and counts, all that was read to find it.
        lists = batch["positions"].cast(arrow_schema(SHARE_HOLDERS).field("positions").type)
        size += lists.nbytes
        if size > run_size.THRESHOLDS.lists_at_once:
            return None
        known |= zip(batch["client"].to_pylist(), (one.values for one in lists), strict=True)
    return known


def _holder_rows(run: HoldersRun, lists: dict[str, list[str]]) -> pa.Table:
    columns = {
        "client": [*lists],
        "positions": [*lists.values()],
        "snapshot": [run.number] * len(lists),
        "shard": [partition_of(client, run.shards) for client in lists],
    }
    return pa.table(columns, arrow_schema(SHARE_HOLDERS))
