"""A condition of who holds: any history by it, and its change, refused, rebuilt or confirmed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from shardpost import tables
from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import UsageError
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.rebuilds import drop as dropping
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.rebuild_job import Action, tables_of
from shardpost.settings import Settings
from shardpost.values.holding_rule import Rule
from tests.spark.test_compact_positions import HISTORIES, planned_for
from tests.support.compacting import agree, run
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.rebuilding import compacted, done, request, swap
from tests.support.record_streams import Again, Growth, Stream
from tests.support.reference import Raw, closed, exchange, position

ABOVE_0 = "country = 'US' AND amount > 0"
CONDITIONS = [ABOVE_0, "(country IS NULL OR country <> 'US') AND NOT amount < 0", "amount = 2.5"]


@pytest.mark.one_of("histories cut into any runs")
@pytest.mark.parametrize("holds", CONDITIONS[: up_to(3, 1)])
@settings(
    max_examples=up_to(2, 1),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(HISTORIES)
def test_any_history_by_a_condition_equals_the_fold(
    fresh: Callable[[], Settings], holds: str, history: list[list[Raw | Again | Growth]]
) -> None:
    own = fresh().model_copy(update={"holds": holds})
    stream = Stream(own)
    for n, records in enumerate(history):
        stream.send(records)
        with planned_for(1_000_000 * (n % 2)):
            run(own)
        agree(own, stream.fold)


def test_an_amount_and_a_country_take_and_give_and_explain_says_which_part(stream: Stream) -> None:
    own = stream.settings = stream.settings.model_copy(update={"holds": ABOVE_0})
    stream.compact(position("1", "client1", "NASDAQ"), position("2", "client1", "LON"))
    stream.compact(position("1", "client1", "NASDAQ", 0), exchange("LON", "US"))
    assert query_holders(installed(own).tables, _newest(own), HoldersQuery()) == {"client1": ["2"]}
    explained = [(t.position, t.change, t.why) for t in tables.explain("client1", settings=own)]
    assert explained == [
        ("1", "put", f"met: {ABOVE_0}"),
        ("1", "took", "not met: amount > 0 (0 > 0)"),
        ("2", "put", f"met: {ABOVE_0}"),
    ]
    stream.compact(position("1", "client1", "NASDAQ", 3), exchange("LON", None), closed("9"))
    assert query_holders(installed(own).tables, _newest(own), HoldersQuery()) == {"client1": ["1"]}


def _newest(own: Settings) -> Snapshot:
    return snapshots.current(installed(own).tables)


@pytest.mark.one_of("stories of a rebuild")
def test_a_changed_condition_is_refused_then_rebuilt_swapped_and_confirmed(stream: Stream) -> None:
    us = stream.settings
    stream.compact(position("1", "a", "NASDAQ"), position("2", "b", "NASDAQ", 0))
    above = us.model_copy(update={"holds": ABOVE_0})
    with pytest.raises(UsageError, match=r"amount > 0: snapshot 1 is for country US\. .* rebuild"):
        run(above)
    wanted = request(Action.START, tables=tables_of("share_holders"), source=Source.HISTORY)
    assert done(above, wanted)["holds"] == ABOVE_0
    stream.send([position("3", "c", "NASDAQ", -1)])
    compacted(above)
    agree(us, stream.fold)  # held until the swap
    swap(above)
    agree(above, stream.fold)
    assert _newest(above).rule == Rule("US", ABOVE_0)
    assert _newest(above).as_json()["holds"] == ABOVE_0
    dropping.drop(installed(above), "me", "a test")
    other = above.model_copy(update={"holds": "TRUE"})
    run(other, country_changed=True)
    agree(other, stream.fold)
    tried = done(other, replace(wanted, holds="amount<0"))
    assert tried["holds"] == "amount < 0"
