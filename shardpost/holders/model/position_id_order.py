"""The order of position ids in a holder's list: all-digit ids by number, then the rest.

The same order as Spark columns, for the table and the mails, is ../spark/position_id_order.py.
"""


def position_sort_key(position_id: str) -> tuple[int, int, str, str]:
    """Return the sort key: digits by number first, however many, then the rest by code point."""
    if position_id.isascii() and position_id.isdigit():
        digits = position_id.lstrip("0")
        return (0, len(digits), digits, position_id)
    return (1, 0, "", position_id)
