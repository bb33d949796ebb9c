"""`shardpost up`: start the embedded stack."""

import click

from shardpost.commands.status import as_text


@click.command()
@click.option("--no-airflow", is_flag=True, help="Start the broker and the mail sink only.")
def command(no_airflow: bool) -> int:
    """Start the embedded stack.

    Returns when all services are healthy; those that are running already are left alone.
    """
    from shardpost.embedded import stack
    from shardpost.settings import load

    settings = load()
    stack.up(settings, with_airflow=not no_airflow, say=lambda line: click.echo(line, err=True))
    click.echo(as_text(settings, stack.status(settings)))
    return 0
