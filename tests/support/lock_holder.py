"""A process that takes a lock, says so, and deletes an object for each line that it is given.

Its arguments: the lock, how long it waits for it, the length of a lease, the machine that it says
it is on. What stops it is its last line.
"""

import logging
import os
import sys

import click

from shardpost.alerts.model.alert import ALERTS
from shardpost.delta import stored_files
from shardpost.errors import ShardpostError
from shardpost.locks import claims, locks, process_identity
from shardpost.settings import load
from tests.support.installed import installed


def main(name: str, wait: str, lease: str, machine: str) -> None:
    """Run until the input ends."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    claims.LEASE_SECONDS = float(lease)
    process_identity._machine = lambda: machine  # type: ignore[assignment]
    settings = load(os.environ)
    try:
        with locks.exclusive(
            installed(settings).files, name, f"the job on {machine}", wait=float(wait)
        ):
            click.echo("held")
            for line in sys.stdin:
                stored_files.delete(installed(settings).tables, ALERTS, [line.strip()])
                click.echo(f"deleted {line.strip()}")
        click.echo("released")
    except ShardpostError as error:
        click.echo(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
