"""Lists of a few clients in large tables: looked up, and published after they changed."""

from random import Random
from unittest import mock

import pytest

from shardpost.holders import holder_records
from shardpost.holders.holder_records import ChangedHolders
from shardpost.holders.model.view_tables import SHARE_HOLDERS
from shardpost.holders.spark import fold
from tests.support.committed_snapshot import held
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.run_sizes import set_thresholds

HOLDERS = {f"client{n:05d}": [f"a long id of a position: {n:08d}"] * 5 for n in range(10_000)}


@pytest.mark.parametrize(("most", "is_known"), [(10_000, True), (1_000, False)])
def test_the_lists_of_a_few_clients_count_not_the_table(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, most: int, is_known: bool
) -> None:
    set_thresholds(monkeypatch, lists_at_once=most)
    last = held(kafka, 1, HOLDERS)
    run = mock.Mock(last=last)
    run.tables.where = installed(kafka.settings).tables
    run.tables.located.return_value = last.located(SHARE_HOLDERS)
    clients = Random(1).sample([*HOLDERS], 20)  # noqa: S311 - the same ones each time
    found = fold._known_lists(run, [*clients, "nobody"])
    expected = {client: HOLDERS[client] for client in clients}
    assert found is None or {key: ids.to_pylist() for key, ids in found.items()} == expected
    assert (found is not None) is is_known


@pytest.mark.parametrize(("most", "is_known"), [(10_000, True), (1_000, False)])
def test_changed_holders_of_several_snapshots_count_not_the_table(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, most: int, is_known: bool
) -> None:
    monkeypatch.setattr(holder_records, "BYTES_AT_ONCE", most)
    clients = Random(1).sample([*HOLDERS], 20)  # noqa: S311 - the same ones each time
    older = {client: 1 for client in HOLDERS if client not in clients}
    found = ChangedHolders.read(
        installed(kafka.settings).tables, held(kafka, 3, HOLDERS, **older), since=1
    )
    assert (found is not None) is is_known
    if found is not None:
        changed = [holder for shard in found.of_shard for holder in found.of(shard, since=1)]
        assert {key: ids.to_pylist() for key, ids in changed} == {c: HOLDERS[c] for c in clients}
