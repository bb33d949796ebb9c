"""What the tests of the compaction share.

Run it here, read what it left, hold it against the fold.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.snapshot import UnknownExchanges
from shardpost.holders import folding
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.view_tables import POSITIONS, SHARE_HOLDERS, FoldingRule
from shardpost.holders.spark.compaction import compact
from shardpost.settings import Settings
from shardpost.topics.declared import STARTER_COUNTRIES
from tests.support.installed import installed
from tests.support.reference import Fold, Raw, exchange, published


@contextmanager
def folding_by(rule: FoldingRule) -> Iterator[None]:
    """Have compactions of this process fold layers by another rule."""
    with patch.object(folding, "FOLDING", rule):
        yield


def run(settings: Settings, *, code: int = 0, **asked: Any) -> dict[str, object]:
    """Run one compaction in this process, as asked, which is to end with that code."""
    found, result = compact(installed(settings), CompactionRequest(**asked))
    assert found == code
    return result


def starter() -> list[Raw]:
    """Return the records that a new topic `exchanges` is given."""
    return [exchange(code, country) for code, country in STARTER_COUNTRIES.items()]


def held(settings: Settings) -> dict[str, list[str]]:
    """Return the holders of the newest snapshot."""
    at = at_snapshot(snapshots.current(installed(settings).tables), SHARE_HOLDERS)
    found = rows(installed(settings).tables, "SELECT client, positions FROM share_holders", at)
    return {row["client"]: row["positions"] for row in found if row["positions"]}


def agree(settings: Settings, fold: Fold, country: str | None = None) -> None:
    """Hold tables, counts and topic against the fold: invariants 1 and 2."""
    snapshot = snapshots.current(installed(settings).tables)
    holders = fold.holders(country or settings.country, None if country else settings.holds)
    assert held(settings) == holders
    assert published(settings) == holders
    assert snapshot.counts.positions == len(fold.positions)
    assert snapshot.counts.holders == len(holders)
    assert snapshot.counts.held == sum(map(len, holders.values()))
    assert snapshot.counts.rejected == fold.rejected
    assert snapshot.counts.unknown == UnknownExchanges.of(fold.unknown_exchanges)
    at = at_snapshot(snapshot, POSITIONS)
    found = rows(installed(settings).tables, "SELECT key, client FROM positions WHERE is_open", at)
    assert {row["key"]: row["client"] for row in found} == {
        key: form["Client"] for key, form in fold.positions.items()
    }
