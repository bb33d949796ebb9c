"""`shardpost down`: stop the embedded stack."""

import click


@click.command()
def command() -> int:
    """Stop the embedded stack; its data is kept."""
    from shardpost.embedded import stack
    from shardpost.settings import load

    stack.down(load(), say=lambda line: click.echo(line, err=True))
    return 0
