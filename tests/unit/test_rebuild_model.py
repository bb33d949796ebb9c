"""What a rebuild is: its tables, where it stands, its difference; values in, values out."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from shardpost.delta.snapshot import Snapshot
from shardpost.delta.table import from_row, to_row
from shardpost.errors import UsageError
from shardpost.holders.model.view_tables import POSITION_EVENTS, POSITIONS, VIEW
from shardpost.rebuilds.model.difference import (
    LINE,
    SAMPLES,
    Difference,
    Differences,
    question,
    samples,
)
from shardpost.rebuilds.model.rebuild import (
    Progress,
    Rebuild,
    Source,
    Standing,
    State,
    folders_of,
    with_dependents,
)
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest, tables_of
from shardpost.values.holding_rule import Rule
from tests.support import histories

AT = datetime(2026, 11, 16, tzinfo=UTC)
ALL = tuple(table.name for table in VIEW)


def snapshot(number: int = 3, **more: Any) -> Snapshot:
    return replace(histories.snapshot(number, {"positions": 1, "position_events": 1}), **more)


HOLDERS = ("share_holders", "share_holders_changes")


def rebuild(**more: object) -> Rebuild:
    candidate = snapshot(folders={"share_holders": "share_holders.2"})
    return Rebuild(
        *(2, AT, AT, "me", Source.HISTORY, Rule("GB"), ("share_holders",), 3),
        candidate=candidate,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("share_holders", HOLDERS),
        ("share_holders_changes", HOLDERS),
        ("clients", ("clients",)),
        ("positions", ("positions", *HOLDERS)),
        ("exchanges", ("exchanges", *HOLDERS)),
        ("positions, clients", ("positions", "clients", *HOLDERS)),
        ("client_events", ALL),
        ("rejected_records", ALL),
        (None, ALL),
    ],
)
def test_with_a_table_come_those_that_are_made_of_it(
    names: str | None, expected: tuple[str, ...]
) -> None:
    assert tables_of(names) == expected


@pytest.mark.parametrize("names", ["", " ", "\u00a0", ",", "positions,"])
def test_names_of_tables_that_are_blank_are_not_all(names: str) -> None:
    with pytest.raises(UsageError, match=r"'': expected a table: position_events, "):
        tables_of(names)


@pytest.mark.parametrize("country", ["", " ", "\u00a0"])
def test_a_blank_country_is_not_the_one_in_force(country: str) -> None:
    with pytest.raises(UsageError, match="country: expected a code, found "):
        RebuildRequest(Action.START, "me", country=country)


def test_a_table_that_there_is_not_is_named() -> None:
    with pytest.raises(UsageError, match=r"letters: expected a table: position_events, "):
        with_dependents(["positions", "letters"])


def test_a_table_is_where_the_snapshot_says_and_so_is_its_layer() -> None:
    view = snapshot(folders=folders_of(ALL, 2))
    located = view.located(POSITIONS)
    assert (located.name, located.path) == ("positions", "positions.2")
    assert located.layer_source.path == "position_events.2"
    only = snapshot(folders={"positions": "positions.2"}).located(POSITIONS)
    assert only.layer_source == POSITION_EVENTS
    assert snapshot().located(POSITIONS) == POSITIONS


def test_a_later_rebuild_leaves_other_folders_as_they_are() -> None:
    first = snapshot(folders=folders_of(("positions", "share_holders"), 2))
    assert {**first.folders, **folders_of(("share_holders",), 3)} == {
        "positions": "positions.2",
        "share_holders": "share_holders.3",
    }


def test_where_it_stands_is_said_by_the_newest_snapshot() -> None:
    of_it = {"share_holders": "share_holders.2"}
    old, new = snapshot(4), snapshot(5, folders=of_it, rebuilt_in=5)
    assert rebuild().standing(old) is Standing.BUILDING
    built = rebuild(state=State.BUILT)
    assert built.standing(old) is Standing.READY
    assert built.standby(old) == built.candidate
    swapped = replace(built, former=old, swaps=1)
    assert swapped.standing(old) is Standing.READY  # it was killed before its commit
    assert swapped.standing(new) is Standing.IN_USE
    assert swapped.standby(new) == old
    back = snapshot(6, rebuilt_in=6)
    assert swapped.standing(back) is Standing.ROLLED_BACK
    dropped = replace(swapped, state=State.DROPPED)
    assert (dropped.standing(new), dropped.standing(back)) == (Standing.FINAL, Standing.DROPPED)


def test_it_is_in_use_for_good_while_any_of_its_tables_is() -> None:
    of_it = ("positions", "share_holders")
    dropped = replace(rebuild(state=State.DROPPED), tables=of_it)
    later = snapshot(9, folders={"positions": "positions.2", "share_holders": "share_holders.3"})
    assert dropped.standing(later) is Standing.FINAL


def test_the_country_in_force_follows_the_setting_only_when_that_is_changed() -> None:
    assert snapshot().rule_now(Rule("US")) == Rule("US")
    assert snapshot().rule_now(Rule("GB")) == Rule("GB")
    swapped = snapshot(set_country="GB")  # US by a swap, while the setting was GB
    assert swapped.rule_now(Rule("GB")) == Rule("US")
    assert swapped.rule_now(Rule("US")) == Rule("US")
    assert swapped.rule_now(Rule("FR")) == Rule("FR")


def test_a_view_is_the_same_after_it_was_written_as_text() -> None:
    view = snapshot(
        folders={"positions": "positions.2"},
        rebuilt_in=2,
        set_country="GB",
        history_from=AT,
        topic_ids={"positions": "id"},
        folded={"positions": 2},
    )
    for former in (view, snapshot(), None):
        stored = replace(rebuild(), candidate=view, former=former)
        assert from_row(Rebuild, to_row(stored)) == stored


def test_the_share_that_differs_is_the_larger_of_positions_and_holders() -> None:
    found = Difference({}, {}, Differences(98, 1, 1, 0), Differences(5, 3, 1, 1))
    assert (found.positions.share, found.holders.share, found.share) == (0.02, 0.5, 0.5)
    assert not found.is_none
    assert Difference({}, {}, Differences(9), Differences()).is_none
    assert Differences().share == 0


@pytest.mark.parametrize("names", ["positions", "share_holders", "clients"])
def test_tables_without_their_histories_are_not_made_from_kafka(names: str) -> None:
    with pytest.raises(UsageError, match="only the histories are read from the topics"):
        RebuildRequest(Action.START, "me", source=Source.KAFKA, tables=tables_of(names))


def test_progress_says_share_rate_and_the_time_that_is_left() -> None:
    said = Progress(3, 2_000_000, 8_000_000, 40).summary()
    assert said == "2,000,000 of 8,000,000 records, 25%, 50,000 a second, 120 s left"
    assert Progress().summary() == "0 of 0 records, 100%"


OLD: dict[str, Any] = {"snapshot": 7, "country": "US", "holds": None, "tables": {"positions": 4}}
NEW: dict[str, Any] = {"snapshot": 7, "country": "GB", "holds": None, "tables": {"positions.2": 1}}


def holder(client: str, *ids: str) -> dict[str, Any]:
    return {
        "client": client,
        "difference": "only_new",
        "old": [],
        "new": [*ids],
        "records": [
            {
                "position": id_,
                "topic": "positions",
                "partition": 3,
                "offset": 41,
                "exchange": "LON",
                "country": "GB",
            }
            for id_ in ids
        ],
    }


def position(id_: str) -> dict[str, Any]:
    return {"position": id_, "difference": "only_old", "old": None, "new": None}


def test_it_has_the_counts_and_the_shares_and_a_sample() -> None:
    found = Difference(
        OLD, NEW, Differences(1200), Differences(3, 1, 0, 1), [holder("client1", "2")]
    )
    text = question(2, found)
    assert "Rebuild 2, country GB" in text
    assert "in use, country US, key by key, at snapshot 7:" in text
    assert "| open positions | 1,200 | 0 | 0 | 0 | 0.00% |" in text
    assert "| holders | 3 | 1 | 0 | 1 | 40.00% |" in text
    sample = "client client1: only in the new: old none, new 2 (2 by positions[3]@41, LON is GB)"
    assert f"\n- `{sample}`\n" in text


def test_it_says_that_nothing_differs() -> None:
    text = question(2, Difference(OLD, OLD, Differences(5), Differences(2)))
    assert "Nothing differs." in text
    assert "Some of it" not in text


def test_the_samples_are_as_many_and_as_long_as_a_person_reads() -> None:
    of_positions = [position(str(n)) for n in range(20)]
    of_holders = [holder(f"client{n}", *map(str, range(1000))) for n in range(20)]
    both = Differences(0, 20)
    lines = samples(Difference(OLD, NEW, both, both, of_positions + of_holders))
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["position"] * SAMPLES + ["client"] * SAMPLES
    assert max(map(len, lines)) == LINE
    assert lines[-1].endswith("…")


def test_a_name_can_neither_end_the_code_that_it_is_in_nor_begin_a_line() -> None:
    name = "x\n```\n# Swap!"
    text = question(2, Difference(OLD, NEW, Differences(), Differences(0, 1), [holder(name, "1")]))
    [line] = [line for line in text.splitlines() if "Swap!" in line]
    assert line.startswith("- `client x")
    assert line.endswith("`")
    assert line.count("`") == 2
