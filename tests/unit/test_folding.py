"""What engines read without views: a committed snapshot, which the tables name."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import settings as example_settings

from shardpost.delta import snapshots, storage, table_log
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import FORM_PROPERTY
from shardpost.delta.table_log import VersionExistsError
from shardpost.holders import folding
from shardpost.holders.folding import COPY, Folding, restored_tables
from shardpost.holders.model.view_tables import (
    LAYERED,
    POSITIONS,
    SHARE_HOLDERS,
    FoldingRule,
)
from shardpost.maintenance.maintain import maintain_all
from shardpost.settings import Settings
from tests.support.at_step import at_step, killing
from tests.support.engines import expected_of, raw, said
from tests.support.histories import Batch, close, country_of, overwrite, put, write
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.random_histories import LAYERED_BATCHES

NAMES = frozenset(table.name for table in LAYERED)
STORY = [
    Batch([put("1", "client1", "NASDAQ"), put("2", "it's", "LON")], [country_of("NASDAQ", "US")]),
    Batch([close("1"), put("3", "it's", "NASDAQ")], [country_of("LON", "US")], NAMES),
    Batch([put("4", "client2", "LON")], [], NAMES),
]
LATER = timedelta(hours=2)


def write_all(settings: Settings, batches: Sequence[Batch]) -> None:
    """Write those snapshots, with clients, as a run has them: its tables at their versions."""
    write(settings, batches)
    last = snapshots.current(installed(settings).tables)
    versions = restored_tables(installed(settings).tables, last)
    snapshots.commit(installed(settings).tables, after(last, tables=versions))


def after(last: Snapshot, **changes: object) -> Snapshot:
    """Return the snapshot of the next day."""
    next_day = last.committed_at + timedelta(days=1)
    return replace(last, number=last.number + 1, committed_at=next_day, **changes)  # type: ignore[arg-type]


def fold_if_due(settings: Settings, view: Snapshot, now: datetime, *, at_once: bool = True) -> None:
    """Fold what is due, as a compaction or the maintenance does."""
    folded = Folding(installed(settings).tables, view)
    folded.fold_if_due(now, settings.fold_age, at_once=at_once)


def agree(settings: Settings, number: int) -> None:
    """Hold what each engine reads against a snapshot, and what the tables say of themselves."""
    view = snapshots.stored(installed(settings).tables, number)
    for engine, found in raw(settings).items():
        assert found == expected_of(settings, number), engine
    for table in LAYERED:
        found_ = said(settings, table)
        assert found_["snapshot"] == str(number)
        assert datetime.fromisoformat(found_["committed_at"]) == view.committed_at
        assert datetime.fromisoformat(found_["looked_at"]) == view.looked_at
        assert json.loads(found_["end_offsets"]) == view.as_json()["end_offsets"]
        newest = DeltaTable(f"{settings.tables_root}/{table.path}").history(1)[0]
        assert newest["shardpost.snapshot"] == str(number)


@example_settings(max_examples=up_to(20, 2))
@given(LAYERED_BATCHES)
def test_engines_read_the_snapshot_of_the_fold_without_views(batches: Sequence[Batch]) -> None:
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home), snapshot_days=36_500)
        write_all(settings, batches)
        own = installed(settings).tables
        for view in snapshots.list_all(own):
            Folding(own, view).fold(view.committed_at)
            found = expected_of(settings, view.number)
            for engine in raw(settings).values():
                assert {name: engine[name] for name in found} == found
        agree(settings, view.number)


def test_older_snapshots_are_what_they_were(settings: Settings) -> None:
    write_all(settings, STORY)
    numbers = range(1, len(STORY) + 1)
    before = [expected_of(settings, number) for number in numbers]
    last = snapshots.current(installed(settings).tables)
    fold_if_due(settings, last, last.committed_at)
    agree(settings, last.number)
    assert [expected_of(settings, number) for number in numbers] == before
    assert snapshots.current(installed(settings).tables) == last  # a copy has no row
    assert restored_tables(installed(settings).tables, last) == last.tables


def test_a_run_that_is_killed_between_tables_leaves_each_right_and_the_next_folds_all(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = installed(settings).tables
    write_all(settings, STORY)
    last = snapshots.current(tables)
    with killing(at_step(monkeypatch, folding), "exchanges fold"):
        fold_if_due(settings, last, last.committed_at)
    assert said(settings, POSITIONS)["snapshot"] == str(last.number)
    assert said(settings, SHARE_HOLDERS) == {}
    for found in raw(settings).values():
        assert found["positions"] == expected_of(settings, last.number)["positions"]
    assert restored_tables(tables, last) == last.tables
    fold_if_due(settings, last, last.committed_at, at_once=False)
    agree(settings, last.number)


def test_it_is_folded_at_once_if_small_and_else_when_it_is_old(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(settings, STORY)
    own, last = installed(settings), snapshots.current(installed(settings).tables)
    fold_if_due(settings, last, last.committed_at, at_once=False)  # there is none yet
    agree(settings, last.number)
    hour = timedelta(seconds=settings.fold_age)
    made = replace(last, number=last.number + 1)
    snapshots.commit(own.tables, made)
    fold_if_due(settings, made, last.committed_at + hour - LATER / 999, at_once=False)
    monkeypatch.setattr(folding, "SMALL_BYTES", 1)
    fold_if_due(settings, made, last.committed_at)
    assert said(settings, SHARE_HOLDERS)["snapshot"] == str(last.number)
    fold_if_due(settings, made, last.committed_at + hour, at_once=False)
    agree(settings, made.number)
    later = replace(made, number=made.number + 1)
    snapshots.commit(own.tables, later)
    monkeypatch.undo()
    fold_if_due(settings, later, last.committed_at)
    agree(settings, later.number)


def test_a_large_layer_becomes_what_snapshots_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = installed(settings).tables
    write_all(settings, STORY)
    last = snapshots.current(tables)
    before = expected_of(settings, last.number)
    monkeypatch.setattr(folding, "FOLDING", FoldingRule(runs=1))
    fold_if_due(settings, last, last.committed_at, at_once=False)
    agree(settings, last.number)
    folded = snapshots.current(tables)
    assert set(last.folded) - set(folded.folded) == {"positions", "share_holders", "exchanges"}
    assert folded.tables[POSITIONS.name] == storage.newest_version(tables, POSITIONS)
    assert expected_of(settings, last.number) == before


def test_copies_are_deleted_an_hour_after_they_were_replaced_but_never_what_is_read(
    settings: Settings,
) -> None:
    tables = installed(settings).tables
    write_all(settings, STORY)
    last = snapshots.current(tables)

    def folded(minutes: int) -> list[str]:
        before = snapshots.current(tables)
        rows = [put("9", "client1", "LON").row() | {"snapshot": before.number + 1}]
        history = overwrite(settings, POSITIONS.layer_source, rows)
        made = after(before, tables={**before.tables, "position_events": history})
        snapshots.commit(tables, made)
        Folding(tables, made).fold(last.committed_at + timedelta(minutes=minutes))
        folders = Path(settings.tables_root, "positions").glob(f"*{COPY}")
        return sorted(one.name.split("-")[0] for one in folders)

    first = folded(0)
    assert len(first) == 1
    assert len(folded(30)) == 2
    assert len(folded(89)) == 3
    left = folded(91)
    assert len(left) == 3
    assert first[0] not in left
    agree(settings, last.number + 4)
    assert expected_of(settings, last.number)["positions"]


def test_what_a_run_left_ahead_is_undone_but_a_fold_stays(settings: Settings) -> None:
    tables = installed(settings).tables
    write_all(settings, STORY)
    last = snapshots.current(tables)
    fold_if_due(settings, last, last.committed_at)
    overwrite(settings, POSITIONS, [])
    found = restored_tables(tables, last)
    assert found["positions"] > last.tables["positions"]
    assert found["share_holders"] == last.tables["share_holders"]
    Folding(tables, last).fold(last.committed_at)
    assert raw(settings)["duckdb"]["positions"] == expected_of(settings, last.number)["positions"]


def test_a_fold_fails_if_another_writer_was_first(settings: Settings) -> None:
    tables = installed(settings).tables
    write_all(settings, STORY)
    opened = storage.open_table(tables, POSITIONS)
    table_log.commit_fold(opened, tables, POSITIONS, [], [], {"shardpost.snapshot": "1"})
    with pytest.raises(VersionExistsError, match="another run writes to these tables"):
        table_log.commit_fold(opened, tables, POSITIONS, [], [], {"shardpost.snapshot": "2"})
    assert said(settings, POSITIONS) == {"snapshot": "1"}
    left = [one.name for one in Path(settings.tables_root, "positions/_delta_log").iterdir()]
    assert all(name.endswith((".json", ".parquet", "_last_checkpoint")) for name in left)


def test_checkpoints_have_folds(settings: Settings) -> None:
    tables = installed(settings).tables
    write_all(settings, STORY)
    last = snapshots.current(tables)
    for number in range(last.number + 1, last.number + 25):
        made = replace(last, number=number)
        snapshots.commit(tables, made)
        Folding(tables, made).fold(last.committed_at)
    log = Path(settings.tables_root, "positions/_delta_log")
    assert len([*log.glob("*.checkpoint.parquet")]) > 1
    agree(settings, last.number + 24)


def test_holders_of_form_3_are_read_as_they_were_and_folded(settings: Settings) -> None:
    """Release 0.2.0 appended the layer to the table itself."""
    tables = installed(settings).tables
    write(settings, STORY)
    own = snapshots.list_all(tables)
    for view in own:  # in their place, as that release wrote them
        stored = DeltaTable(f"{settings.tables_root}/share_holders", view.tables["share_holders"])
        changes = DeltaTable(
            f"{settings.tables_root}/share_holders_changes",
            view.tables["share_holders_changes"],
        )
        folded = view.folded_up_to("share_holders")
        rows = stored.to_pyarrow_table().to_pylist()
        rows += [r for r in changes.to_pyarrow_table().to_pylist() if r["snapshot"] > folded]
        version = overwrite(settings, SHARE_HOLDERS, rows)
        versions = {**view.tables, "share_holders": version}
        del versions["share_holders_changes"]
        snapshots.update_looked_at(tables, replace(view, tables=versions))
    expected = [expected_of_holders(settings, view.number) for view in own]
    last = snapshots.current(tables)
    assert "share_holders" in last.folded
    made = after(last, tables=restored_tables(tables, last))
    snapshots.commit(tables, made)
    assert expected_of_holders(settings, made.number) == expected[-1]
    fold_if_due(settings, made, made.committed_at)
    assert raw(settings)["duckdb"]["share_holders"] == expected[-1]
    form = DeltaTable(f"{settings.tables_root}/share_holders").metadata().configuration
    assert form[FORM_PROPERTY] == str(storage.FORM)
    assert [expected_of_holders(settings, view.number) for view in own] == expected


def expected_of_holders(settings: Settings, number: int) -> list[str]:
    return expected_of(settings, number)[SHARE_HOLDERS.name]


def test_the_maintenance_folds(at: Settings) -> None:
    write_all(at, STORY)
    last = snapshots.current(installed(at).tables)
    maintain_all(installed(at), last.committed_at, dry_run=True)
    assert said(at, SHARE_HOLDERS) == {}
    assert maintain_all(installed(at), last.committed_at).errors == []
    agree(at, last.number)
