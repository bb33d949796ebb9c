"""What engines read without views, through the life of a home: kills at each step, and swaps."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shardpost.delta import snapshots
from shardpost.holders import compaction, folding
from shardpost.holders.model.compaction_request import Follow
from shardpost.holders.model.view_tables import LAYERED, SHARE_HOLDERS, FoldingRule
from shardpost.holders.spark import fold, input_update
from shardpost.settings import Settings
from tests.support import rebuilding
from tests.support.at_step import at_step, killing
from tests.support.compacting import agree, folding_by, held, run
from tests.support.delta_readers import delta_reader
from tests.support.engines import expected_of, in_order, raw, said, selects
from tests.support.follower_turns import LATER
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.record_streams import Stream
from tests.support.reference import Raw, client, closed, exchange, position

STEPS = [
    *("positions history", "positions table", "share_holders", "commit"),
    *(f"{table.name} fold" for table in LAYERED),
    *("offsets", "publish", "letters"),
]
COMMITTED = STEPS[STEPS.index("commit") + 1 :]


def batch(number: int) -> list[Raw]:
    """Return positions that move, are new and are closed, and clients; of each a few."""
    draw = random.Random(number)  # noqa: S311 - test data
    return [
        *(
            position(str(draw.randrange(12)), f"client{draw.randrange(5)}", "NASDAQ")
            for _ in range(6)
        ),
        *(closed(str(draw.randrange(12))) for _ in range(2)),
        client(f"client{draw.randrange(5)}", f"name {number}"),
        exchange("LON", draw.choice(["US", "GB"])),
        Raw("positions", b"bad", b"{"),
    ]


def numbers(settings: Settings) -> dict[str, int]:
    """Hold each table, as engines read it, against the snapshot that it names; return these."""
    view = snapshots.current(installed(settings).tables)
    found = {t.name: int(said(settings, view.located(t))["snapshot"]) for t in LAYERED}
    for engine, tables in raw(settings, view).items():
        for name, rows in tables.items():
            assert rows == expected_of(settings, found[name])[name], (engine, name)
    assert max(found.values()) <= view.number
    return found


def newest(settings: Settings) -> dict[str, int]:
    """Return {table: the newest snapshot}."""
    number = snapshots.current(installed(settings).tables).number
    return {table.name: number for table in LAYERED}


@pytest.mark.one_of("kills of what makes tables")
def test_raw_tables_are_a_snapshot_through_kills_and_swaps(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Polars reads no path that a URL escapes, as that of the home is.
    tables = {"tables": str(tmp_path / "tables")}
    stream.settings = settings = stream.settings.model_copy(update=tables)
    stream.compact(*batch(0), exchange("LSE", "GB"))  # of which a rebuild is
    assert numbers(settings) == newest(settings)
    for number, step in enumerate(drawn(STEPS, 3, every=4), 1):
        before = numbers(settings)
        stream.send(batch(number))
        modules = compaction, folding, input_update, fold
        with monkeypatch.context() as patch, killing(at_step(patch, *modules), step):
            run(settings)
        after = numbers(settings)  # whatever was killed
        assert (after == before) or step in COMMITTED
        rule = FoldingRule(runs=1) if number % 3 == 0 else folding.FOLDING
        with folding_by(rule):
            stream.compact()
        assert numbers(settings) == newest(settings)
    with delta_reader(settings) as ask:
        for change in (rebuilding.swap, rebuilding.rollback):
            if change is rebuilding.swap:
                rebuilding.start(settings, "GB")
            change(settings)
            assert numbers(settings) == newest(settings)
            stream.send(batch(99))
            rebuilding.compacted(settings)
            assert numbers(settings) == newest(settings)
            view = snapshots.current(installed(settings).tables)
            name, path = SHARE_HOLDERS.name, view.located(SHARE_HOLDERS).path
            there = f"delta.`{settings.tables_root}/{path}`"
            select = selects()[name].removesuffix(name) + there
            answer: dict[str, Any] = ask({"script": "", "selects": {name: select}})
            assert in_order(answer[name]) == raw(settings, view)["duckdb"][name]
    agree(settings, stream.fold)


def test_while_it_follows_tables_are_folded_once_they_are_old(
    stream: Stream, tmp_path: Path
) -> None:
    tables = {"tables": str(tmp_path / "tables")}
    stream.settings = settings = stream.settings.model_copy(update=tables)
    stream.compact(*batch(0))
    own, first = installed(settings), newest(settings)
    stream.send(batch(1))
    run(settings, follow=Follow(LATER))
    assert numbers(settings) == first
    assert held(settings) == stream.fold.holders()
    later = datetime.now(UTC) + timedelta(seconds=settings.fold_age)
    view = snapshots.current(own.tables)
    folding.Folding(own.tables, view).fold_if_due(later, settings.fold_age, at_once=False)
    assert numbers(settings) == newest(settings)
