"""Rebuilds, driven whole, against plain folds: real broker, real Spark, real tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, strategies
from hypothesis import settings as example_settings

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders.holders_query import HoldersQuery, query_holders
from shardpost.rebuilds import drop as dropping
from shardpost.rebuilds import store
from shardpost.rebuilds.model.difference import Difference
from shardpost.rebuilds.run import topped_up
from shardpost.rebuilds.sides import compared
from shardpost.rebuilds.spark import top_up as top_up_module
from shardpost.settings import Settings
from tests.support.compacting import agree
from tests.support.rebuilding import WORK, compacted, rollback, start, swap
from tests.support.record_streams import RECORDS, Again, Growth, Stream
from tests.support.reference import Fold, Raw, closed, exchange, position

Holders = dict[str, list[str]]

ACTIONS = ("compact", "start", "start GB", "start holders GB", "diff", "swap", "rollback", "drop")
STEPS = strategies.lists(
    strategies.tuples(
        strategies.lists(RECORDS, max_size=12),
        strategies.lists(strategies.sampled_from(ACTIONS), max_size=3),
    ),
    min_size=1,
    max_size=5,
)
SETS_OF_TABLES = {"start": "", "start GB": "", "start holders GB": "share_holders"}


@dataclass
class Model:
    """What is in use and beside, by the country whose stock counts there."""

    in_use: str = "US"
    beside: str | None = None
    is_new_in_use: bool = False
    seen: dict[int, tuple[str, Holders]] = field(default_factory=dict)

    def may(self, action: str) -> bool:
        """Tell whether an action is possible now."""
        if action.startswith("start"):
            return self.beside is None or (not self.is_new_in_use and not self.was_swapped)
        if action in ("diff", "drop"):
            return self.beside is not None
        if action == "swap":
            return self.beside is not None and not self.is_new_in_use
        return self.is_new_in_use

    was_swapped: bool = False
    started: str | None = None


def differences(old: Holders, new: Holders) -> dict[str, int]:
    both = old.keys() & new.keys()
    return {
        "equal": sum(old[client] == new[client] for client in both),
        "changed": sum(old[client] != new[client] for client in both),
        "only_old": len(old.keys() - new.keys()),
        "only_new": len(new.keys() - old.keys()),
    }


def diff(settings: Settings) -> Difference:
    topped_up(settings, store.require_current(settings), WORK)
    return compared(settings)


@pytest.mark.timeout(1500)
@example_settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@example(
    [
        (
            [position("1", "client1", "NASDAQ"), Again(0, b"{"), position("2", "client1", "LON")],
            ["start GB", "diff", "swap"],
        ),
        (
            [position("1", "client2", "LON"), exchange("LON", "US"), closed("2")],
            ["rollback", "diff", "swap"],
        ),
        ([Growth(), position("3", "client3", "NASDAQ")], ["drop", "start holders GB", "diff"]),
        ([exchange("NASDAQ", "GB"), Raw("positions", b"3", b"{")], ["swap", "rollback", "drop"]),
    ]
)
@given(STEPS)
def test_any_history_with_rebuilds_between_runs_equals_the_fold_of_the_rules_in_force(
    fresh: Callable[[], Settings], history: list[tuple[list[Any], list[str]]]
) -> None:
    settings = fresh()
    stream, model = Stream(settings), Model()
    for number, (records, actions) in enumerate(history):
        stream.send(records)
        with pytest.MonkeyPatch.context() as patch:  # now the plans for many records, now for few
            patch.setattr(top_up_module, "MAX_LISTED_RECORDS", 200_000 * (number % 2))
            compacted(settings)
            check(settings, stream.fold, model)
            for action in actions:
                do(settings, action, stream.fold, model)
                check(settings, stream.fold, model)
    for snapshot in snapshots.list_all(settings):
        country, holders = model.seen[snapshot.number]
        assert (snapshot.country, query_holders(settings, snapshot, HoldersQuery())) == (
            country,
            holders,
        )


def check(settings: Settings, fold: Fold, model: Model) -> None:
    agree(settings, fold, model.in_use)
    snapshot = snapshots.current(settings)
    model.seen[snapshot.number] = snapshot.country, fold.holders(model.in_use)


def do(settings: Settings, action: str, fold: Fold, model: Model) -> None:
    """Do it, and hold it against the model; what is not possible now changes nothing."""
    if action == "compact":
        compacted(settings)
        return
    is_same = not action.startswith("start") or model.started in (None, action)
    if not (model.may(action) and is_same):
        with pytest.raises(ShardpostError):
            attempt(settings, action)
        return
    found = attempt(settings, action)
    if action.startswith("start"):
        model.started = action
        model.beside = "GB" if "GB" in action else settings.country
    elif action in ("swap", "rollback"):
        assert model.beside is not None
        model.in_use, model.beside = model.beside, model.in_use
        model.is_new_in_use = action == "swap"
        model.was_swapped = True
    elif action == "drop":
        model.beside = model.started = None
        model.is_new_in_use = model.was_swapped = False
    else:
        old, new = model.in_use, model.beside
        if model.is_new_in_use:
            assert isinstance(found, Difference)
            return  # of the snapshot at which they were swapped
        assert isinstance(found, Difference)
        assert new is not None
        expected = differences(fold.holders(old), fold.holders(new))
        assert vars(found.holders) == expected
        assert vars(found.positions) == {
            "equal": len(fold.positions),
            "changed": 0,
            "only_old": 0,
            "only_new": 0,
        }


def attempt(settings: Settings, action: str) -> object:
    if action.startswith("start"):
        country = "GB" if "GB" in action else settings.country
        return start(settings, country, SETS_OF_TABLES[action])
    actions: dict[str, Callable[[Settings], object]] = {
        "diff": diff,
        "swap": swap,
        "rollback": rollback,
        "drop": dropping.drop,
    }
    return actions[action](settings)
