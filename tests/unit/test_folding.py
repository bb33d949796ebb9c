"""When a layer is folded in."""

import pytest

from shardpost.holders.model.view_tables import FoldingRule

RULE = FoldingRule(share=0.1, least_records=50, runs=500)


@pytest.mark.parametrize(
    ("records", "rows", "runs", "due"),
    [
        (49, 10, 1, False),
        (50, 10, 1, True),
        (50, 500, 1, True),
        (50, 501, 1, False),
        (1, 10**9, 499, False),
        (1, 10**9, 500, True),
        (0, 10, 10_000, False),
        (50, 0, 1, True),
    ],
)
def test_a_layer_is_folded_in_by_its_share_or_after_its_runs(
    records: int, rows: int, runs: int, due: bool
) -> None:
    assert RULE.is_due(records=records, rows=rows, runs=runs) is due
