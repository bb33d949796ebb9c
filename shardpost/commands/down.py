"""`shardpost down`: the embedded stack, stopped."""

import click


@click.command()
def command() -> int:
    """Stop the embedded stack, cleanly, also after a crash; what it keeps stays."""
    from shardpost.embedded import stack
    from shardpost.settings import load

    stack.down(load(), say=lambda line: click.echo(line, err=True))
    return 0
