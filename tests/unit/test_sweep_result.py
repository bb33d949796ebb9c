"""The result of a sweep: its JSON, and what of it needs a person."""

import json
from collections import Counter

from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.sweep_result import (
    GONE,
    NAMED,
    RECREATED,
    SEE_PARKED,
    Gap,
    Intake,
    ParkedGroup,
    as_json,
    for_a_person,
)
from shardpost.kafka.coordinates import TopicPartition

DLT = TopicPartition("orders.DLT", 3)
NONE: Counter[ParkedGroup] = Counter()


def test_what_went_well_needs_nobody() -> None:
    counts = Counter({Outcome.RETRY: 3, Outcome.WAIT: 2, Outcome.DROP: 1})
    result = as_json(counts, NONE, [], Intake(4))
    assert for_a_person(result) == []
    assert result == {
        "retried": 3,
        "parked": 0,
        "dropped": 1,
        "waiting": 2,
        "held": 0,
        "taken_in": 4,
        "held_errors": [],
        "parked_errors": [],
        "gaps": [],
        "not_read": [],
    }


def test_parked_letters_are_named_by_origin_and_error_the_most_first() -> None:
    parked = Counter({ParkedGroup("", "error-1"): 1, ParkedGroup("orders", "E-2"): 2})
    result = json.loads(json.dumps(as_json(Counter({Outcome.PARK: 3}), parked, [], Intake())))
    assert result["parked_errors"] == [
        {"origin": "orders", "error": "E-2", "letters": 2},
        {"origin": None, "error": "error-1", "letters": 1},
    ]
    assert for_a_person(result) == [
        f"parked: 2 of orders, E-2: {SEE_PARKED}",
        f"parked: 1 of no known origin, error-1: {SEE_PARKED}",
    ]


def test_of_very_many_errors_the_most_frequent_are_named() -> None:
    parked = Counter({ParkedGroup("orders", f"E-{n}"): n for n in range(1, 2 * NAMED)})
    result = as_json(Counter({Outcome.PARK: parked.total()}), parked, [], Intake())
    assert result["parked"] == parked.total()
    assert [one["letters"] for one in result["parked_errors"]] == [
        *range(2 * NAMED - 1, NAMED - 1, -1)
    ]


def test_held_letters_need_a_person_whether_of_one_error_or_too_large() -> None:
    for errors, why in (
        (["E-1"], "too many due letters of one error: E-1"),
        ([], "the log says why"),
    ):
        result = as_json(Counter({Outcome.HOLD: 5}), NONE, errors, Intake())
        assert for_a_person(result) == [f"held: 5, {why}"]


def test_gaps_and_what_was_not_read_are_named_with_partition_and_offsets() -> None:
    gaps = (Gap(DLT, 5, 9, GONE), Gap(DLT, 12, None, RECREATED))
    intake = Intake(0, gaps, ("orders.DLT[1]: it has no leader",))
    result = json.loads(json.dumps(as_json(Counter(), NONE, [], intake)))
    assert result["gaps"][0] == {
        "topic": "orders.DLT",
        "partition": 3,
        "from": 5,
        "to": 9,
        "reason": GONE,
    }
    assert for_a_person(result) == [
        f"orders.DLT[3]: offsets 5 to 9: {GONE}",
        f"orders.DLT[3]: offsets 12 on: {RECREATED}",
        "not read: orders.DLT[1]: it has no leader",
    ]


def test_the_name_of_an_origin_does_not_steer_a_terminal() -> None:
    parked = Counter({ParkedGroup("a\x1b[31m\nb", "E-1"): 1})
    [line] = for_a_person(as_json(Counter({Outcome.PARK: 1}), parked, [], Intake()))
    assert line.startswith("parked: 1 of a\ufffd[31m\ufffdb, E-1")
