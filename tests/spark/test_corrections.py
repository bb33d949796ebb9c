"""Corrections of rejected records: which count, which change nothing, and what a run says of them.

All tests look at one world; processes that share the tests leave them to one.
"""

import re

import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.holders.model.view_tables import CLIENTS
from shardpost.holders.position_history import explanation
from shardpost.settings import Settings
from tests.support.compacting import held
from tests.support.corrections import (
    WRONG,
    Corrected,
    correct_before_the_first_run,
    correct_before_the_second_run,
    done,
    reasons,
    send_records,
)
from tests.support.installed import installed
from tests.support.reference import published


@pytest.fixture(scope="module")
def corrected(shared: Settings) -> Corrected:
    world = Corrected(shared)
    send_records(world)
    correct_before_the_first_run(world)
    world.run()
    correct_before_the_second_run(world)
    world.run()
    return world


def test_each_run_counts_its_rejected_records_and_its_corrections(corrected: Corrected) -> None:
    first, second = map(done, corrected.results)
    assert first == {"rejected": 13 + 11, "letters": 13 + 11, "retries": 17, "applied": 2}
    assert second == {"rejected": 6, "letters": 6, "retries": 14, "applied": 5}
    # Of the two at once the first; each time a correction of a good record, and two that came late.
    assert [one["without_effect"] for one in corrected.results] == [1 + 1 + 2, 1 + 2]


def test_of_two_corrections_the_later_one_counts(corrected: Corrected) -> None:
    assert corrected.held(1)["second"] == ["twice at once"]
    assert corrected.held(1)["first"] == ["twice"]
    assert corrected.held(2)["second"] == ["twice", "twice at once"]
    assert "first" not in corrected.held(2)
    newest = snapshots.current(installed(corrected.settings).tables)
    for key in ("twice", "twice at once"):
        changes = explanation(installed(corrected.settings), newest, "first", key)
        assert [one.change for one in changes] == ["put", "took"]


def test_a_correction_of_a_good_record_changes_nothing(corrected: Corrected) -> None:
    for number in (1, 2):  # in the run of the record itself, and in a later one
        assert corrected.held(number)["of good"] == ["good"]
        assert "another" not in corrected.held(number)


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_correction_after_a_newer_good_record_changes_nothing_and_is_named(
    corrected: Corrected, when: str
) -> None:
    assert corrected.held(2)["of newer"] == ["newer at once", "newer later"]
    assert "client1" not in corrected.held(2)
    newest = snapshots.current(installed(corrected.settings).tables)
    for key in (f"newer {when}", f"closed {when}"):
        partition, offset = corrected.places[key]
        origin = f"{corrected.settings.topic('positions')}[{partition}]@{offset}"
        said = re.compile(rf"(\S+): corrects {re.escape(origin)} without effect")
        [named] = filter(None, map(said.search, corrected.said))
        explained = explanation(installed(corrected.settings), newest, "client1", key)
        if when == "later":  # in one run, times tell: the correction may have counted for a while
            assert [(one.change, str(one.coordinates)) for one in explained[1:]] == [
                ("no effect", named[1])
            ]


def test_a_retry_whose_origin_cannot_be_is_rejected_and_blocks_nothing(
    corrected: Corrected,
) -> None:
    partition, offset = corrected.places["misplaced"]
    topic = corrected.settings.topic("positions")
    found = reasons(corrected.settings)
    for more in WRONG:
        place = {"origin_partition": partition, "origin_offset": offset} | more
        claimed = f"{topic}[{place['origin_partition']}]@{place['origin_offset']}"
        assert f"expected the coordinates of a record of {topic}, found {claimed}" in found
    assert "of misplaced" not in corrected.held(1)
    assert corrected.held(2)["of misplaced"] == ["misplaced"]


def test_a_correction_that_is_null_closes_the_position(corrected: Corrected) -> None:
    assert corrected.held(1)["of closed"] == ["closed"]
    assert "of closed" not in corrected.held(2)


def test_a_retry_of_one_key_corrects_no_other(corrected: Corrected) -> None:
    for when, number in (("at once", 1), ("later", 2)):
        assert corrected.held(number)[f"of holder {when}"] == [f"holder {when}"]
        assert corrected.held(number)[f"of good {when}"] == [f"good {when}"]
        partition, offset = corrected.places[when]
        home = f"{corrected.settings.topic('positions')}[{partition}]@{offset}"
        for name in (f"holder {when}", "never seen", "FF"):
            said = f"expected the key of {home}, {when}, found {name}"
            assert said in reasons(corrected.settings)


def test_retries_of_other_origins_are_passed_over(corrected: Corrected) -> None:
    for number in (1, 2):
        assert "client1" not in corrected.held(number)


def test_clients_and_exchanges_are_mended_too(corrected: Corrected) -> None:
    assert "of new" not in corrected.held(1)
    assert corrected.held(2)["of new"] == ["new"]
    assert held(corrected.settings) == published(corrected.settings) == corrected.held(2)
    at = at_snapshot(snapshots.current(installed(corrected.settings).tables), CLIENTS)
    found = rows(installed(corrected.settings).tables, "SELECT key, name FROM clients", at)
    assert found == [{"key": "of new", "name": "Ann"}]
