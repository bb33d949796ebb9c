"""The order of position ids."""

from shardpost.holders.model.as_of import position_sort_key


def test_all_digit_ids_come_first_by_number_then_the_rest_by_code_point() -> None:
    ids = ["x", "10", "2", "1", "002", "0", "00", "Z", "9" * 40, "1a", "²", "é", "-1", ""]
    assert sorted(ids, key=position_sort_key) == [
        *("0", "00", "1", "002", "2", "10", "9" * 40),
        *("", "-1", "1a", "Z", "x", "²", "é"),
    ]
