"""`shardpost rebuild swap` and `shardpost rebuild rollback`."""

import click

from shardpost.commands.options import AS_JSON, BY, Key, who
from shardpost.commands.rebuild.submitted import carry_out

WHY = click.option(
    "--why", type=Key(), default="", metavar="TEXT", help="Reason; recorded on `decisions`."
)


@click.command("swap")
@click.option(
    "--max-changed",
    metavar="SHARE",
    help="Only if no more than that share of positions, of holders, of contacts and of exchanges"
    " differs, such as 1%.",
)
@WHY
@BY
@AS_JSON
def swap_command(max_changed: str | None, why: str, by: str | None, as_json: bool) -> int:
    """Put the rebuilt tables in use, by one commit, and publish whose list differs.

    The tables before are kept for a rollback. A mail run that is under way stays with the snapshot
    that it froze. Exit code 3: more differs than --max-changed allows; nothing was swapped.
    """
    from shardpost.rebuilds.order import Action, Order
    from shardpost.shares import parse_share

    share = None if max_changed is None else parse_share(max_changed)
    return carry_out(Order(Action.SWAP, who(by), why, max_changed=share), as_json=as_json)


@click.command("rollback")
@WHY
@BY
@AS_JSON
def rollback_command(why: str, by: str | None, as_json: bool) -> int:
    """Put the tables before the swap in use again, with all that came since, by one commit."""
    from shardpost.rebuilds.order import Action, Order

    return carry_out(Order(Action.ROLLBACK, who(by), why), as_json=as_json)
