"""`shardpost up`: the embedded stack, started."""

import click

from shardpost.commands.status import in_words


@click.command()
@click.option("--no-airflow", is_flag=True, help="Broker and mail sink alone.")
def command(no_airflow: bool) -> int:
    """Start the embedded stack and return when it is healthy; what is up already is left alone."""
    from shardpost.embedded import stack
    from shardpost.settings import load

    settings = load()
    stack.up(settings, with_airflow=not no_airflow, say=lambda line: click.echo(line, err=True))
    click.echo(in_words(settings, stack.status(settings)))
    return 0
