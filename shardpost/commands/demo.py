"""`shardpost demo`: the main job on the five positions of the story, end to end."""

from datetime import UTC, datetime

import click


@click.command()
@click.option("--keep", is_flag=True, help="Leave its stack up, to look around.")
def command(keep: bool) -> int:
    """Play the story of five positions on a fresh stack of its own, end to end.

    Beside a stack that is in use it disturbs nothing: it has a home and ports of its own.
    """
    from shardpost.embedded import demo
    from shardpost.settings import load

    demo.run(load(), now=datetime.now(UTC), keep=keep, say=click.echo)
    return 0
