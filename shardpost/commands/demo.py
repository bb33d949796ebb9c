"""`shardpost demo`: the whole pipeline on five positions."""

from datetime import UTC, datetime

import click


@click.command()
@click.option("--keep", is_flag=True, help="Keep its stack running, to explore it.")
def command(keep: bool) -> int:
    """Run the whole pipeline on five positions, end to end.

    Uses a fresh stack with a home and ports of its own, so it does not disturb one that is running.
    """
    from shardpost.embedded import demo
    from shardpost.settings import load

    demo.run(load(), now=datetime.now(UTC), keep=keep, say=click.echo)
    return 0
