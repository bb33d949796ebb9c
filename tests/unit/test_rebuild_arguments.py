"""The arguments of the job `rebuild_tables`."""

import pytest

from shardpost.rebuilds.arguments import Action, Order, order_of_arguments, tables_of
from shardpost.rebuilds.model.rebuild import Source

ORDERS = [
    Order(Action.START, "anna", tables=tables_of("")),
    Order(
        Action.START,
        "-anna",
        source=Source.KAFKA,
        country="GB",
        tables=tables_of("share_holders"),
    ),
    Order(Action.TOP_UP, "diff", tables=tables_of("")),
    Order(
        Action.SWAP, "anna", "--why not = 'x'", tables=tables_of(""), max_changed=0.01, number=12
    ),
    Order(Action.ROLLBACK, "anna", "", tables=tables_of(""), number=2),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(order.action))
def test_an_order_is_read_back_as_it_was_given(order: Order) -> None:
    assert order_of_arguments(order.as_arguments()) == order
