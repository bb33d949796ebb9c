"""A client of Kafka that never says what became of a call: a new one begins from the beginning."""

from unittest import mock

import pytest

from shardpost.kafka.transactions import LostAnswerError
from shardpost.run_requests import dispatch
from shardpost.run_requests.model.commands import DispatchCounts

COUNTS = DispatchCounts(issued=1)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_partition_is_dispatched_once_more(lost: int) -> None:
    runs = [*[LostAnswerError("no answer")] * lost, COUNTS]
    with mock.patch.object(dispatch, "PartitionDispatch") as made:
        made.return_value.run.side_effect = runs
        assert dispatch._dispatch_partition(mock.Mock(), 0, mock.Mock(), mock.Mock()) == COUNTS
    assert made.call_count == lost + 1


def test_what_is_lost_twice_is_left_to_the_next_dispatch() -> None:
    with mock.patch.object(dispatch, "PartitionDispatch") as made:
        made.return_value.run.side_effect = LostAnswerError("no answer")
        with pytest.raises(LostAnswerError):
            dispatch._dispatch_partition(mock.Mock(), 0, mock.Mock(), mock.Mock())
    assert made.call_count == 2
