"""Compactions after a pruning, on Spark: they go on as after any snapshot."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from shardpost.delta import snapshots
from shardpost.holders.pruned_histories import find_superseded, prune
from shardpost.settings import Settings
from tests.support.compacting import agree, run, starter
from tests.support.how_far import drawn
from tests.support.reference import Fold, Raw, closed, position, produce

LATER = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("fold_runs", drawn([1, 100]))
def test_compactions_and_reconciliations_go_on_after_a_pruning(
    fresh: Callable[[], Settings], fold_runs: int
) -> None:
    settings = fresh().model_copy(update={"fold_runs": fold_runs})
    fold = Fold()
    fold.add(starter())

    def compacted(*new: Raw, reconcile: bool = False) -> None:
        produce(settings, list(new))
        fold.add(new)
        run(settings, reconcile=reconcile)
        agree(settings, fold)

    compacted(*(position(f"p{n % 5}", f"c{n % 3}", "NASDAQ") for n in range(30)), closed("p4"))
    compacted(position("p0", "c9", "NASDAQ"))
    found = find_superseded(settings, snapshots.current(settings), LATER, {})
    assert found.rows["position_events"] >= 25
    made = prune(settings, found, datetime.now(UTC))
    assert made is not None
    agree(settings, fold)
    compacted(position("p1", "c9", "NASDAQ"), closed("p2"), position("p4", "c1", "NASDAQ"))
    newest = snapshots.current(settings)
    assert (newest.number, newest.history_from) == (4, LATER)
    compacted(closed("p0"), reconcile=True)
